"""The files that keep what a step prints: `output/RUN/ATTEMPT.out` and `.err` in the home.

Two processes append to one, mostly one after the other: the runner, and the daemon where the runner can't. Promises: a
file never has more than its limit; where more came, its last line says so; a disk that can't take more ends no step;
what comes through a pipe is in the pipe or in the file at any time, so that who moves it may die, but for what is to be
masked. Where two move something at the same moment, a piece may be lost.
"""

from __future__ import annotations

import contextlib
import os

from pwf.protocol.masking import Masks

STREAMS = ("out", "err")
READ_BYTES = 64 * 1024  # what a pipe holds
MARK_BYTES = 128  # kept free for the last line of a file that has reached its limit

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def file_of(folder: str, attempt: int, stream: str) -> str:
    """The path of one file; `folder` is the run's."""
    return f"{folder}/{attempt}.{stream}"


class OutputFile:
    """One file, open for more. Made with its first byte, so that who prints nothing has none.

    What `masks` has is taken out; what may begin such a value is held until more comes, or the file is closed.
    Then a large part of one is not kept, either.
    """

    def __init__(
        self, folder: str, attempt: int, stream: str, limit: int, masks: Masks | None = None
    ) -> None:
        self.masks = masks
        self._held = b""
        self._room = limit - MARK_BYTES
        self._limit = limit
        self._dropped = 0
        self._fault = ""
        self._descriptor = self._spliced = -1
        self._path = path = file_of(folder, attempt, stream)
        try:
            try:
                self._descriptor = os.open(path, _FLAGS, 0o600)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
                self._descriptor = os.open(path, _FLAGS, 0o600)
        except OSError as error:
            self._fault = error.strerror or str(error)
        self._can_splice = hasattr(os, "splice") and not self._fault

    def take(self, end: int) -> int | None:
        """Append what is in a pipe whose reading end doesn't block, some of it at least; how many bytes that was.

        None for nothing now, 0 when nobody can write there any more.
        """
        try:
            size = os.fstat(self._descriptor).st_size if self._descriptor >= 0 else 0
            room = self._room - size
            if self._can_splice and room > 0 and not (self.masks or self._held):
                return self._splice(end, size, min(room, READ_BYTES))
        except BlockingIOError:
            return None
        except OSError:  # the disk is full, say: that is noticed below
            self._can_splice = False
        data = read_now(end)
        if data:
            self.write(data)
        return None if data is None else len(data)

    def _splice(self, end: int, size: int, count: int) -> int:
        if self._spliced < 0:  # the kernel splices to none that only appends
            self._spliced = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        return os.splice(end, self._spliced, count, offset_dst=size, flags=os.SPLICE_F_NONBLOCK)

    def write(self, data: bytes) -> None:
        """Append what there is room for, and count the rest."""
        if self.masks:
            data, self._held = self.masks.piece(self._held, data)
        self._write(data)

    def _write(self, data: bytes) -> None:
        kept = 0
        if not self._dropped and not self._fault:
            try:
                room = self._room - os.fstat(self._descriptor).st_size
                kept = os.write(self._descriptor, data[:room]) if room > 0 else 0
            except OSError as error:  # the disk is full, most likely
                self._fault = error.strerror or str(error)
        first = not self._dropped
        self._dropped += len(data) - kept
        if first and self._dropped:
            self._mark("more came, and is not kept")

    def close(self) -> int:
        """Say how much is missing, if something is. Returns the size of the file."""
        if self._descriptor < 0:
            return 0
        if self._held:
            self._write(self.masks.last(self._held) if self.masks else self._held)
        if self._dropped:
            self._mark(f"{self._dropped:,} more bytes came, and are not kept")
        try:
            size = os.fstat(self._descriptor).st_size
        except OSError:
            size = 0
        for descriptor in (self._descriptor, self._spliced):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._spliced = -1
        return size

    def _mark(self, what: str) -> None:
        """The last line of a file that has not all."""
        why = self._fault or f"the limit is {self._limit:,} bytes (max_output_bytes)"
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, min(self._room, os.fstat(self._descriptor).st_size))
            os.write(self._descriptor, f"\n[pwf: {what}: {why}]\n".encode()[:MARK_BYTES])


def read_now(end: int) -> bytes | None:
    """What is in a pipe whose reading end doesn't block: None for nothing now, empty when nobody can write there."""
    try:
        return os.read(end, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
