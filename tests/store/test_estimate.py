"""Rate and time left: on recorded samples, and what holds for any."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwf.protocol.progress import Progress
from pwf.store.estimate import FRESH_MS_MIN, SAMPLES_MAX, Sample, estimate, with_sample

STEADY = [(s * 1_000, s * 4.0) for s in range(12)]
#: Files that a backup copied, as its own lines said it every two seconds: many small ones, then a large one.
UNEVEN = [
    (0, 0),
    (2_000, 41),
    (4_000, 77),
    (6_000, 90),
    (8_000, 138),
    (10_000, 145),
    (12_000, 171),
    (14_000, 230),
]
#: A test suite that reports each finished module, some a minute long.
LEAPS = [
    (0, 0),
    (1_000, 0),
    (2_000, 25),
    (3_000, 25),
    (4_000, 50),
    (5_000, 50),
    (6_000, 75),
    (7_000, 75),
    (8_000, 100),
]

samples = st.lists(
    st.tuples(st.integers(0, 2**53), st.floats(0, allow_nan=False, allow_infinity=False)), max_size=60
)
totals = st.none() | st.floats(0, allow_nan=False, allow_infinity=False)


def kept_of(given_: list[Sample]) -> tuple[Sample, ...]:
    kept: tuple[Sample, ...] = ()
    for sample in given_:
        kept = with_sample(kept, sample)
    return kept


def test_a_steady_rate_is_told_exactly_and_surely() -> None:
    found = estimate(STEADY, 100)
    assert found is not None
    assert (found.rate, found.rate_low, found.rate_high, found.confidence) == (4, 4, 4, "high")
    assert (found.left_ms, found.left_ms_low, found.left_ms_high) == (14_000, 14_000, 14_000)
    assert found.at_ms == 11_000


def test_an_uneven_rate_is_told_with_its_spread_and_less_surely() -> None:
    found = estimate(UNEVEN, 500)
    assert found is not None
    assert (found.rate_low, found.rate, found.rate_high) == (9.75, 18, 22.25)
    assert found.confidence == "medium"
    assert found.left_ms_low == round(270_000 / 22.25)
    assert found.left_ms_high == round(270_000 / 9.75)


def test_what_moves_in_leaps_has_a_rate() -> None:
    found = estimate(LEAPS, 200)
    assert found is not None
    assert (found.rate, found.left_ms, found.samples) == (12.5, 8_000, 5)


@pytest.mark.parametrize("few", [[], STEADY[:1], STEADY[:3], [(n, float(n)) for n in range(40)]])
def test_nothing_is_made_up_of_too_little(few: list[Sample]) -> None:
    assert estimate(few, 100) is None


def test_what_stands_still_has_no_time_left() -> None:
    assert estimate([*STEADY, (11_000 + FRESH_MS_MIN, 44.0)], 100) is not None
    assert estimate([*STEADY, (11_001 + FRESH_MS_MIN, 44.0)], 100) is None


def test_without_a_total_there_is_a_rate_alone_and_at_the_total_nothing_is_left() -> None:
    unknown, done = estimate(STEADY, None), estimate(STEADY, 30)
    assert unknown is not None
    assert (unknown.rate, unknown.left_ms, unknown.left_ms_low) == (4, None, None)
    assert done is not None
    assert done.left_ms == 0


def test_samples_that_come_fast_are_thinned_and_the_newest_is_always_there() -> None:
    kept = kept_of([(n * 50, float(n)) for n in range(2_000)])
    assert len(kept) == SAMPLES_MAX
    assert kept[-1] == (1_999 * 50, 1_999.0)
    assert all(later[0] - earlier[0] >= 1_000 for earlier, later in pairwise(kept[:-1]))
    found = estimate(kept, 4_000)
    assert found is not None
    assert found.rate == pytest.approx(20)


@pytest.mark.parametrize("back", [(10_999, 50.0), (12_000, 43.0)])
def test_a_clock_or_a_count_that_goes_back_begins_anew(back: Sample) -> None:
    assert with_sample(STEADY, back) == (back,)


@given(samples, totals)
def test_any_samples_give_an_estimate_in_order_or_none(given_: list[Sample], total: float | None) -> None:
    kept = kept_of(given_)
    assert len(kept) <= SAMPLES_MAX
    for those in (kept, given_):
        found = estimate(those, total)
        if found is None:
            continue
        assert 0 < found.rate_low <= found.rate * (1 + 1e-9) <= found.rate_high * (1 + 1e-8)
        assert math.isfinite(found.rate_high)
        lefts = [found.left_ms_low, found.left_ms, found.left_ms_high]
        known = [left for left in lefts if left is not None]
        assert known == sorted(known)
        assert all(left >= 0 for left in known)
        assert (total is not None) or not known


@given(
    st.lists(st.tuples(st.integers(1_000, 60_000), st.integers(1, 500)), min_size=4, max_size=30),
    st.integers(0, 10**9),
)
def test_when_it_was_measured_makes_no_difference(steps: list[tuple[int, int]], later: int) -> None:
    at, done, track = 0, 0, []
    for gap, gain in steps:
        at, done = at + gap, done + gain
        track.append((at, float(done)))
    first, second = estimate(track, 10**6), estimate([(at + later, done) for at, done in track], 10**6)
    assert first is not None
    assert second is not None
    assert (first.rate, first.left_ms, first.confidence) == (second.rate, second.left_ms, second.confidence)


@pytest.mark.parametrize("odd", [-1, 2**53 + 2, int("9" * 400)])
def test_progress_has_no_amount_that_can_not_be_reckoned_with(odd: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"completed": odd}), type=Progress)
