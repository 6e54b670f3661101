"""What does it cost a step that it stands in an included workflow?

Runs of ten compute nodes in a row, and of the same ten in an included workflow: entering it is an eleventh step, and
counts as one. Both are measured in turn, by the same daemon.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.rows import Row
from benchmarks.workflows import chain, within

QUESTION = "included"
NODES = 10
RUNNERS = 4
MORE_PERCENT_MAX = 10.0


def measure(bench: Bench) -> Iterator[Row]:
    """How much longer a step takes, in percent of one that is not included."""
    with bench.folder() as folder, Daemon(folder, max_runners=RUNNERS) as daemon:
        alone = start_payload(daemon, daemon.workflow(chain(NODES)))
        inside = start_payload(daemon, daemon.workflow(within(chain(NODES))))
        runs = bench.pick(60, 30) * RUNNERS

        def seconds(payload: msgspec.Raw, steps: int) -> float:
            begin = time.perf_counter()
            start_runs(daemon, payload, runs, clients=RUNNERS + 1)
            return (time.perf_counter() - begin) / (runs * steps)

        (more,) = bench.in_turn(lambda: (seconds(inside, NODES + 1) / seconds(alone, NODES) - 1) * 100)
    yield Row(
        question=QUESTION,
        what="a step in an included workflow",
        value=more,
        unit="% more time",
        better="less",
        base="the same steps in a row",
        target=MORE_PERCENT_MAX,
    )
