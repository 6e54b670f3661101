"""How long does a run of one step take from start to finish, in a process of its own?

Warm: daemon and template are there. Cold template: a workflow file that was never seen, so that it is resolved, and
loaded into a new template. Cold daemon: nothing runs, and the client starts the daemon. The base is what isolation
costs at least: a fork, or the start of an interpreter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, percentile
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.questions.limits import fork_ms, spawn_ms
from benchmarks.rows import Row, Stat
from benchmarks.workflows import ONE
from pwf.client import SyncClient
from pwf.protocol.lock_record import read_record

QUESTION = "start_to_finish"
IMPORTS = "import trio, msgspec, apsw"


def measure(bench: Bench) -> Iterator[Row]:
    """Median and 99th percentile, warm; then the two cold starts."""
    with bench.folder() as folder, Daemon(folder) as daemon:
        yield from _warm(bench, daemon)
        yield from _cold_template(bench, daemon)
    yield from _cold_daemon(bench)


def _warm(bench: Bench, daemon: Daemon) -> Iterator[Row]:
    payload = start_payload(daemon, daemon.workflow(ONE))
    count = bench.pick(200, 60)
    start_runs(daemon, payload, 20, clients=1)
    medians, tails = [], []
    for _ in range(bench.times):
        latencies = [latency * 1_000 for latency in start_runs(daemon, payload, count, clients=1)]
        medians.append(percentile(latencies, 0.5))
        tails.append(percentile(latencies, 0.99))
    base = bench.sample(fork_ms)
    for what, values, target, subject in (
        ("warm, median", medians, 5.0, "one step, median"),
        ("warm, 99th percentile", tails, 20.0, "one step, 99th percentile"),
    ):
        yield Row(
            question=QUESTION,
            what=what,
            value=Stat.of(values),
            unit="ms",
            better="less",
            base="fork and wait",
            base_value=base,
            target=target,
            subject=subject,
            note=f"of {count} runs each, one after the other",
        )


def _cold_template(bench: Bench, daemon: Daemon) -> Iterator[Row]:
    def once() -> float:
        path = daemon.workflow(ONE + f"# {time.time_ns()}\n")  # another text is another definition
        return start_runs(daemon, start_payload(daemon, path), 1, clients=1)[0] * 1_000

    yield Row(
        question=QUESTION,
        what="cold template",
        value=bench.sample(once),
        unit="ms",
        better="less",
        base="Python with trio, msgspec, apsw",
        base_value=bench.sample(partial(spawn_ms, IMPORTS)),
    )


def _cold_daemon(bench: Bench) -> Iterator[Row]:
    def once() -> float:
        with bench.folder() as folder:
            return _from_nothing(folder)

    yield Row(
        question=QUESTION,
        what="cold daemon, new home",
        value=bench.sample(once),
        unit="ms",
        better="less",
        base="Python with trio, msgspec, apsw",
        base_value=bench.sample(partial(spawn_ms, IMPORTS)),
        note="the client starts the daemon, which makes its home and database",
    )


def _from_nothing(folder: Path) -> float:
    daemon = Daemon(folder)  # never started here: the client does it
    path = daemon.workflow(ONE)
    before = os.environ.get("PWF_HOME")
    os.environ["PWF_HOME"] = str(daemon.home)
    client = SyncClient(daemon.at, autostart=True)
    try:
        begin = time.perf_counter()
        client.open()
        client.wait(client.start(path).run_id)
        return (time.perf_counter() - begin) * 1_000
    finally:
        client.close()
        _stop_served(daemon)
        os.environ.pop("PWF_HOME")
        if before is not None:
            os.environ["PWF_HOME"] = before


def _stop_served(daemon: Daemon) -> None:
    """End the daemon that a client has started; its parent here reaps it in a thread."""
    record = read_record(daemon.at.lock)
    if record is not None and record.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGTERM)
            _wait_gone(record.pid)


def _wait_gone(pid: int, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        os.kill(pid, 0)  # raises once it is gone
        time.sleep(0.01)
    raise subprocess.TimeoutExpired(f"daemon {pid}", seconds)
