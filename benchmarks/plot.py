"""Plots of a report, as SVG files: lines for what was measured along an axis, bars for the rest, engines side by side.

Every plot says its question, its unit, the machine it is from, and what its marks mean. Whiskers are quartiles.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.questions import NAMES, text_of
from benchmarks.rows import MACHINE, OURS, Report, Row, number
from benchmarks.svg import COLOURS, FAINT, INK, Drawing, Scale

WIDTH = 920
LEFT, RIGHT, TOP, BOTTOM = 80, 200, 92, 64
PLOT_HEIGHT = 300
BAR_LEFT, BAR_RIGHT, BAR_STEP = 390, 190, 30
TITLE_CHARS = 90
NAME_CHARS = 64
BASE_CHARS = 34
GREY = "#777777"
FACTS = ("processor", "cores", "python", "sqlite", "file system")


def draw_all(report: Report, folder: Path) -> list[Path]:
    """Write every plot into `folder`; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawing in drawings(report):
        path = folder / f"{name}.svg"
        path.write_text(drawing.render(), encoding="utf-8")
        written.append(path)
    return written


def drawings(report: Report) -> Iterator[tuple[str, Drawing]]:
    """File names, without their ending, and drawings."""
    foot = ", ".join(f"{name} {report.machine[name]}" for name in FACTS if name in report.machine)
    foot += "; a quick look" if report.quick else ""
    for question, rows in _groups(report.rows, lambda row: row.question).items():
        title = text_of(question) if question in NAMES else question
        for unit, of_unit in _groups(rows, lambda row: row.unit).items():
            along = [row for row in of_unit if row.x is not None]
            bars = [row for row in of_unit if row.x is None and row.engine in (OURS, MACHINE)]
            for axis, found in _groups(along, lambda row: row.x_label).items():
                yield f"{question}-{_slug(unit)}-by-{_slug(axis)}", lines(title, unit, found, foot)
            if bars:
                yield f"{question}-{_slug(unit)}", bar_chart(title, unit, bars, foot)
    compared = [row for row in report.rows if row.subject]
    for subject, rows in _groups(compared, lambda row: row.subject).items():
        if len({row.engine for row in rows}) > 1:
            yield f"side-by-side-{_slug(subject)}", bar_chart(subject, rows[0].unit, rows, foot, engines=True)


# --- lines ------------------------------------------------------------------------------------------------------


def lines(title: str, unit: str, rows: Sequence[Row], foot: str) -> Drawing:
    """Values along an axis, one line per series."""
    drawing = Drawing(WIDTH, TOP + PLOT_HEIGHT + BOTTOM, title)
    bottom, right = TOP + PLOT_HEIGHT, WIDTH - RIGHT
    across = Scale.along([row.x or 0 for row in rows], LEFT + 20, right - 30)
    based = [row.base_value.median for row in rows if _has_base(row, unit) and row.base_value is not None]
    targets = [row.target for row in rows if row.target is not None]
    up = Scale.over(
        [row.value.high for row in rows] + [row.value.low for row in rows] + based + targets, bottom, TOP
    )
    _frame(drawing, title, unit, foot, up, right)
    for x in dict.fromkeys(row.x for row in rows if row.x is not None):
        drawing.text(across.at(x), bottom + 18, number(x), anchor="middle", size=11)
    drawing.text((LEFT + right) / 2, bottom + 36, rows[0].x_label, anchor="middle")
    for colour, (series, found) in zip(
        _colours(), _groups(rows, lambda row: row.series).items(), strict=False
    ):
        _series(drawing, series, found, across, up, colour)
    if based:
        named = [row for row in rows if _has_base(row, unit)]
        points = [(across.at(row.x or 0), up.at(row.base_value.median)) for row in named if row.base_value]
        drawing.path(points, GREY)
        drawing.text(
            points[-1][0] + 10,
            points[-1][1] + 4,
            _cut(f"base: {named[-1].base}", BASE_CHARS),
            size=11,
            colour=GREY,
        )
    for row in rows:
        if row.target is not None:
            x, y = across.at(row.x or 0), up.at(row.target)
            drawing.line(x - 16, y, x + 16, y, INK, dashed=True, width=2)
            drawing.text(x - 18, y + 4, f"target {number(row.target)}", size=10, anchor="end")
    return drawing


def _series(drawing: Drawing, name: str, rows: Sequence[Row], across: Scale, up: Scale, colour: str) -> None:
    points = [(across.at(row.x or 0), up.at(row.value.median)) for row in rows]
    drawing.path(points, colour)
    for row, (x, y) in zip(rows, points, strict=True):
        drawing.line(x, up.at(row.value.low), x, up.at(row.value.high), colour, width=1.5)
        drawing.dot(x, y, colour)
        drawing.text(x, y - 9, number(row.value.median), anchor="middle", size=11, colour=colour)
    drawing.text(
        points[-1][0] + 10,
        points[-1][1] + 4,
        _cut(name or rows[0].engine, BASE_CHARS),
        colour=colour,
        bold=True,
    )


def _has_base(row: Row, unit: str) -> bool:
    return row.base_value is not None and row.base_unit in ("", unit)


# --- bars -------------------------------------------------------------------------------------------------------


def bar_chart(title: str, unit: str, rows: Sequence[Row], foot: str, *, engines: bool = False) -> Drawing:
    """A bar for each row. `engines`: name the engine, and give pwf's bar its own colour."""
    bottom, right = TOP + BAR_STEP * len(rows), WIDTH - BAR_RIGHT
    drawing = Drawing(WIDTH, bottom + BOTTOM, title)
    along = Scale.over(
        [row.value.median for row in rows] + [row.target for row in rows if row.target is not None],
        BAR_LEFT,
        right,
    )
    better = "more is better" if rows[0].better == "more" else "less is better"
    scale = ", logarithmic" if along.log else ""
    _head(drawing, title, f"{unit}{scale} ({better}); whiskers are quartiles" + _said(rows), foot)
    for tick in along.ticks():
        drawing.line(along.at(tick), TOP, along.at(tick), bottom, FAINT)
        drawing.text(along.at(tick), bottom + 16, number(tick), anchor="middle", size=11)
    for index, row in enumerate(rows):
        _bar(drawing, row, along, TOP + BAR_STEP * index, engines=engines)
    return drawing


def _bar(drawing: Drawing, row: Row, along: Scale, top: float, *, engines: bool) -> None:
    name = f"{row.engine}: {row.what}" if engines and row.engine != OURS else row.what
    name = f"{OURS}: {row.what}" if engines and row.engine == OURS else name
    middle = top + BAR_STEP / 2
    colour = COLOURS[0] if row.engine in (OURS, MACHINE) else COLOURS[4]
    drawing.text(BAR_LEFT - 8, middle + 4, _cut(name, NAME_CHARS), anchor="end", size=11)
    drawing.bar(BAR_LEFT, top + 5, along.at(row.value.median) - BAR_LEFT, BAR_STEP - 10, colour)
    drawing.line(
        along.at(row.value.low), middle, min(along.at(row.value.high), along.end), middle, INK, width=1.5
    )
    label = f"{number(row.value.median)} {row.unit}"
    if row.ratio is not None and not engines:
        label += f", {number(row.ratio)} × base"
    drawing.text(along.end + 10, middle + 4, label, size=11)
    if row.target is not None:
        drawing.line(
            along.at(row.target), top + 2, along.at(row.target), top + BAR_STEP - 2, INK, dashed=True, width=2
        )


def _said(rows: Iterable[Row]) -> str:
    return "; dashed: target" if any(row.target is not None for row in rows) else ""


# --- shared -----------------------------------------------------------------------------------------------------


def _frame(drawing: Drawing, title: str, unit: str, foot: str, up: Scale, right: float) -> None:
    scale = ", logarithmic" if up.log else ""
    _head(drawing, title, f"{unit}{scale}; whiskers are quartiles", foot)
    for tick in up.ticks():
        drawing.line(LEFT, up.at(tick), right, up.at(tick), FAINT)
        drawing.text(LEFT - 8, up.at(tick) + 4, number(tick), anchor="end", size=11)


def _head(drawing: Drawing, title: str, under: str, foot: str) -> None:
    for index, line in enumerate(textwrap.wrap(title, TITLE_CHARS)[:2]):
        drawing.text(16, 26 + 20 * index, line, size=15, bold=True)
    drawing.text(16, 68, under, colour=GREY)
    drawing.text(16, drawing.height - 10, foot, size=10, colour=GREY)


def _groups(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _colours() -> Iterator[str]:
    while True:
        yield from COLOURS


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "value"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
