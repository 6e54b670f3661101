"""Huey with SqliteHuey: one task from call to result, and tasks a second with four workers.

Not the same promise: a task is taken out of the queue before it runs, so a crash loses it; there are no steps and
there is no recovery. Its results are kept as rows. Settings are the defaults: WAL, and SQLite's `synchronous=FULL`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.telling import arguments, engine, folder, tell, tell_latency, until

WORKERS = 4
MODULE = """
import os
from huey import SqliteHuey
huey = SqliteHuey("bench", filename=os.environ["BENCH_DATABASE"])

@huey.task()
def task(i):
    return i
"""


def main() -> None:
    """All rows."""
    asked = arguments()
    engine(f"Huey {version('huey')} (SQLite)", "WAL, synchronous=FULL; at most once, no steps, no recovery")
    for kind in ("thread",) if asked.quick else ("thread", "process"):
        rates, latencies = [], []
        for _ in range(asked.times):
            rate, latency = once(kind, 300 if asked.quick else 2_000, 10 if asked.quick else 30)
            rates.append(rate)
            latencies.append(latency)
        tell(
            "durable_steps", f"tasks, {WORKERS} workers ({kind})", rates, "tasks/s", note="not durable steps"
        )
        tell_latency(f"a task, {kind} workers", latencies, compared=kind == "thread")


def once(kind: str, tasks: int, calls: int) -> tuple[float, list[float]]:
    """Tasks a second from a laid backlog, then the latency of single calls, with a fresh database."""
    with folder() as where:
        database = where / "huey.db"
        (where / "hueytasks.py").write_text(MODULE, encoding="utf-8")
        os.environ["BENCH_DATABASE"], os.environ["PYTHONPATH"] = str(database), str(where)
        sys.path.insert(0, str(where))
        sys.modules.pop("hueytasks", None)
        task = import_module("hueytasks").task
        sys.path.remove(str(where))
        for i in range(tasks):
            task(i + 1)  # a result of None would not be kept
        consumer = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "huey.bin.huey_consumer",
                "hueytasks.huey",
                "-w",
                str(WORKERS),
                "-k",
                kind,
                "-n",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=where,
            start_new_session=True,
        )
        try:
            return drained(database, tasks), called(task, calls)
        finally:
            os.killpg(consumer.pid, signal.SIGKILL)  # process workers are its children
            consumer.wait()


def drained(database: Path, tasks: int) -> float:
    """Tasks a second, from the first result to the last."""
    until(lambda: results(database) > 0, 30, 0.005)
    first, begin = results(database), time.perf_counter()
    until(lambda: results(database) >= tasks, 120)
    return (tasks - first) / (time.perf_counter() - begin)


def called(task, calls: int) -> list[float]:  # type: ignore[no-untyped-def]
    """Seconds from call to result; the idle consumer polls with a growing delay, and the caller polls."""
    time.sleep(0.5)
    latencies = []
    for i in range(calls):
        begin = time.perf_counter()
        task(i + 1).get(blocking=True, timeout=30, backoff=1.0)
        latencies.append(time.perf_counter() - begin)
    return latencies


def results(database: Path) -> int:
    """How many results are kept."""
    connection = sqlite3.connect(database, timeout=10)
    try:
        return int(connection.execute("SELECT count(*) FROM kv").fetchone()[0])
    finally:
        connection.close()


if __name__ == "__main__":
    main()
