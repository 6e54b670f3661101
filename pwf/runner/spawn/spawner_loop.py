"""The plain poll loop that zygote and template share: requests on the control socket, children that end.

Runs no trio, and holds one thread. The loop ends when the daemon closes its end of the control socket.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable

from pwf.protocol.spawn import ToSpawner
from pwf.runner.spawn.channel import SpawnSocket
from pwf.runner.spawn.reaping import Children

WAKE_BYTES = 512  # one for each child that ended; what is more wakes again


def serve(
    control: SpawnSocket,
    children: Children,
    handle: Callable[[ToSpawner, list[int]], None],
) -> None:
    """Give each request to `handle` and report each child that ended, until the daemon is gone."""
    wake, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else _pipe()
    signal.signal(signal.SIGCHLD, _noticed)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(control.fileno(), select.POLLIN)
    poll.register(wake, select.POLLIN)
    os.write(write, b"\0")  # a child may have ended before the handler stood
    with contextlib.suppress(ConnectionError):
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wake:
                    os.read(wake, WAKE_BYTES)
                    for exited in children.reap():
                        control.send(exited)
                    continue
                request = control.receive()
                if request is None:
                    return
                handle(*request)


def _noticed(signum: int, frame: object) -> None:
    """The wake-up descriptor says it; the handler only has to be there."""


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write
