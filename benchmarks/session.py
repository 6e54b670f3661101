"""A run of the benchmarks: the questions in order within a bound of time, and what could not be measured.

Promises: the bound holds; a question that fails or is cut off is reported as such and the others go on; nothing that
was started is left running.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence

from benchmarks.bench import Bench, OutOfTime, bounded
from benchmarks.daemon import end_all
from benchmarks.machine import busy, machine
from benchmarks.rows import Missing, Report, Row, number

MINUTES = 25.0
MINUTES_QUICK = 1.9
MINUTES_PEERS = 12.0  # more, when peers are measured; installing them is not counted

Measure = Callable[[Bench], Iterator[Row]]


def measure(questions: Sequence[tuple[str, Measure]], bench: Bench, *, minutes: float) -> Report:
    """Measure all questions; the report says which of them are missing, and why."""
    report = Report(machine=machine(), quick=bench.quick)
    warning = busy()
    if warning is not None:
        report.notes.append(warning)
        bench.say(f"note: {warning}")
    began = time.monotonic()
    end = began + minutes * 60
    for name, question in questions:
        left = end - time.monotonic()
        why = (
            _measure_one(report, name, question, bench, left)
            if left > 0
            else f"not begun within {minutes:g} min"
        )
        if why is not None:
            report.missing.append(Missing(name=name, why=why))
            bench.say(f"  {name}: {why}")
    report.machine["took"] = f"{time.monotonic() - began:.0f} s"
    return report


def _measure_one(report: Report, name: str, question: Measure, bench: Bench, left_s: float) -> str | None:
    """Add the rows of one question; why some of them are missing."""
    bench.say(f"{name} …")
    began = time.monotonic()
    try:
        with bounded(left_s):
            for row in question(bench):
                report.rows.append(row)
                bench.say(f"  {row.engine}, {row.what}: {number(row.value.median)} {row.unit}")
    except OutOfTime:
        return f"cut off after {time.monotonic() - began:.0f} s: the time was over"
    except Exception as error:  # noqa: BLE001 - a question that fails must not take the others with it
        bench.say(traceback.format_exc())
        return f"failed: {type(error).__name__}: {str(error)[:300]}"
    finally:
        end_all()
    bench.say(f"  ({time.monotonic() - began:.1f} s)")
    return None
