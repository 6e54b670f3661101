"""The estimator: from samples of how much is completed to a rate and the time left. Pure, no clock, no database.

Promises: what it says comes from samples alone. Where they are too few, or nothing moves any more, it says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from pwf.protocol.progress import Confidence, Estimate

Sample = tuple[int, float]  # wall time in ms, how much was completed

SAMPLES_MAX = 40
SPACING_MS = 1_000  # between two that are kept
RATES_MIN = 3
FRESH_MS_MIN = 10_000
FRESH_GAPS = 3  # how many of the longest recent gaps a sample may be old
LEFT_MS_MAX = 10 * 365 * 24 * 3_600_000  # a longer time is no forecast

#: At least so many rates, and quartiles at most so far apart, as a share of the median.
CONFIDENCES: tuple[tuple[Confidence, int, float], ...] = (("high", 8, 0.3), ("medium", 5, 1.0))


def with_sample(samples: Sequence[Sample], sample: Sample) -> tuple[Sample, ...]:
    """The samples with a newer one. Time or count that goes back begins anew; close ones are thinned, oldest go."""
    kept = list(samples)
    if kept and (sample[0] < kept[-1][0] or sample[1] < kept[-1][1]):
        return (sample,)
    if len(kept) > 1 and kept[-1][0] - kept[-2][0] < SPACING_MS:
        kept.pop()  # the newest before was only kept until the next
    return (*kept, sample)[-SAMPLES_MAX:]


def estimate(samples: Sequence[Sample], total: float | None) -> Estimate | None:
    """What the samples, oldest first, tell; None: nothing that anybody should rely on.

    A rate is measured from one change of the count to the next, so that what moves in leaps has one, too.
    """
    if not samples:
        return None
    moved = [samples[0]]
    for sample in samples[1:]:
        if sample[1] > moved[-1][1] and sample[0] - moved[-1][0] >= SPACING_MS // 2:
            moved.append(sample)
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(moved)]
    if len(gaps) < RATES_MIN:
        return None
    fresh_ms = max(FRESH_MS_MIN, FRESH_GAPS * max(gaps))
    at_ms, completed = samples[-1]
    if at_ms - moved[-1][0] > fresh_ms:
        return None  # it stands still
    rates = sorted(
        1_000 * (later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in pairwise(moved)
    )
    low, rate, high = (_quantile(rates, share) for share in (0.25, 0.5, 0.75))
    if not (low > 0 and math.isfinite(high)):
        return None
    left = None if total is None else max(0.0, total - completed)
    return Estimate(
        rate=rate,
        rate_low=low,
        rate_high=high,
        left_ms=_left_ms(left, rate),
        left_ms_low=_left_ms(left, high),
        left_ms_high=_left_ms(left, low),
        confidence=_confidence(len(rates), (high - low) / rate),
        samples=len(moved),
        at_ms=at_ms,
        fresh_ms=fresh_ms,
    )


def _quantile(rates: Sequence[float], share: float) -> float:
    """Between the two that stand around that share of the sorted rates."""
    at = share * (len(rates) - 1)
    below, part = int(at), at % 1
    return rates[below] if part == 0 else rates[below] * (1 - part) + rates[below + 1] * part


def _left_ms(left: float | None, rate: float) -> int | None:
    if left is None:
        return None
    ms = 1_000 * left / rate
    return round(ms) if ms <= LEFT_MS_MAX else None


def _confidence(rates: int, spread: float) -> Confidence:
    for confidence, rates_min, spread_max in CONFIDENCES:
        if rates >= rates_min and spread <= spread_max:
            return confidence
    return "low"
