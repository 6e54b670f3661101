"""Notices that a step is about to send a signal to the daemon, and notes it in the home.

Without it, nobody could tell such a daemon's end from one by somebody's `kill -9`, and the step would kill one daemon
after the other. A note, no wall: it hears Python's own calls, and commands whose words name the daemon's pid.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable
from typing import Any

from pwf import host
from pwf.protocol.signalled import note_signalled

_STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"})


class Heard:
    """Where a signal is noted, and what to do when a step adds an audit hook. One for each process."""

    def __init__(self) -> None:
        self.output_folder = ""
        self.hook_added: Callable[[], None] = lambda: None


def watch_signals(messages: socket.socket, heard: Heard) -> None:
    """From here on, for as long as this process lives. `messages`: its other end is the daemon's."""
    known: list[int] = []

    def daemon() -> int:
        if not known:
            found = host.peer_process(messages)
            known.append(0 if found is None else found.pid)
        return known[0]

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.kill":
            if arguments[1] and arguments[0] == daemon():
                note_signalled(heard.output_folder, daemon())
        elif event == "sys.addaudithook":
            heard.hook_added()
        elif event in _STARTS:
            with contextlib.suppress(
                Exception
            ):  # whatever the step passes: it hears of its own mistakes alone
                if _names(repr(arguments[:2]), daemon()):
                    note_signalled(heard.output_folder, daemon())

    sys.addaudithook(hear)


def _names(words: str, pid: int) -> bool:
    """Whether the number stands in the words by itself."""
    if str(pid) not in words:
        return False
    import re

    return pid > 0 and re.search(rf"(?<!\d){pid}(?!\d)", words) is not None
