"""Deadlines: wakes each supervisor when the time of its runner's step is over.

A cancel scope for each receive would cost more than the receiving, and nearly every step ends long before its time. So
one task looks when the earliest deadline is over that it has heard of, which by then is mostly another's.
Owns when it looks next. Promises: nobody is woken before its deadline, and everybody soon after it.
In: what is watched, a published table: `watch`, `note` and `forget` change it at once, from any task, as a message for
each step would cost more than the step's receive. Each supervisor puts in and takes out itself alone.
Out: wake-ups, which may be late for what has ended meanwhile. If it dies: the daemon ends.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

from pwf.actors.base.changes import Watch


class Timed(Protocol):
    """What has a deadline, by trio's clock, and can be woken at it."""

    deadline: float

    def wake(self) -> None:
        """Look at the time."""
        ...


class Deadlines:
    """The actor. `watch`, `note` and `forget` are for any task."""

    def __init__(self) -> None:
        self._watched: dict[Timed, None] = {}  # in order, which a set has not
        self._look_at = math.inf
        self._earlier = Watch()

    def watch(self, timed: Timed) -> None:
        """From now on it is woken at its deadline, which may change: see `note`."""
        self._watched[timed] = None
        self.note(timed.deadline)

    def note(self, deadline: float) -> None:
        """Somebody's deadline is this one now."""
        if deadline < self._look_at:
            self._look_at = deadline
            self._earlier.wake()

    def forget(self, timed: Timed) -> None:
        """It has ended."""
        self._watched.pop(timed, None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._earlier.wait(max(0.0, self._look_at - trio.current_time()))
            now = trio.current_time()
            if now < self._look_at:
                continue
            self._look_at = math.inf
            for timed in tuple(self._watched):
                if timed.deadline <= now:
                    timed.wake()
                else:
                    self._look_at = min(self._look_at, timed.deadline)
