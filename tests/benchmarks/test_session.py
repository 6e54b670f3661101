"""A run of the benchmarks: repetitions, the bound on time, and questions that fail."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest
import trio

from benchmarks.__main__ import asked_for
from benchmarks.bench import Bench, OutOfTime, bounded
from benchmarks.daemon import processor_s
from benchmarks.questions import NAMES, measure_of, text_of
from benchmarks.rows import Report, Row
from benchmarks.session import measure
from tests.benchmarks.samples import row


def test_a_sample_has_at_least_five_repetitions_and_its_warm_up_does_not_count() -> None:
    values = iter([1_000.0, 1, 2, 3, 4, 5])
    found = Bench().sample(lambda: next(values))
    assert (found.median, found.count) == (3, 5)


def test_measurements_in_turn_alternate() -> None:
    order: list[str] = []

    def take(name: str) -> float:
        order.append(name)
        return len(order)

    first, second = Bench(quick=True).in_turn(lambda: take("a"), lambda: take("b"))
    assert order == ["a", "b"] * 4
    assert (first.median, second.median) == (5, 6)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is counted in ticks")
def test_the_processor_time_of_another_process_is_as_exact_as_ones_own() -> None:
    before = time.process_time()
    seen = processor_s(os.getpid())
    assert before <= seen <= time.process_time()


def test_the_bound_ends_what_does_not_end_by_itself() -> None:
    began = time.monotonic()
    with pytest.raises(OutOfTime), bounded(0.05):
        time.sleep(30)
    assert time.monotonic() - began < 10


def test_the_bound_waits_for_the_end_of_an_event_loop() -> None:
    async def short() -> str:
        await trio.sleep(0.2)
        return "whole"

    with pytest.raises(OutOfTime), bounded(0.05):
        assert trio.run(short) == "whole"
        time.sleep(30)


def test_somebody_else_s_alarm_goes_on_after_the_bound() -> None:
    before = signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, 1_000)
    try:
        with bounded(10):
            pass
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 900 < left <= 1_000
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_a_question_that_fails_leaves_its_rows_and_the_others() -> None:
    def broken(_: Bench) -> Iterator[Row]:
        yield row("before")
        raise ValueError("as it happens")

    def sound(_: Bench) -> Iterator[Row]:
        yield row("after")

    found = measure([("broken", broken), ("sound", sound)], Bench(quick=True), minutes=1)
    assert [r.what for r in found.rows] == ["before", "after"]
    assert [(m.name, m.why) for m in found.missing] == [("broken", "failed: ValueError: as it happens")]


def test_what_the_time_does_not_reach_is_reported_as_missing() -> None:
    def endless(_: Bench) -> Iterator[Row]:
        yield row("first")
        time.sleep(30)

    def never(_: Bench) -> Iterator[Row]:
        raise AssertionError("it was begun")

    found = measure([("endless", endless), ("never", never)], Bench(quick=True), minutes=0.1 / 60)
    assert [r.what for r in found.rows] == ["first"]
    assert [m.name for m in found.missing] == ["endless", "never"]
    assert "cut off after" in found.missing[0].why
    assert "not begun" in found.missing[1].why


def test_against_a_report_only_its_questions_are_asked_unless_others_are_named() -> None:
    known = Report(machine={}, rows=[row(question="limits")])
    assert asked_for([], known) == ["limits"]
    assert asked_for(["recovery"], known) == ["recovery"]
    assert asked_for([], None) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_question_is_asked_in_words_and_can_be_measured(name: str) -> None:
    assert text_of(name).endswith("?")
    assert callable(measure_of(name))
