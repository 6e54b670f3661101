"""What a measurement comes to: rows of numbers with their spread, and the report that holds them.

A row says which question it answers, for which engine, and beside which base of the same run it stands. Rows of
several engines with one `subject` are compared with each other. The JSON of a report is what `--compare` reads.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

OURS = "pwf"
MACHINE = "machine"  # the engine of rows in which nothing of ours runs


class Stat(msgspec.Struct, frozen=True, kw_only=True):
    """Median and quartiles of repetitions."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Stat:
        """Quartiles by the inclusive method; of a single value, the value itself. At least one value."""
        if len(values) == 1:
            return cls(median=values[0], low=values[0], high=values[0], count=1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median=median, low=low, high=high, count=len(values))

    def __str__(self) -> str:
        if self.count == 1:
            return number(self.median)
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement.

    `base` names what of the same run and machine it is to be read against, `base_value` in `base_unit` (the row's
    own unit where that is empty). `target` is a bound in `unit`, from below where more is better. `series` and `x`
    place the row in a plot; rows without `x` become bars. `durability` states what an engine promises.
    """

    question: str
    what: str
    value: Stat
    unit: str
    better: Literal["more", "less"] = "more"
    engine: str = OURS
    base: str = ""
    base_value: Stat | None = None
    base_unit: str = ""
    target: float | None = None
    subject: str = ""
    series: str = ""
    x: float | None = None
    x_label: str = ""
    durability: str = ""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the base; what stays comparable when the machine is slow today."""
        if self.base_value is None or not self.base_value.median:
            return None
        return self.value.median / self.base_value.median

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.value.median >= self.target if self.better == "more" else self.value.median <= self.target

    @property
    def key(self) -> tuple[str, str, str]:
        """What names the same row in another report."""
        return self.question, self.what, self.engine


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A question or a peer without numbers, and why."""

    name: str
    why: str


class Report(msgspec.Struct, kw_only=True):
    """All rows of a run with what they were measured on."""

    machine: dict[str, str]
    quick: bool = False
    rows: list[Row] = []
    missing: list[Missing] = []
    notes: list[str] = []


def number(value: float) -> str:
    """Three significant digits, thousands separated."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def save(report: msgspec.Struct, path: Path) -> None:
    """Write a report as indented JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def load(path: Path) -> Report:
    """Read a report; `SystemExit` with one line when the file is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.MsgspecError) as error:
        raise SystemExit(f"{path} is not a report of python -m benchmarks: {error}") from error
