"""What does a step cost whose output has 100 B, 10 KB, 1 MB, 10 MB?

Compute nodes that build a text of that size, a new one each, so that nothing is shared by its content. The base is
what writing it durably costs at least: one commit of bare SQLite with a value of that size.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.questions.limits import commits
from benchmarks.rows import Row, Stat
from benchmarks.workflows import chain

QUESTION = "value_size"
SIZES = {
    "100 B": 100,
    "1 KB": 1_000,
    "10 KB": 10_000,
    "100 KB": 100_000,
    "1 MB": 1_000_000,
    "10 MB": 10_000_000,
}
QUICK = ("100 B", "10 KB", "1 MB")
NODES = 10
NODES_LARGE = 3
LARGE = 1_000_000
BODY = "return f'{{ctx.input[0]}}-{i}-'.ljust(ctx.input[1], 'x')"


def measure(bench: Bench) -> Iterator[Row]:
    """Milliseconds a step, for each size."""
    for name in QUICK if bench.quick else SIZES:
        size = SIZES[name]
        nodes = NODES_LARGE if size >= LARGE else NODES
        value, base = _step_ms(bench, size, nodes)
        yield Row(
            question=QUESTION,
            what=f"a step, {name}",
            value=value,
            unit="ms",
            better="less",
            base="SQLite, a commit of that size",
            base_value=base,
            series="output of a step",
            x=size,
            x_label="bytes",
            note=f"runs of {nodes} steps; start and end of the run are part of it",
        )


def _step_ms(bench: Bench, size: int, nodes: int) -> list[Stat]:
    tags = itertools.count()  # no two runs have the same values: equal ones are stored once
    with bench.folder() as folder, Daemon(folder) as daemon:
        path = daemon.workflow(chain(nodes, BODY))

        def step() -> float:
            payload = start_payload(daemon, path, [f"run {next(tags)}", size])
            begin = time.perf_counter()
            start_runs(daemon, payload, 1, clients=1)
            return (time.perf_counter() - begin) * 1_000 / nodes

        return bench.in_turn(step, lambda: 1_000 / commits(folder, seconds=0.2, size=size))
