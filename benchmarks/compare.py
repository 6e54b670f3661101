"""What moved between two reports, told from what the machine did.

A row with a base is compared by its ratio to the base, since machines and their load differ; a row without one by its
value. It has moved when the medians differ by more than the bound below and the quartile ranges of both lie apart.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from benchmarks.rows import MACHINE, Report, Row, Stat, number

MOVED_TIMES = 1.25  # less is noise on a machine with two cores

Verdict = Literal["better", "worse", "as before"]


class Change(NamedTuple):
    """`times`: how many times the former value; `by_ratio`: of the ratios to the base."""

    row: Row
    before: float
    after: float
    times: float
    by_ratio: bool
    verdict: Verdict


def changes(before: Report, after: Report) -> list[Change]:
    """Every row that both reports have, the largest change first. What the machine does alone is no row of ours."""
    known = {row.key: row for row in before.rows if row.engine != MACHINE}
    found = [_change(known[row.key], row) for row in after.rows if row.key in known]
    found = [change for change in found if change.before and change.after]
    return sorted(found, key=lambda change: -max(change.times, 1 / change.times))


def moved(before: Report, after: Report) -> str:
    """The comparison as Markdown: what moved, what did not, and what only one report has."""
    found = changes(before, after)
    lines = ["## What moved", ""]
    if before.quick != after.quick:
        lines += ["**Note:** one of the reports is a quick look and the other is not.", ""]
    lines += [f"**Note on the earlier report:** {note}." for note in before.notes]
    differing = {
        name: (value, after.machine.get(name, "")) for name, value in before.machine.items() if name in FACTS
    }
    lines += [
        f"**Note:** {name} was {old}, now {new}." for name, (old, new) in differing.items() if old != new
    ]
    shown = [change for change in found if change.verdict != "as before"]
    if shown:
        lines += [
            "| question | what | before | after | times | verdict |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        lines += [_line(change) for change in shown]
    lines += [
        "",
        f"{len(found) - len(shown)} of {len(found)} rows are as before: within {MOVED_TIMES:g} times, or within "
        "their spread.",
    ]
    only = _only(before, after)
    return "\n".join([*lines, *only]) + "\n"


FACTS = ("processor", "cores", "file system", "python", "sqlite")


def _change(old: Row, new: Row) -> Change:
    old_ratio, new_ratio = old.ratio, new.ratio
    by_ratio = old_ratio is not None and new_ratio is not None
    before = old_ratio if by_ratio and old_ratio is not None else old.value.median
    after = new_ratio if by_ratio and new_ratio is not None else new.value.median
    times = after / before if before else 0.0
    verdict: Verdict = "as before"
    if (
        times
        and max(times, 1 / times) > MOVED_TIMES
        and _apart(_spread(old, by_ratio), _spread(new, by_ratio))
    ):
        verdict = "better" if (times > 1) == (new.better == "more") else "worse"
    return Change(new, before, after, times, by_ratio, verdict)


def _spread(row: Row, by_ratio: bool) -> Stat:
    """The row's quartiles, divided by the base's median where ratios are compared."""
    if not by_ratio or row.base_value is None:
        return row.value
    base = row.base_value.median
    value = row.value
    return Stat(median=value.median / base, low=value.low / base, high=value.high / base, count=value.count)


def _apart(one: Stat, other: Stat) -> bool:
    return one.high < other.low or other.high < one.low


def _line(change: Change) -> str:
    row = change.row
    unit = f"× {row.base}" if change.by_ratio else row.unit
    return (
        f"| {row.question} | {row.what} | {number(change.before)} {unit} | {number(change.after)} {unit} "
        f"| {number(change.times)} | {change.verdict} |"
    )


def _only(before: Report, after: Report) -> list[str]:
    old, new = {row.key for row in before.rows}, {row.key for row in after.rows}
    texts = []
    for name, keys in (("the earlier", old - new), ("the later", new - old)):
        if keys:
            rows = ", ".join(f"{question}/{what}" for question, what, _ in sorted(keys))
            texts.append(f"\nOnly in {name} report: {rows}.")
    return texts
