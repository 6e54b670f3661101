"""Notices steps of the wall clock and the machine's return from sleep, and has all timers looked at again.

Owns the kernel's notifier. Promises: a step or a sleep is noticed at once where the kernel tells (Linux),
and within `TICK_S` elsewhere. The design's one-second tick is not needed for that: a tick compares three
clock readings every five seconds, which a daemon that must cost under 0.1 % of a core can afford. Carries
no facts: the woken re-read.
In: the clocks. Out: `timers`, which it wakes. If it dies, the daemon ends.
"""

from __future__ import annotations

from collections.abc import Callable

import trio
from trio_util import periodic

from pwf.actors.base.logging import Log
from pwf.clock import Clock, Now
from pwf.host.clock_steps import ClockSteps, open_clock_steps

TICK_S = 5.0
STEP_MS = 500  # clocks that are disciplined by NTP drift less than this between two looks


class ClockWatch:
    """The actor. `open_steps` opens the kernel's notifier; None where there is none."""

    def __init__(
        self,
        clock: Clock,
        timers: tuple[Callable[[], None], ...],
        log: Log,
        open_steps: Callable[[], ClockSteps | None] = open_clock_steps,
    ) -> None:
        self._open_steps = open_steps
        self._clock = clock
        self._timers = timers
        self._log = log
        self._last = clock.now()

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick)
            steps = self._open_steps()
            if steps is not None:
                nursery.start_soon(self._listen, steps)

    async def _listen(self, steps: ClockSteps) -> None:
        try:
            while True:
                await trio.lowlevel.wait_readable(steps.descriptor)
                steps.take()
                self.look(told=True)
        finally:
            steps.close()

    async def _tick(self) -> None:
        async for _ in periodic(TICK_S):
            self.look(told=False)

    def look(self, *, told: bool) -> None:
        """Compare the clocks with the last look. `told`: the kernel says that something happened."""
        before, self._last = self._last, self._clock.now()
        stepped_ms, slept_ms = moved(before, self._last)
        if told or abs(stepped_ms) >= STEP_MS or slept_ms >= STEP_MS:
            self._log("clock.stepped", wall_ms=stepped_ms, slept_ms=slept_ms)
            for wake in self._timers:
                wake()


def moved(before: Now, after: Now) -> tuple[int, int]:
    """How far the wall clock was moved against elapsed time, and how long the machine slept in between."""
    elapsed_ms = after.elapsed_ms - before.elapsed_ms
    stepped_ms = (after.wall_ms - before.wall_ms) - elapsed_ms
    slept_ms = elapsed_ms - (after.awake_ms - before.awake_ms)
    return stepped_ms, slept_ms
