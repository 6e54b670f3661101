"""Durations, retry, and the time that a wait answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pwf import Retry, days, hours, minutes, seconds
from pwf.errors import InvalidArgument
from pwf.workflow.timing import DURATION_MAX, Due, due_of, to_ms


def test_units() -> None:
    assert (seconds(1.5), minutes(2), hours(1), days(7)) == (
        timedelta(seconds=1.5),
        timedelta(seconds=120),
        timedelta(seconds=3600),
        timedelta(days=7),
    )


@settings(deadline=None)
@given(st.timedeltas(min_value=timedelta(microseconds=1), max_value=DURATION_MAX))
def test_a_duration_is_never_rounded_down(duration: timedelta) -> None:
    ms = to_ms(duration, "it")
    assert 0 <= ms * 1000 - duration // timedelta(microseconds=1) < 1000


@pytest.mark.parametrize("wrong", [5, 1.5, "5s", None, timedelta(0), timedelta(seconds=-1)])
def test_what_is_no_duration_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="it "):
        to_ms(wrong, "it")


@pytest.mark.parametrize("long", [DURATION_MAX + timedelta(microseconds=1), timedelta.max])
def test_a_duration_that_no_clock_can_hold_is_refused(long: timedelta) -> None:
    with pytest.raises(InvalidArgument, match="it must be at most 3,660,000 days"):
        to_ms(long, "it")


def test_retry_as_data() -> None:
    spec = Retry(4, backoff=seconds(2), factor=3, maximum=seconds(30)).spec()
    assert [spec.delay_ms(n) for n in (1, 2, 3, 4)] == [2_000, 6_000, 18_000, 30_000]
    assert Retry(1).spec().delay_ms(1) == 1_000
    assert Retry(1, backoff=seconds(0)).spec().delay_ms(1) == 0


def test_a_wait_is_relative_or_absolute() -> None:
    assert due_of(seconds(2), "nap") == Due(delay_ms=2_000)
    assert due_of(timedelta(seconds=-5), "nap") == Due(delay_ms=0)
    when = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert due_of(when, "nap") == Due(wall_ms=1_893_492_000_000)


def test_a_wait_until_a_time_that_a_change_of_the_clock_leaves_out_is_refused() -> None:
    zone = ZoneInfo("Europe/Berlin")
    with pytest.raises(InvalidArgument, match="which does not exist") as caught:
        due_of(datetime(2026, 3, 29, 2, 30, tzinfo=zone), "nap")
    assert (
        caught.value.hint
        == "return 2026-03-29T01:30+01:00 (before the change) or 2026-03-29T03:30+02:00 (after it)"
    )
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=zone)
    assert due_of(twice, "nap") == Due(wall_ms=1_792_888_200_000)
    assert due_of(twice.replace(fold=1), "nap") == Due(wall_ms=1_792_891_800_000)


def test_a_wait_that_no_clock_can_hold_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"wait node 'nap' returned .* at most 3,660,000 days"):
        due_of(timedelta.max, "nap")


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-9, minutes=-30))])
def test_any_aware_time_is_a_time_in_milliseconds(zone: timezone) -> None:
    for year in (1, 1969, 2030, 9999):
        due = due_of(datetime(year, 6, 1, tzinfo=zone), "nap")
        assert due.delay_ms is None
        assert isinstance(due.wall_ms, int)


@pytest.mark.parametrize("wrong", [5, None, "tomorrow", datetime(2030, 1, 1)])
def test_what_is_no_time_is_named(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="wait node 'nap' returned") as caught:
        due_of(wrong, "nap")
    assert caught.value.hint
