"""How a peer's script tells what it measured: JSON lines on its standard output. Standard library only.

The script runs in the peer's own environment, where nothing of pwf is installed.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_engine = {"engine": "", "durability": ""}


def arguments() -> argparse.Namespace:
    """What the harness passes: `--quick`, `--times`, and `--with` for what the peer needs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--with", dest="needs", default="")
    parser.add_argument("--part", default="")
    signal.signal(signal.SIGTERM, _leave)  # so that servers are ended and folders removed
    return parser.parse_args()


def _leave(_number: int, _frame: object) -> None:
    raise SystemExit(1)


def engine(name: str, durability: str) -> None:
    """What follows is of this engine, at this durability."""
    _engine.update(engine=name, durability=durability)


def tell(
    question: str,
    what: str,
    values: Sequence[float],
    unit: str,
    *,
    better: str = "more",
    subject: str = "",
    note: str = "",
) -> None:
    """One row. `subject` names what it is compared with."""
    row = {"question": question, "what": what, "values": list(values), "unit": unit, "better": better}
    print(json.dumps({**row, "subject": subject, "note": note, **_engine}), flush=True)


def tell_latency(what: str, runs: Sequence[Sequence[float]], *, compared: bool = True) -> None:
    """Median and 99th percentile of one-step runs, in milliseconds; one sequence per repetition."""
    for name, share in (("median", 0.5), ("99th percentile", 0.99)):
        values = [percentile(run, share) * 1_000 for run in runs]
        subject = f"one step, {name}" if compared else ""
        tell("start_to_finish", f"{what}, {name}", values, "ms", better="less", subject=subject)


def tell_best(
    rates: dict[str, list[float]], *, steps: str = "ten steps", question: str = "durable_steps"
) -> None:
    """Rates by way of calling; the best of them is what others are compared with."""
    best = max(rates, key=lambda what: statistics.median(rates[what]))
    for what, values in rates.items():
        tell(question, what, values, "steps/s", subject=f"{steps}, best rate" if what == best else "")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder that is removed."""
    found = Path(tempfile.mkdtemp(prefix="pwf-bench-peer-"))
    try:
        yield found
    finally:
        shutil.rmtree(found, ignore_errors=True)


def until(done: Callable[[], bool], seconds: float, poll_s: float = 0.02) -> None:
    """Wait until `done()`; raises after `seconds`."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"not done within {seconds:g} s")
        time.sleep(poll_s)
