"""What moved between two reports: by ratio where there is a base, beyond noise, in the right direction."""

from __future__ import annotations

import msgspec

from benchmarks.compare import changes, moved
from tests.benchmarks.samples import report, row, stat


def verdicts(before: float, after: float, better: str = "more", spread: float = 1.0) -> list[str]:
    old, new = (report(row(value=value, spread=spread, better=better)) for value in (before, after))
    return [change.verdict for change in changes(old, new)]


def test_a_larger_rate_is_better_and_a_smaller_one_worse() -> None:
    assert verdicts(100, 200) == ["better"]
    assert verdicts(200, 100) == ["worse"]


def test_a_larger_latency_is_worse_and_a_smaller_one_better() -> None:
    assert verdicts(100, 200, better="less") == ["worse"]
    assert verdicts(200, 100, better="less") == ["better"]


def test_a_small_difference_is_none() -> None:
    assert verdicts(100, 120) == ["as before"]


def test_a_difference_within_the_spread_is_none() -> None:
    assert verdicts(100, 200, spread=60) == ["as before"]


def test_a_slower_machine_is_no_slower_pwf() -> None:
    old = report(row(value=1_000, base="bare", base_value=stat(10_000)))
    new = report(row(value=100, base="bare", base_value=stat(1_000)))
    assert [change.verdict for change in changes(old, new)] == ["as before"]


def test_a_ratio_that_falls_is_told_although_the_value_rose() -> None:
    old = report(row(value=1_000, base="bare", base_value=stat(1_000)))
    new = report(row(value=2_000, base="bare", base_value=stat(10_000)))
    (change,) = changes(old, new)
    assert (change.before, change.after, change.verdict) == (1.0, 0.2, "worse")
    assert "| 1 × bare | 0.2 × bare | 0.2 | worse |" in moved(old, new)


def test_the_largest_change_comes_first() -> None:
    old = report(row("a"), row("b"), row("c"))
    new = report(row("a", 150), row("b", 10), row("c", 300))
    assert [change.row.what for change in changes(old, new)] == ["b", "c", "a"]


def test_rows_of_one_report_only_are_named() -> None:
    text = moved(report(row("a"), row("gone")), report(row("a"), row("new")))
    assert "Only in the earlier report: durable_steps/gone." in text
    assert "Only in the later report: durable_steps/new." in text
    assert "1 of 1 rows are as before" in text


def test_another_machine_and_a_quick_look_are_noted() -> None:
    old, new = report(row()), report(row(), quick=True)
    new.machine["cores"] = "8"
    text = moved(old, new)
    assert "cores was 2, now 8" in text
    assert "one of the reports is a quick look" in text


def test_a_peer_is_compared_with_itself() -> None:
    ours, theirs = row(value=100), msgspec.structs.replace(row(value=10), engine="Other 1")
    assert {
        change.row.engine: change.times for change in changes(report(ours, theirs), report(ours, theirs))
    } == {
        "pwf": 1.0,
        "Other 1": 1.0,
    }


def test_what_the_machine_does_alone_is_not_judged() -> None:
    assert changes(report(row(engine="machine")), report(row(value=1, engine="machine"))) == []
