"""Processes that outlive their step, in every kind of step: given a moment, then ended and named.

What a step starts ends with it: the next step may run in another runner, after a crash, where nothing of it would be
there. Spared are what was there before the first step, and the helpers of `multiprocessing`, which serve all steps of
a process and end with it.
"""

from __future__ import annotations

import signal
import sys
import time

from pwf import host
from pwf.host import Identity
from pwf.protocol.survivors import Survivor, name_all
from pwf.runner.base import descendants

WAIT_S = 0.25  # for what ends by itself
END_BOUND_S = 2.0
POLL_S = 0.005


class Survivors:
    """For a process whose descendants are all the run's."""

    def __init__(self) -> None:
        self._before = _names(descendants.living()) if host.has_children() else frozenset()

    def end(self, wait_s: float = WAIT_S) -> tuple[Survivor, ...]:
        """End what the step has left behind, once it has had that time. Names them."""
        if not host.has_children() or not self._living():
            return ()
        deadline = time.monotonic() + wait_s
        while living := self._living():
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        named = name_all(living)
        bound = time.monotonic() + END_BOUND_S
        while living and time.monotonic() < bound:
            descendants.signal_all(living, signal.SIGKILL)
            time.sleep(POLL_S)
            living = self._living()
        return named  # and nothing is reaped: a `Popen` of the author's is to learn how its process ended

    def _living(self) -> list[Identity]:
        return [one for one in descendants.living(self._before) if one.pid not in _helpers()]


def _names(found: list[Identity]) -> descendants.Names:
    return frozenset((one.pid, one.start_tick) for one in found)


def _helpers() -> set[int | None]:
    """The pids of what `multiprocessing` has started for the whole process, if it is there at all."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    return {getattr(tracker, "_pid", None), getattr(server, "_forkserver_pid", None)}
