"""How many durable steps a second, for runs of ten compute nodes, at 1, 4 and 16 runners?

Baseline: one-row commits a second of bare SQLite (WAL, synchronous=FULL) in the same folder: what a loop without a
daemon, processes, fences or history would reach.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw

from benchmarks.harness import REPETITIONS, Daemon, Row, Stat, repeat, scratch

NODES = 10
WORKFLOW = (
    'from pwf import Workflow\nflow = Workflow("ten")\n'
    + "".join(f"\n@flow.compute\ndef n{i}(ctx):\n    return {i}\n" for i in range(NODES))
    + "\nflow.graph(" + ", ".join(f"n{i} >> n{i + 1}" for i in range(NODES - 1)) + ")\n"
)  # fmt: skip


def run(quick: bool) -> Iterator[Row]:
    """A row for each number of runners."""
    for runners in (1, 4, 16):
        with scratch() as folder:
            base = repeat(lambda where=folder: commits(where), 3)
            with Daemon(folder, max_runners=runners) as daemon:
                path = daemon.workflow(WORKFLOW)
                runs = 40 if quick else 60 * min(runners, 4)
                rates = [steps(daemon, path, runners, runs) for _ in range(1 + (2 if quick else REPETITIONS))]
            yield Row(
                question="durable steps, runs of 10 compute nodes",
                what=f"{runners} runners",
                value=Stat.of(rates[1:]),
                unit="steps/s",
                baseline="bare SQLite commits",
                baseline_value=base,
                target="≥ 2,000 steps/s" if runners == 4 else "",
            )


def steps(daemon: Daemon, path: str, runners: int, runs: int) -> float:
    """Steps a second while `runs` runs go through, with a client for each runner."""
    lanes = min(runners + 1, 17)

    def lane(count: int) -> None:
        with daemon.client() as client:
            for _ in range(count):
                client.wait(client.start(path, None).run_id)

    begin = time.perf_counter()
    with ThreadPoolExecutor(lanes) as pool:
        for done in [pool.submit(lane, runs // lanes + (i < runs % lanes)) for i in range(lanes)]:
            done.result()
    return runs * NODES / (time.perf_counter() - begin)


def commits(folder: Path, seconds: float = 1.0) -> float:
    """One-row transactions a second of bare SQLite."""
    path = folder / "bare.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=FULL").fetchall()
    connection.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)").fetchall()
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        connection.execute("INSERT INTO t(v) VALUES (zeroblob(100))").fetchall()
        count += 1
    connection.close()
    return count / seconds
