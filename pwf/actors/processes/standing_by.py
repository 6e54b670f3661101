"""Runners that stand by: forked ahead of their run, published by the pool, taken by whoever admits one.

A `StandingBy` is the channel between the two, one per template: the pool puts runners in, others take them out at
once and may put them back. Whoever took one owns it. It tells the pool only by a wake-up, at which the pool looks at
it again. Promises: one runner is given out once; one that has died is not; closed, it keeps none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from pwf.actors.base.changes import Watch
from pwf.actors.processes.runner_process import RunnerProcess


class StandingBy:
    """`is_usable` says whether what they were forked from still stands for what its interpreter is."""

    def __init__(self, is_usable: Callable[[], bool]) -> None:
        self.looked_at = Watch()  # a wake-up for the pool: somebody took one
        self.taken_at = 0.0  # trio's clock
        self._is_usable = is_usable
        self._waiting: deque[RunnerProcess] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def processes(self) -> tuple[RunnerProcess, ...]:
        """Those that wait now."""
        return tuple(self._waiting)

    # --- for the pool ---

    def put(self, process: RunnerProcess) -> None:
        """Have a runner wait for its run; it is ended when nothing is kept any more."""
        if self._is_closed:
            process.discard()
        else:
            process.stands_by = True
            self._waiting.append(process)

    def keep_at_most(self, count: int) -> None:
        """End those that wait since the time when more were wanted."""
        while len(self._waiting) > count:
            self._waiting.popleft().discard()

    def close(self) -> None:
        """End all, and keep none from now on."""
        self._is_closed = True
        self.keep_at_most(0)
        self.looked_at.wake()

    # --- for those who admit runs ---

    def reserve(self) -> Reserved | None:
        """One that lives, if there is one. Does not wait."""
        if not self._waiting or not self._is_usable():
            return None
        while self._waiting:
            process = self._waiting.popleft()
            process.stands_by = False
            if not process.has_exited:
                return Reserved(self, process)
            process.close()
        return None


class Reserved:
    """A runner that stood by, kept for whoever is admitted next: to be taken or put back at once after that."""

    def __init__(self, standing_by: StandingBy, process: RunnerProcess) -> None:
        self.process = process
        self._standing_by = standing_by

    def take(self, marker: str) -> RunnerProcess:
        """It is a run's from now on, and the next one is on its way."""
        self.process.marker = marker
        self._standing_by.taken_at = trio.current_time()
        self._standing_by.looked_at.wake()
        return self.process

    def put_back(self) -> None:
        """Nobody needed it: as if it had waited all the time."""
        if self.process.has_exited:
            self.process.close()
        else:
            self._standing_by.put(self.process)
