"""Time that passes only when nothing can run: the clock of a simulated world.

It does what `MockClock(autojump_threshold=0)` does, in half as many turns of trio's loop. `sleep` costs a fraction of
`trio.sleep`, since it is woken by the clock itself and raises nothing.
"""

from __future__ import annotations

import heapq
import math
from itertools import count

import trio


class VirtualTime(trio.abc.Clock):
    """One per `trio.run`. All of its times begin at 0."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, Sleeper]] = []
        self._numbers = count()

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        """Virtual seconds."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Trio asks when no task can run: it is that time at once."""
        soonest = min(deadline, self._sleepers[0][0]) if self._sleepers else deadline
        if soonest == math.inf:
            return soonest  # only trio's own socket can wake anybody, as it does at the end
        self._be(max(soonest, self._now))
        return 0.0

    def jump(self, seconds: float) -> None:
        """Time passes while a task runs."""
        self._be(self._now + seconds)

    def _be(self, now: float) -> None:
        """Who slept until then can run."""
        self._now = now
        while self._sleepers and self._sleepers[0][0] <= self._now:
            heapq.heappop(self._sleepers)[2].wake()

    async def sleep(self, seconds: float) -> None:
        """As `trio.sleep`."""
        sleeper = Sleeper()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._numbers), sleeper))
        await trio.lowlevel.wait_task_rescheduled(sleeper.abort)


class Sleeper:
    """A task that sleeps. It may be cancelled."""

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    def wake(self) -> None:
        """Its time has come."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    def abort(self, _: object) -> trio.lowlevel.Abort:
        """It is cancelled."""
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


async def sleep(seconds: float) -> None:
    """Sleep in the world's time, or in any other that trio runs on."""
    clock = trio.lowlevel.current_clock()
    if seconds > 0 and isinstance(clock, VirtualTime):
        await clock.sleep(seconds)
    else:
        await trio.sleep(seconds)
