"""A report as Markdown: the machine, a table for each question, engines side by side, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from benchmarks.rows import MACHINE, OURS, Report, Row, number


class Against(NamedTuple):
    """A target that names a peer: how many times its value pwf's must be, at least (more) or at most (less)."""

    subject: str
    ours: str  # the question whose row it is
    engine: tuple[str, ...]  # words that the engine's name holds
    what: str  # how the other's row begins
    times: float
    better: Literal["more", "less"]


_DBOS, _WAL = ("DBOS", "(SQLite)"), ("DBOS", "set to WAL")
#: From the project's goals. Peers run their steps in a process that is there, so kept processes stand beside them.
AGAINST = (
    Against("ten steps, best rate", "kept", _DBOS, "", 12, "more"),
    Against("ten steps, best rate", "kept", ("Restate",), "", 4.5, "more"),
    Against("ten steps, best rate", "kept", ("dura",), "", 1.4, "more"),
    Against("ten actions, best rate", "kept", _DBOS, "", 5, "more"),
    Against("one step, median", "kept", _DBOS, "called directly", 0.45, "less"),
    Against("one step, median", "kept", _WAL, "called directly", 0.8, "less"),
)


def markdown(report: Report) -> str:
    """The whole report."""
    parts = [_head(report)]
    for question in dict.fromkeys(row.question for row in report.rows):
        parts.append(f"## {question}\n\n" + _table([r for r in report.rows if r.question == question]))
    side = _side_by_side(report.rows)
    if side:
        head = "## Side by side\n\nEach engine at its own documented durability. Ratio: pwf's value to the other's."
        parts.append(f"{head}\n\n{side}")
    if report.missing:
        lines = [f"- **{missing.name}**: {missing.why}" for missing in report.missing]
        parts.append("## Not measured\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _head(report: Report) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    kind = "Quick look: fewer repetitions and smaller sizes. " if report.quick else ""
    notes = "".join(f"\n\n**Note:** {note}." for note in report.notes)
    return f"# Measurements\n\n{facts}.\n\n{kind}Medians, with quartiles in brackets.{notes}"


def _table(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        base = ""
        if row.base_value is not None:
            base = f"{row.base}: {row.base_value} {row.base_unit or row.unit}"
        what = row.what if row.engine in (OURS, MACHINE) else f"{row.engine}: {row.what}"
        lines.append((what, f"{row.value} {row.unit}", base, _times(row.ratio), _target(row), _notes(row)))
    return _lines(("what", "value", "beside", "ratio", "target", "note"), lines)


def _notes(row: Row) -> str:
    return "; ".join(text for text in (row.durability, row.note) if text)


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    bound = "≥" if row.better == "more" else "≤"
    return f"{bound} {number(row.target)}: {'met' if row.met else 'missed'}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{number(ratio)} ×"


# --- engines --------------------------------------------------------------------------------------------------


def _side_by_side(rows: Iterable[Row]) -> str:
    lines = []
    by_subject: dict[str, list[Row]] = {}
    for row in rows:
        if row.subject:
            by_subject.setdefault(row.subject, []).append(row)
    for subject, found in by_subject.items():
        ours = [row for row in found if row.engine == OURS]
        others = [row for row in found if row.engine != OURS]
        for other in others:
            lines += [_pair(subject, row, other) for row in ours or (None,)]
    header = ("subject", "pwf", "its value", "engine", "value", "ratio", "target", "the engine's durability")
    return _lines(header, lines) if lines else ""


def _pair(subject: str, ours: Row | None, other: Row) -> tuple[str, ...]:
    name = f"{other.engine}: {other.what}"
    theirs = f"{other.value} {other.unit}"
    if ours is None or not other.value.median:
        return subject, "not measured", "", name, theirs, "", "", other.durability
    ratio = ours.value.median / other.value.median
    goals = list(_goals(ours, other, ratio))
    mine = f"{ours.value} {ours.unit}"
    what = f"{ours.question}: {ours.what}"
    return subject, what, mine, name, theirs, _times(ratio), "; ".join(goals), other.durability


def _goals(ours: Row, other: Row, ratio: float) -> Iterator[str]:
    for goal in AGAINST:
        named = all(word in other.engine for word in goal.engine) and other.what.startswith(goal.what)
        if goal.subject == ours.subject and goal.ours == ours.question and named:
            met = ratio >= goal.times if goal.better == "more" else ratio <= goal.times
            bound = "≥" if goal.better == "more" else "≤"
            yield f"{bound} {number(goal.times)} ×: {'met' if met else 'missed'}"


def _lines(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table without the columns that are empty in every row."""
    kept = [list(row) for row in rows]
    used = [i for i in range(len(header)) if any(row[i] for row in kept)]
    text = ["| " + " | ".join(header[i] for i in used) + " |", "|" + " --- |" * len(used)]
    text += ["| " + " | ".join(row[i].replace("|", "\\|") for i in used) + " |" for row in kept]
    return "\n".join(text)
