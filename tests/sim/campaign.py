"""Many seeds on several cores: results in the order of the seeds, one report, and a clean end at any time."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import NamedTuple

from tests.sim.reached import Reached
from tests.sim.world import Result, run_seed

AT_ONCE = 2  # seeds of one task
AHEAD = 8  # tasks for each core that are handed out before the first of them is done
TELL_EVERY = 500


class Wanted(NamedTuple):
    """Which seeds, and when to stop before the last."""

    first: int
    count: int
    jobs: int = 1
    seconds: float = float("inf")
    fail_fast: bool = False
    every_branch: bool = False


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def campaign(wanted: Wanted) -> int:
    """The exit code: 0 when every seed was clean, 130 after Ctrl-C. The report is of what was done until then."""
    began = time.monotonic()
    tally = Tally(wanted, began)
    interrupted = False
    try:
        for result in _results(wanted):
            tally.add(result)
            if wanted.fail_fast and tally.failed:
                break
            if time.monotonic() - began > wanted.seconds:
                break
    except KeyboardInterrupt:
        interrupted = True
    tally.report()
    if interrupted:
        print("interrupted")
        return 130
    return int(bool(tally.failed) or (wanted.every_branch and tally.misses_a_branch()))


class Tally:
    """What the seeds came to."""

    def __init__(self, wanted: Wanted, began: float) -> None:
        self.failed: list[int] = []
        self._wanted = wanted
        self._began = began
        self._events = self._commits = self._done = 0
        self._faults: Counter[str] = Counter()
        self._reached = Reached()

    def add(self, result: Result) -> None:
        """One more seed; a failure is printed at once."""
        self._done += 1
        self._events += result.events
        self._commits += result.commits
        self._faults += result.faults
        self._reached.add(result.reached)
        if result.violation is not None:
            self.failed.append(result.seed)
            print(f"FAILED seed {result.seed}: {result.violation[:600]}")
            print(f"  replay: python -m tests.sim {result.seed}", flush=True)
        if self._done % TELL_EVERY == 0:
            print(f"{self._done} seeds, {len(self.failed)} failed, {self._seconds:.0f} s", flush=True)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def report(self) -> None:
        """All of it."""
        print(
            f"{self._done} seeds from {self._wanted.first}, {len(self.failed)} failed, {self._events:,} events, "
            f"{self._commits:,} commits, {self._faults.total():,} faults, {self._seconds:.0f} s"
        )
        print(*self._reached.report(self._faults), sep="\n", flush=True)

    def misses_a_branch(self) -> bool:
        """Whether a marked branch was never reached; names those."""
        if self._reached.never:
            print(f"NEVER REACHED: {'; '.join(self._reached.never)}")
        return bool(self._reached.never)


def _results(wanted: Wanted) -> Iterator[Result]:
    """In order. Who stops to listen, or is interrupted, waits for the seeds that are being run, and no more."""
    seeds = range(wanted.first, wanted.first + wanted.count)
    pool = ProcessPoolExecutor(
        wanted.jobs, mp_context=multiprocessing.get_context("fork"), initializer=_begin_worker
    )
    tasks: deque[Future[list[Result]]] = deque()
    try:
        for start in range(0, wanted.count, AT_ONCE):
            tasks.append(pool.submit(_several, seeds[start : start + AT_ONCE]))
            if len(tasks) >= wanted.jobs * AHEAD:
                yield from tasks.popleft().result()
        while tasks:
            yield from tasks.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Ctrl-C is the parent's to handle. What is loaded by now is no garbage."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _several(seeds: range) -> list[Result]:
    return [_quick(seed) for seed in seeds]


def _quick(seed: int) -> Result:
    result = run_seed(seed)
    result.trace = []
    return result
