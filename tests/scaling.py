"""How the work of a function grows with its input, so that a test need not know how fast the machine is."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TRIES = 5


def growth(act: Callable[[T], object], small: T, large: T) -> float:
    """How many times the processor time of `small` is needed for `large`: the best of some tries each."""
    return _best(act, large) / _best(act, small)


def _best(act: Callable[[T], object], argument: T) -> float:
    taken = []
    gc.disable()  # when it collects depends on what else there is
    try:
        for _ in range(TRIES):
            began = time.thread_time()
            act(argument)
            taken.append(time.thread_time() - began)
    finally:
        gc.enable()
    return min(taken)
