"""What a process prints that executes no run: a zygote, and whoever loads a workflow's file. It goes with their errors.

Owns the pipe. Promises: it is read to its end whatever comes, so that nobody waits for room in it; the first and the
last of it are kept, and it says how much is missing between them.
"""

from __future__ import annotations

import contextlib
import os

import trio

from pwf.errors import RunnerCrashed
from pwf.protocol.step_output import read_now

KEPT_BYTES = 4 * 1024  # of its beginning, and as much of its end


class Said:
    """`theirs` is for the process, as stdout and stderr. Raises `RunnerCrashed` when no pipe can be had."""

    def __init__(self) -> None:
        self._end, self.theirs = open_pipe()
        self._first = bytearray()
        self._last = b""
        self._total = 0

    async def listen(self) -> None:
        """Read until nobody can print there any more."""
        with contextlib.suppress(trio.ClosedResourceError):
            while self._end >= 0:
                await trio.lowlevel.wait_readable(self._end)
                if self._take() == b"":
                    return

    def text(self) -> str:
        """All that has come by now; empty where nothing has."""
        while self._end >= 0 and self._take():
            pass
        between = self._total - len(self._first) - len(self._last)
        gap = f"\n[… {between:,} bytes left out …]\n".encode() if between else b""
        return (bytes(self._first) + gap + self._last).decode("utf-8", "replace").strip("\n")

    def after(self, message: str) -> str:
        """An error's message, and what was printed before it."""
        text = self.text()
        return f"{message}\nbefore that it printed:\n{text}" if text else message

    def close_theirs(self) -> None:
        """The process has it by now."""
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def close(self) -> None:
        """Nobody asks any more."""
        self.close_theirs()
        if self._end >= 0:
            trio.lowlevel.notify_closing(self._end)
            os.close(self._end)
            self._end = -1

    def _take(self) -> bytes | None:
        data = read_now(self._end)
        if data:
            self._total += len(data)
            room = max(0, KEPT_BYTES - len(self._first))
            self._first += data[:room]
            self._last = (self._last + data[room:])[-KEPT_BYTES:]
        return data


def open_pipe() -> tuple[int, int]:
    """Its reading end, which doesn't block, and its writing end. Raises `RunnerCrashed`."""
    try:
        read, write = os.pipe()
    except OSError as error:  # too many are open
        raise RunnerCrashed(f"no pipe could be made: {error}") from error
    os.set_blocking(read, False)
    return read, write
