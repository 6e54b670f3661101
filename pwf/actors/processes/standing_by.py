"""Runners that stand by: forked ahead, or kept after a run; published by the pool, taken by whoever admits one.

`StandbyRunners` is the published table, with a `StandingBy` for each template: the pool puts runners in, others take
them out at once and may put them back; a supervisor, too, puts its own back in when that stays (`RunnerProcess.stay`).
Whoever took one owns it. It tells the pool only by a wake-up, at which the pool
looks at it again. Promises: one runner is given out once; one that has died is not, nor one whose interpreter or
loaded files are others by now; closed, a `StandingBy` keeps none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from pwf.actors.base.changes import Watch
from pwf.actors.processes.runner_process import RunnerProcess

KEPT_MAX = 16  # that have had a run; those over what is wanted are ended within a minute

TemplateKey = tuple[str, str, tuple[tuple[str, str], ...]]  # interpreter, definition, environment


def template_key(interpreter: str, bundle_key: str, environment: dict[str, str]) -> TemplateKey:
    """What one template serves: loading may depend on the environment."""
    return interpreter, bundle_key, tuple(sorted(environment.items()))


class Loaded(Protocol):
    """What the runners come from."""

    @property
    def is_current(self) -> bool:
        """Whether the files that it was started and loaded from are still as they were then."""


class StandingBy:
    """The runners of one template."""

    def __init__(self, origin: Loaded) -> None:
        self.looked_at = Watch()  # a wake-up for the pool: somebody took one
        self.taken_at = 0.0  # trio's clock
        self._origin = origin
        self._waiting: deque[RunnerProcess] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def processes(self) -> tuple[RunnerProcess, ...]:
        """Those that wait now."""
        return tuple(self._waiting)

    # --- for the pool ---

    def put(self, process: RunnerProcess) -> None:
        """Have a new runner wait for its run; it is ended when nothing is kept any more."""
        self._put(process, self._waiting.appendleft)

    def take_back(self, process: RunnerProcess) -> None:
        """One whose run is over waits for another, if there are not enough of its like. It is the next: it is warm."""
        if process.has_exited or len(self._waiting) >= KEPT_MAX:
            process.discard()
        else:
            self._put(process, self._waiting.append)

    def _put(self, process: RunnerProcess, where: Callable[[RunnerProcess], None]) -> None:
        if self._is_closed:
            process.discard()
        else:
            process.stands_by = True
            where(process)

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
        if not self._waiting or not self._origin.is_current:
            return None
        while self._waiting:
            process = self._waiting.pop()
            process.stands_by = False
            if not process.has_exited:
                return Reserved(self, process)
            process.close()
        return None


class StandbyRunners(dict[TemplateKey, StandingBy]):
    """Those of every template from which runners may be taken."""

    def reserve(self, key: TemplateKey) -> Reserved | None:
        """One that lives, if there is one; the caller takes it or puts it back. Does not wait."""
        standing_by = self.get(key)
        return None if standing_by is None else standing_by.reserve()


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
            self._standing_by.take_back(self.process)
