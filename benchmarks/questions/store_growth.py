"""How many bytes does the store grow by for each run, and for each step?

Runs of one and of eleven compute nodes with an output of a few bytes; pages in use before and after. A step is the
difference of both, by ten.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.rows import Row, Stat
from benchmarks.workflows import chain

QUESTION = "store_growth"
STEPS = 10


def measure(bench: Bench) -> Iterator[Row]:
    """Bytes a run of one step, and bytes a further step."""
    runs = bench.pick(200, 50)
    with bench.folder() as folder, Daemon(folder, max_runners=16) as daemon:
        one = start_payload(daemon, daemon.workflow(chain(1)))
        many = start_payload(daemon, daemon.workflow(chain(1 + STEPS)))
        small, large = bench.in_turn(partial(_grown, daemon, one, runs), partial(_grown, daemon, many, runs))
    note = f"pages in use, over {runs} runs; indexes, events, receipts and tables included"
    yield _row("a run of one step", small, note)
    yield _row("a further step", _difference(small, large), note)


def _row(what: str, value: Stat, note: str) -> Row:
    return Row(question=QUESTION, what=what, value=value, unit="bytes", better="less", note=note)


def _difference(small: Stat, large: Stat) -> Stat:
    return Stat(
        median=(large.median - small.median) / STEPS,
        low=(large.low - small.median) / STEPS,
        high=(large.high - small.median) / STEPS,
        count=large.count,
    )


def _grown(daemon: Daemon, payload: msgspec.Raw, runs: int) -> float:
    before = _used(daemon)
    start_runs(daemon, payload, runs, clients=17)
    return (_used(daemon) - before) / runs


def _used(daemon: Daemon) -> int:
    with daemon.client() as client:
        status = client.call("state.status")
        return int(status.file_bytes - status.free_bytes)
