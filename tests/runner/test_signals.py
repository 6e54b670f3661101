"""A step that signals its daemon leaves a note, and whatever else it does leaves none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pwf.protocol.signalled import take_signalled
from pwf.runner.base.signals import Heard, watch_signals
from tests.runner.forked import forked

HARMLESS = signal.SIGURG  # ignored, unless somebody wants it


def noted(home: Path, deed: Callable[[int], object]) -> int:
    """Which daemon is noted after a deed; the daemon is this process."""
    daemon = os.getpid()
    (home / "output").mkdir(parents=True)
    ours, theirs = socket.socketpair()

    def step() -> None:
        heard = Heard()
        heard.output_folder = str(home / "output" / "run")
        watch_signals(theirs, heard)
        deed(daemon)

    with ours, theirs:
        forked(step)
    return take_signalled(home / "signalled")


@pytest.mark.parametrize(
    "deed",
    [
        lambda pid: os.kill(pid, HARMLESS),
        lambda pid: subprocess.run(["sh", "-c", f"kill -URG {pid}"], check=True),
        lambda pid: os.system(f"kill -URG {pid}"),
    ],
    ids=["its own call", "a command", "a shell"],
)
def test_a_signal_to_the_daemon_is_noted_once(deed: Callable[[int], object], tmp_path: Path) -> None:
    assert noted(tmp_path, deed) == os.getpid()
    assert take_signalled(tmp_path / "signalled") == 0


@pytest.mark.parametrize(
    "deed",
    [
        lambda pid: os.kill(pid, 0),
        lambda pid: os.kill(os.getpid(), HARMLESS),
        lambda pid: subprocess.run(["sh", "-c", f": 1{pid}2"], check=True),
        lambda pid: os.listdir("/"),
    ],
    ids=["a look", "to itself", "another number", "nothing"],
)
def test_nothing_else_is_noted(deed: Callable[[int], object], tmp_path: Path) -> None:
    assert noted(tmp_path, deed) == 0


def test_a_note_that_is_rubbish_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "signalled").write_text("x")
    assert take_signalled(tmp_path / "signalled") == 0
