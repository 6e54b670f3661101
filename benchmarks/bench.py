"""What a question is given: how much to measure, a folder of its own, repetitions, and the bound on time.

Promises: a measurement never goes on past the bound; every repetition counts except the warm-up; what a question
makes lies in a temporary folder that is removed.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import trio

from benchmarks.rows import Stat

TIMES = 5
TIMES_QUICK = 3
AGAIN_S = 0.5  # before the bound is looked at again where it can not be raised


class OutOfTime(BaseException):
    """The bound is reached. Not an `Exception`: nothing that is measured may swallow it."""


class Bench:
    """`quick`: fewer and smaller, for a first look and for `make bench-quick`."""

    def __init__(self, *, quick: bool = False, times: int | None = None) -> None:
        self.quick = quick
        self.times = times or (TIMES_QUICK if quick else TIMES)

    def pick(self, full: int, quick: int) -> int:
        """A size, by how much is to be measured."""
        return quick if self.quick else full

    def sample(self, measure: Callable[[], float], *, warm_up: int = 1, times: int | None = None) -> Stat:
        """Median and quartiles of `times` measurements, after `warm_up` that do not count."""
        for _ in range(warm_up):
            measure()
        return Stat.of([measure() for _ in range(times or self.times)])

    def in_turn(self, *measures: Callable[[], float], warm_up: int = 1) -> list[Stat]:
        """Several measurements taken in turn, so that all of them see the same machine."""
        for _ in range(warm_up):
            for measure in measures:
                measure()
        taken: list[list[float]] = [[] for _ in measures]
        for _ in range(self.times):
            for values, measure in zip(taken, measures, strict=True):
                values.append(measure())
        return [Stat.of(values) for values in taken]

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A temporary folder on the disk that holds temporary files (`TMPDIR` says which)."""
        folder = Path(tempfile.mkdtemp(prefix="pwf-bench-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def say(self, text: str) -> None:
        """Tell whoever watches; the results go elsewhere."""
        print(text, file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in the main thread once `seconds` are over. Within an event loop it waits for its end."""

    def over(_number: int, _frame: object) -> None:
        if trio.lowlevel.in_trio_run():
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
            return
        raise OutOfTime

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, over)
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, max(0.001, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left_s:  # somebody else's alarm, who still waits for it
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s - (time.monotonic() - began)), interval_s)


def timed(act: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin
