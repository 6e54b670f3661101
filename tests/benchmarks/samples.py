"""Rows and reports for the tests of the benchmarks."""

from __future__ import annotations

from typing import Any

from benchmarks.rows import Report, Row, Stat


def stat(median: float, spread: float = 0.0) -> Stat:
    """A median with quartiles at the same distance."""
    return Stat(median=median, low=median - spread, high=median + spread, count=5)


def row(what: str = "4 runners", value: float = 100, spread: float = 0.0, **fields: Any) -> Row:
    """A row of the question about durable steps."""
    wanted = {"question": "durable_steps", "unit": "steps/s", "value": stat(value, spread), **fields}
    return Row(what=what, **wanted)


def report(*rows: Row, **fields: Any) -> Report:
    """A report from some machine."""
    facts = {"processor": "a processor", "cores": "2", "python": "3.11", "sqlite": "3.50"}
    return Report(machine=facts, rows=list(rows), **fields)
