"""A real daemon whose wall clock can be set, and whose machine can sleep, without doing that to this machine.

`python stepped_daemon.py FOLDER daemon` is `pwf daemon` with two clocks moved by what `FOLDER/clock` says:
`WALL_MS SLEPT_MS`. A byte in `FOLDER/told` stands for the kernel's word that the clock was set (timerfd_create(2)).
The daemon alone lives in that time: runners and commands have this machine's.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

MS = 1_000_000


class SteppedClock:
    """The test's side: moves the clocks of a daemon that `program` starts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.wall_ms = self.slept_ms = 0
        self._write()
        os.mkfifo(folder / "told")
        self.program = (str(Path(__file__)), str(folder))

    def step(self, ms: int) -> None:
        """Set the wall clock, and have the kernel tell."""
        self.wall_ms += ms
        self._write()
        self._tell()

    def sleep(self, ms: int) -> None:
        """The machine slept so long: the wall clock and the time since boot went on, what is awake did not."""
        self.slept_ms += ms
        self.step(ms)

    def now_ms(self) -> int:
        """The daemon's wall clock."""
        return time.time_ns() // MS + self.wall_ms

    def _write(self) -> None:
        unfinished = self._folder / "clock.new"
        unfinished.write_text(f"{self.wall_ms} {self.slept_ms}")
        unfinished.rename(self._folder / "clock")

    def _tell(self) -> None:
        descriptor = os.open(self._folder / "told", os.O_RDWR | os.O_NONBLOCK)
        os.write(descriptor, b"!")
        os.close(descriptor)


class Told:
    """Stands for `pwf.host.clock_steps.ClockSteps`."""

    def __init__(self, folder: str) -> None:
        self.descriptor = os.open(f"{folder}/told", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def take(self) -> None:
        os.read(self.descriptor, 64)

    def close(self) -> None:
        os.close(self.descriptor)


def move_clocks(folder: str) -> None:
    """From here on this process lives in the moved time."""
    from pwf.host import clock_steps

    time_ns, clock_gettime_ns = time.time_ns, time.clock_gettime_ns

    def moved() -> tuple[int, int]:
        wall_ms, slept_ms = Path(folder, "clock").read_text().split()
        return int(wall_ms) * MS, int(slept_ms) * MS

    time.time_ns = lambda: time_ns() + moved()[0]
    time.time = lambda: (time_ns() + moved()[0]) / 1e9
    time.clock_gettime_ns = lambda which: (
        clock_gettime_ns(which) + (moved()[1] if which == time.CLOCK_BOOTTIME else 0)
    )
    clock_steps.open_clock_steps = lambda: Told(folder)  # type: ignore[assignment,return-value]


if __name__ == "__main__":
    from pwf.cli.main import main

    move_clocks(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
