"""Numbers with their spread, targets, ratios, and reports on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bench import percentile
from benchmarks.rows import Stat, load, number, save
from tests.benchmarks.samples import report, row, stat


def test_a_stat_has_the_median_and_the_quartiles_of_its_values() -> None:
    assert Stat.of([5, 1, 4, 2, 3]) == Stat(median=3, low=2, high=4, count=5)


def test_a_single_value_has_no_spread() -> None:
    assert Stat.of([7.0]) == Stat(median=7, low=7, high=7, count=1)
    assert str(Stat.of([7.0])) == "7"


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = list(range(1, 101))
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([3.0], 0.99) == 3.0


def test_a_ratio_is_the_value_by_its_base() -> None:
    assert row(value=300, base="bare", base_value=stat(100)).ratio == 3
    assert row(value=300).ratio is None
    assert row(value=300, base_value=stat(0)).ratio is None


@pytest.mark.parametrize(
    ("value", "better", "met"),
    [(100, "more", True), (99, "more", False), (100, "less", True), (101, "less", False)],
)
def test_a_target_is_a_bound_in_the_better_direction(value: float, better: str, met: bool) -> None:
    assert row(value=value, better=better, target=100).met is met


def test_a_row_without_a_target_neither_meets_nor_misses_one() -> None:
    assert row().met is None


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = report(row(base="bare", base_value=stat(10), x=4.0, target=50), quick=True, notes=["loaded"])
    save(written, tmp_path / "r.json")
    assert load(tmp_path / "r.json") == written


@pytest.mark.parametrize("text", ["", "[]", '{"machine": {}, "rows": [{"what": "x"}]}'])
def test_a_file_that_is_no_report_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(SystemExit, match="is not a report"):
        load(tmp_path / "r.json")


def test_numbers_have_three_digits() -> None:
    assert [number(value) for value in (12345.6, 123.4, 12.34, 0.01234)] == [
        "12,346",
        "123",
        "12.3",
        "0.0123",
    ]
