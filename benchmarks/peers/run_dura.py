"""dura: one SQLite file, WAL and `synchronous=FULL` by default, steps as checkpoints in worker threads of one process.

Ten steps a task with 1, 4 and 16 workers; each rate is of a process and a database of its own, from a backlog that was
laid before the workers start. Pitfall: `run_workers` does not return when the work is done, so the process that has
counted its tasks leaves by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dura

from benchmarks.peers.telling import arguments, engine, folder, tell_best

STEPS = 10
WORKERS = (1, 4, 16)
DURABILITY = "its default: WAL, synchronous=FULL"
SECONDS_MAX = 120


def main() -> None:
    """All rows, or the process that is measured."""
    if sys.argv[1:2] == ["work"]:
        work(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return
    asked = arguments()
    engine(f"dura {version('dura')}", DURABILITY)
    with folder() as where:
        rates: dict[str, list[float]] = {}
        for turn in range(asked.times):
            for workers in WORKERS:
                tasks = 40 if asked.quick else 100 if workers == 1 else 200
                rate = measured(where / f"{turn}-{workers}.db", workers, tasks)
                rates.setdefault(f"{workers} workers", []).append(rate)
        tell_best(rates)


def measured(database: Path, workers: int, tasks: int) -> float:
    """Steps a second of one process."""
    command = [sys.executable, "-m", "benchmarks.peers.run_dura", "work", database, str(workers), str(tasks)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS_MAX)
    return float(done.stdout)


def work(database: Path, workers: int, tasks: int) -> None:
    """Lay the backlog, work it off, print the rate, and leave."""
    durable = dura.DurableEngine(str(database))
    ended: list[float] = []
    all_ended = threading.Event()

    def handler(mine: Any, task: Any) -> dict[str, int]:
        for i in range(STEPS):
            mine.checkpoint(task_id=task.task_id, step_name=f"s{i}", fn=lambda i=i: {"i": i})
        ended.append(time.perf_counter())
        if len(ended) >= tasks:
            all_ended.set()
        return {"ok": 1}

    for _ in range(tasks):
        durable.spawn_task(name="t", params={})
    begin = time.perf_counter()
    options = {"handlers": {"t": handler}, "worker_count": workers, "handle_signals": False}
    threading.Thread(target=dura.run_workers, args=(durable,), kwargs=options, daemon=True).start()
    all_ended.wait(SECONDS_MAX)
    print(len(ended) * STEPS / (ended[-1] - begin), flush=True)
    os._exit(0 if len(ended) >= tasks else 1)


if __name__ == "__main__":
    main()
