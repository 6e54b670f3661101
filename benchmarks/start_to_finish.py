"""How long does a one-node compute workflow take from start to finish, on a warm daemon, in a process of its own?

Baseline: fork and wait of a process of the benchmark's own size, the least that isolation costs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from benchmarks.harness import Daemon, Row, Stat, scratch

WORKFLOW = """
from pwf import Workflow
flow = Workflow("one")

@flow.compute
def only(ctx):
    return {"ok": True}
"""

WARM_UP = 20


def run(quick: bool) -> Iterator[Row]:
    """One row for the median, one for the 99th percentile."""
    count = 100 if quick else 500
    with scratch() as folder, Daemon(folder) as daemon, daemon.client() as client:
        path = daemon.workflow(WORKFLOW)
        times = []
        for index in range(WARM_UP + count):
            begin = time.perf_counter()
            started = client.start(path, None)
            client.wait(started.run_id)
            if index >= WARM_UP:
                times.append((time.perf_counter() - begin) * 1e3)
        forks = [_fork_ms() for _ in range(count)]
    base = Stat.of(forks)
    yield Row(
        question="start to finish, one compute node",
        what=f"median of {count}",
        value=Stat.of(times),
        unit="ms",
        baseline="fork and wait",
        baseline_value=base,
        target="≤ 15 ms",
    )
    yield Row(
        question="start to finish, one compute node",
        what=f"99th percentile of {count}",
        value=Stat.of([sorted(times)[int(len(times) * 0.99)]]),
        unit="ms",
        baseline="fork and wait, 99th",
        baseline_value=Stat.of([sorted(forks)[int(len(forks) * 0.99)]]),
    )


def _fork_ms() -> float:
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return (time.perf_counter() - begin) * 1e3
