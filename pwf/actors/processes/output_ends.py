"""The pipes that a runner prints to, as the daemon holds them: to keep what the runner itself can't.

A runner reads its own pipes (`pwf.runner.base.printed`). When it has died, its last words are still in them. And a step
that holds the interpreter while it prints waits for room that nobody in its process can make: what has lain unread for
a whole look is read here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios

from pwf.actors.processes.said import open_pipe
from pwf.errors import RunnerCrashed
from pwf.protocol.masking import Masks
from pwf.protocol.step_output import STREAMS, OutputFile, file_of, read_now

ROUNDS_MAX = 20  # reads at once: what a pipe holds that a step has made as large as it may


class OutputEnds:
    """Two pipes. `folder`, `attempt` and `limit`: where what they hold belongs; without a folder it is thrown away."""

    def __init__(self) -> None:
        """Raises `RunnerCrashed` when no pipe can be had."""
        self.folder, self.attempt, self.limit = "", 0, 0
        self.masks = Masks()  # what its runner was told, and must not be kept
        self._ends: list[int] = []
        self._written: list[int] = []
        self._unread = [0, 0]
        try:
            for _ in STREAMS:
                end, written = open_pipe()
                self._ends.append(end)
                self._written.append(written)
        except RunnerCrashed:
            self.close()
            raise

    @property
    def of_runner(self) -> tuple[int, ...]:
        """What the runner gets: reading ends, then writing ends."""
        return (*self._ends, *self._written)

    def close_written(self) -> None:
        """The runner has them by now."""
        for written in self._written:
            os.close(written)
        self._written.clear()

    def close(self) -> None:
        """Nobody is interested any more. A runner that is still there can't print any more."""
        self.close_written()
        for end in self._ends:
            os.close(end)
        self._ends.clear()

    def is_stuck(self) -> bool:
        """Whether something has lain in a pipe, as it is, since this was asked last."""
        before, self._unread = self._unread, [_unread(end) for end in self._ends]
        return any(now and now == then for now, then in zip(self._unread, before, strict=False))

    @property
    def has_unread(self) -> bool:
        """Whether something is in a pipe."""
        return any(map(_unread, self._ends))

    def keep(self) -> int:
        """Read what is there, and append it to the attempt's files. How many bytes those have then. Does file I/O."""
        for end, stream in zip(self._ends, STREAMS, strict=False):
            if not self.folder:
                for _ in range(ROUNDS_MAX):
                    if not read_now(end):
                        break
            elif _unread(end):
                file = OutputFile(self.folder, self.attempt, stream, self.limit, self.masks)
                for _ in range(ROUNDS_MAX):
                    if not file.take(end):
                        break
                file.close()
        size = 0
        for stream in STREAMS if self.folder else ():
            with contextlib.suppress(OSError):
                size += os.stat(file_of(self.folder, self.attempt, stream)).st_size
        return size


def _unread(end: int) -> int:
    """How many bytes lie in a pipe."""
    answer = fcntl.ioctl(end, termios.FIONREAD, b"\0\0\0\0")
    return int(struct.unpack("i", answer)[0])
