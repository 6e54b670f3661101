"""What pairs of measurements say about a row: the median of their ratios, how sure that is, and a verdict.

A ratio is above 1 where the later version is better, whatever the row's unit. The two values of a pair were taken right
after each other, so what the machine did to one of them it did to the other, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from math import comb
from typing import Literal, NamedTuple

import msgspec

from benchmarks.rows import MACHINE, Report, Row, number

WITHIN = 0.05  # of the former value: no less than this is called a change
SURE = 0.99  # how sure the interval is, at least, since many rows are judged at once; that takes eight pairs

Verdict = Literal["within 5 %", "better", "moved", "unclear", "too few pairs"]
Pair = tuple[Report, Report]  # of one question: before, after


class Interval(NamedTuple):
    """Where the true median lies, with the probability `sure`."""

    low: float
    high: float
    sure: float


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A row in all pairs. `before` and `after` are in `unit`, in the order of the pairs."""

    question: str
    what: str
    unit: str
    better: Literal["more", "less"]
    before: list[float]
    after: list[float]
    ratio: float
    low: float
    high: float
    sure: float
    verdict: Verdict


def before_first(pair: int) -> bool:
    """Whether the former version is measured first in this pair: A B, B A, A B, so that drift cancels."""
    return pair % 2 == 0


def compared(pairs: Iterable[Pair]) -> list[Compared]:
    """Every row that both versions have, as measured in order. What the machine does alone is no row of ours."""
    found: dict[tuple[str, str, str], tuple[Row, list[float], list[float]]] = {}
    for before, after in pairs:
        known = {row.key: row.value.median for row in before.rows if row.engine != MACHINE}
        for row in after.rows:
            if known.get(row.key) and row.value.median:
                _, olds, news = found.setdefault(row.key, (row, [], []))
                olds.append(known[row.key])
                news.append(row.value.median)
    return [_compared(row, olds, news) for row, olds, news in found.values()]


def _compared(row: Row, before: list[float], after: list[float]) -> Compared:
    ratios = [
        new / old if row.better == "more" else old / new for old, new in zip(before, after, strict=True)
    ]
    ratio, interval = statistics.median(ratios), interval_of(ratios)
    return Compared(
        question=row.question,
        what=row.what,
        unit=row.unit,
        better=row.better,
        before=before,
        after=after,
        ratio=ratio,
        low=interval.low,
        high=interval.high,
        sure=interval.sure,
        verdict=verdict_of(ratio, interval),
    )


def interval_of(values: Sequence[float]) -> Interval:
    """The sign test's interval for the median: the narrowest pair of ordered values that is sure enough.

    It assumes nothing of how the values are spread. Of fewer than eight values it is the whole range, and less sure.
    """
    ordered, count = sorted(values), len(values)
    best, outside = Interval(ordered[0], ordered[-1], 1 - 2 / 2**count), 1
    for rank in range(1, count // 2):
        outside += comb(count, rank)
        sure = 1 - 2 * outside / 2**count
        if sure < SURE:
            break
        best = Interval(ordered[rank], ordered[-1 - rank], sure)
    return best


def verdict_of(ratio: float, interval: Interval) -> Verdict:
    """`moved` is worse for sure. `unclear` is outside of 5 %, but as many pairs as these may show that by chance."""
    if interval.sure < SURE:
        return "too few pairs"
    if abs(ratio - 1) <= WITHIN:
        return "within 5 %"
    if interval.low > 1:
        return "better"
    return "moved" if interval.high < 1 else "unclear"


def table(rows: Sequence[Compared]) -> str:
    """A Markdown table with a line for each row."""
    lines = [
        "| question | what | before | after | ratio | 99 % interval | pairs | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        before, after = (number(statistics.median(values)) for values in (row.before, row.after))
        lines.append(
            f"| {row.question} | {row.what} | {before} {row.unit} | {after} {row.unit} | {row.ratio:.3f} "
            f"| {row.low:.3f}–{row.high:.3f} | {len(row.before)} | {row.verdict} |"
        )
    return "\n".join(lines)
