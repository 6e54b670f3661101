"""How many durable steps a second on a disk whose sync takes 5 ms, and how long does a run of one step take there?

What a run waits for is syncs then. The base is what one writer without group commit reaches on such a disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import slow_disk
from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.rows import Row, Stat
from benchmarks.workflows import ONE, chain

QUESTION = "slow_disk"
SYNC_MS = 5
NODES = 10
RUNNERS = (1, 4, 16)


def measure(bench: Bench) -> Iterator[Row]:
    """Steps by runners, with a client more than runners; then one run after the other."""
    for runners in RUNNERS:
        runs = bench.pick(40, 10) * min(runners, 4)
        yield Row(
            question=QUESTION,
            what=f"ten steps, {runners} runners",
            value=_rate(bench, runners, chain(NODES), runs, runners + 1, NODES),
            unit="steps/s",
            base="one commit at a time",
            base_value=Stat.of([1_000 / SYNC_MS]),
            base_unit="commits/s",
            series="by runners",
            x=runners,
            x_label="runners",
        )
    alone = _rate(bench, 1, ONE, bench.pick(60, 20), 1, 1)
    yield Row(question=QUESTION, what="one run of one step after the other", value=alone, unit="runs/s")


def _rate(bench: Bench, runners: int, text: str, runs: int, clients: int, steps: int) -> Stat:
    """Steps a second."""
    script = Path(slow_disk.__file__)
    with bench.folder() as folder:
        program = ("-P", str(script), str(SYNC_MS))
        with Daemon(folder, max_runners=runners, program=program) as daemon:
            payload = start_payload(daemon, daemon.workflow(text))

            def once() -> float:
                begin = time.perf_counter()
                start_runs(daemon, payload, runs, clients=clients)
                return runs * steps / (time.perf_counter() - begin)

            return bench.sample(once)
