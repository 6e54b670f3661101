"""Plots are well-formed SVG, say what they show, and put values where they belong."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.plot import draw_all
from benchmarks.rows import Report, Row
from benchmarks.svg import Scale
from tests.benchmarks.samples import report, row, stat

SVG = "{http://www.w3.org/2000/svg}"


def texts(path: Path) -> str:
    tree = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    return "\n".join(element.text or "" for element in tree.iter(f"{SVG}text"))


def drawn(wanted: Report, folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in draw_all(wanted, folder)}


def along(runners: int, value: float, **fields: Any) -> Row:
    return row(f"{runners} runners", value, 5, series="by runners", x=runners, x_label="runners", **fields)


def test_rows_along_an_axis_become_lines_with_question_unit_axis_and_target(tmp_path: Path) -> None:
    rows = [along(1, 100), along(4, 400, target=450), along(16, 700)]
    found = drawn(report(*rows), tmp_path)
    assert list(found) == ["durable_steps-steps-s-by-runners"]
    said = texts(found["durable_steps-steps-s-by-runners"])
    for text in (
        "How many durable steps a second",
        "steps/s",
        "runners",
        "by runners",
        "400",
        "target 450",
        "cores 2",
    ):
        assert text in said


def test_more_is_drawn_higher(tmp_path: Path) -> None:
    rows = [along(1, 100), along(4, 400)]
    (path,) = drawn(report(*rows), tmp_path).values()
    tree = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    low, high = (float(dot.attrib["cy"]) for dot in tree.iter(f"{SVG}circle"))
    assert high < low


def test_a_base_of_the_same_unit_is_drawn_as_a_line_of_its_own(tmp_path: Path) -> None:
    rows = [
        along(1, 100, base="bare SQLite", base_value=stat(50)),
        along(4, 400, base="bare SQLite", base_value=stat(60)),
    ]
    (path,) = drawn(report(*rows), tmp_path).values()
    assert "base: bare SQLite" in texts(path)


def test_rows_without_an_axis_become_bars_in_proportion(tmp_path: Path) -> None:
    (path,) = drawn(report(row("small", 10), row("large", 20)), tmp_path).values()
    tree = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    _paper, small, large = (float(bar.attrib["width"].rstrip("%")) for bar in tree.iter(f"{SVG}rect"))
    assert large == pytest.approx(2 * small, rel=0.01)


def test_engines_of_one_subject_get_a_plot_of_their_own(tmp_path: Path) -> None:
    rows = [row(subject="ten steps"), row("8 callers", 5, subject="ten steps", engine="Other 1")]
    said = texts(drawn(report(*rows), tmp_path)["side-by-side-ten-steps"])
    assert "pwf: 4 runners" in said
    assert "Other 1: 8 callers" in said


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    for path in drawn(
        report(row('<script>"&', subject="a", engine="b"), row(subject="a")), tmp_path
    ).values():
        ElementTree.fromstring(path.read_text(encoding="utf-8"))


def test_a_scale_is_logarithmic_only_where_values_lie_far_apart() -> None:
    near, far = Scale.over([10, 20], 0, 100), Scale.over([1, 1_000], 0, 100)
    assert (near.log, far.log) == (False, True)
    assert near.at(0) == 0
    assert far.at(10) - far.at(1) == pytest.approx(far.at(1_000) - far.at(100))


@pytest.mark.parametrize("values", [[0.0], [5.0], [0.001, 900_000.0], [0.0, 0.0], [100.0, 101.0]])
def test_a_scale_has_ticks_on_it_for_any_values(values: list[float]) -> None:
    scale = Scale.over(values, 0, 100)
    assert 2 <= len(scale.ticks()) <= 12
    assert all(-1e-6 <= scale.at(tick) <= 100 + 1e-6 for tick in scale.ticks())
