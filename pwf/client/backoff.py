"""How long to wait before the next attempt to connect: capped, doubled, with full jitter.

Full jitter (any time from nothing to the bound) spreads many clients of a restarted daemon evenly; see
"Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

from collections.abc import Callable

BASE_S = 0.05
CAP_S = 5.0


def delay_s(failures: int, random: Callable[[], float]) -> float:
    """The wait after the `failures`-th failure in a row (1 is the first); `random()` gives [0, 1)."""
    return random() * min(CAP_S, BASE_S * 2.0 ** min(failures, 32))
