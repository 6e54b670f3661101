"""What the steps of a run print: read from the pipes that are this process's stdout and stderr, kept for each attempt.

Children inherit the pipes; one that floods them waits for the reader, and what is over the limit is thrown away. The
hang-up watcher reads while a step runs, and the engine the rest when it has ended. The reading ends are the daemon's,
too: it keeps what was in a pipe when this process died, and reads where nobody here can, since a step that holds the
interpreter waits for room in its own pipe.

Promises: an attempt that prints nothing makes no file; nothing here raises into a step, or waits for anybody.
"""

from __future__ import annotations

import contextlib
import os
import select
from _thread import allocate_lock  # not threading: it has work to do in each fork

from pwf.protocol.masking import Masks
from pwf.protocol.step_output import STREAMS, OutputFile, read_now
from pwf.runner.base import forking

ROUNDS_MAX = (
    64  # reads at the end of a step: more than a pipe holds, so that no survivor keeps it from ending
)


class Printed:
    """`ends`: where stdout and stderr are read, by their descriptors. `folder`: the run's; empty keeps nothing."""

    def __init__(self, ends: tuple[int, int], folder: str = "", limit: int = 0) -> None:
        self.ends = ends
        self._folder = folder
        self._limit = limit
        self._lock = allocate_lock()
        self._attempt = 0
        self._masks: Masks | None = None
        self._files: list[OutputFile | None] = [None, None]
        self._sizes = [0, 0]
        self._arrived = select.poll()
        for end in ends:
            self._arrived.register(end, select.POLLIN)

    def enter(self, folder: str, limit: int) -> None:
        """What is printed from here on is a run's. What was printed while there was none is nobody's."""
        with self._lock:
            self._empty()
            self._folder, self._limit = folder, limit

    def take_out(self, masks: Masks) -> None:
        """From here on what is kept is without these."""
        with self._lock:
            self._masks = masks
            for file in self._files:
                if file is not None:
                    file.masks = masks

    def leave(self) -> None:
        """The run is over: its files have all that it printed, and are closed."""
        forking.flush()
        with self._lock:
            self._empty()
            self._folder = ""

    def forget_from(self, attempt: int) -> None:
        """Remove what an earlier runner left of attempts that were never committed, whose numbers come again."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                number, _, stream = name.partition(".")
                if number.isdecimal() and stream in STREAMS and int(number) >= attempt:
                    os.unlink(f"{self._folder}/{name}")

    def keep_newest(self, count: int) -> None:
        """Remove what all attempts but the newest `count` of those that printed something have left."""
        with contextlib.suppress(OSError):
            numbered = {name: name.partition(".")[0] for name in os.listdir(self._folder)}
            numbers = sorted({int(number) for number in numbered.values() if number.isdecimal()})
            for name, number in numbered.items():
                if number.isdecimal() and int(number) in numbers[:-count]:
                    os.unlink(f"{self._folder}/{name}")

    def begin(self, attempt: int) -> None:
        """What is printed from here on is this attempt's."""
        self._attempt = attempt
        self._sizes = [0, 0]

    def take(self, end: int) -> bool:
        """Read once. False when nobody can print there any more. For the watcher's thread."""
        with self._lock:
            return self._take(self.ends.index(end), end) != 0

    def write(self, stream: str, data: bytes | bytearray) -> None:
        """Keep what was read elsewhere: a command's output."""
        with self._lock:
            if self._folder:
                self._file(STREAMS.index(stream)).write(bytes(data))

    def end(self) -> int:
        """All that the attempt has printed is in its files, which are closed. How many bytes they have."""
        forking.flush()
        with self._lock:
            self._empty()
        return sum(self._sizes)

    def _empty(self) -> None:
        """Read what is in the pipes, and close the files."""
        if not self._arrived.poll(0) and self._files == [None, None]:
            return
        for index, end in enumerate(self.ends):
            for _ in range(ROUNDS_MAX):
                if not self._take(index, end):
                    break
            file, self._files[index] = self._files[index], None
            if file is not None:
                self._sizes[index] = file.close()

    def _take(self, index: int, end: int) -> int | None:
        """As `OutputFile.take`. What comes while there is no run is thrown away."""
        if not self._folder:
            data = read_now(end)
            return None if data is None else len(data)
        if self._files[index] is None:
            arrived = dict(self._arrived.poll(0)).get(end, 0)
            if not arrived & select.POLLIN:  # then no file is made
                return 0 if arrived else None
        return self._file(index).take(end)

    def _file(self, index: int) -> OutputFile:
        file = self._files[index]
        if file is None:
            file = self._files[index] = OutputFile(
                self._folder, self._attempt, STREAMS[index], self._limit, self._masks
            )
        return file
