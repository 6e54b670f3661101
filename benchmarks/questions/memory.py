"""How much memory do waiting runs and live runners take, and how much processor time does an idle daemon?

Waiting runs are clones of one that asks for an answer. A live runner's private memory is what its process does not
share with the template that it was forked from. The bases are a daemon with an empty store, and a bare interpreter
that has imported what a runner needs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.bench import Bench
from benchmarks.cache import filled_database, put
from benchmarks.daemon import Daemon
from benchmarks.fill import clone
from benchmarks.load import Client, Requests, drive, start_payload
from benchmarks.rows import Row, Stat
from benchmarks.workflows import ASKING, chain

QUESTION = "memory"
MODEL = "modelmodel12"
LIVE = 8
MIB = 2**20
SLEEPING = chain(1, "import time; time.sleep(600)")


def measure(bench: Bench) -> Iterator[Row]:
    """The daemon with waiting runs and what it costs when idle; then the runners."""
    yield from _waiting(bench, bench.pick(10_000, 1_000))
    yield from _live(bench)


def _waiting(bench: Bench, runs: int) -> Iterator[Row]:
    empty: list[float] = []
    full: list[float] = []
    shares: list[float] = []
    database = filled_database(f"waiting-{runs}", lambda path: _make_waiting(path, runs))
    for _ in range(bench.times):
        for values, filled in ((empty, False), (full, True)):
            with bench.folder() as folder:
                daemon = Daemon(folder)
                if filled:
                    put(database, daemon.home)
                with daemon:
                    values.append(_looked_at(daemon))
                    if filled:
                        shares.append(daemon.processor_percent(bench.pick(3, 1)))
    base = Stat.of(empty)
    yield Row(
        question=QUESTION,
        what=f"daemon, {runs:,} waiting runs",
        value=Stat.of(full),
        unit="MiB",
        better="less",
        base="empty store",
        base_value=base,
        target=100,
        note="resident, after lists and counts were read",
    )
    yield Row(
        question=QUESTION,
        what="a waiting run",
        value=Stat.of([(filled - base.median) * 1024 / runs for filled in full]),
        unit="KiB",
        better="less",
        note=f"difference to the empty store, by {runs:,}",
    )
    yield Row(
        question=QUESTION,
        what=f"idle daemon, {runs:,} waiting runs",
        value=Stat.of(shares),
        unit="% of a core",
        better="less",
        target=0.1,
    )


def _make_waiting(path: Path, runs: int) -> None:
    with Bench().folder() as folder:
        with Daemon(folder) as daemon, daemon.client() as client:
            client.start(daemon.workflow(ASKING), run_id=MODEL)
            client.wait(MODEL, until="parked")
        put(daemon.database, folder / "copy").rename(path)
    clone(path, MODEL, runs - 1)


def _looked_at(daemon: Daemon) -> float:
    """Resident MiB after what a person's commands read."""
    with daemon.client() as client:
        for operation in ("run.list", "request.list", "daemon.status"):
            client.call(operation)
    return daemon.resident_mib()


# --- runners --------------------------------------------------------------------------------------------------


def _live(bench: Bench) -> Iterator[Row]:
    private: list[float] = []
    daemons: list[float] = []
    for _ in range(bench.times):
        with bench.folder() as folder, Daemon(folder, max_runners=LIVE) as daemon:
            before = daemon.resident_mib()
            drive(daemon, [_start(daemon, daemon.workflow(SLEEPING))])
            private += _runners_mib(daemon)
            daemons.append((daemon.resident_mib() - before) / LIVE)
            daemon.kill()  # its runners end with it; an ordered stop would wait for their step
    yield Row(
        question=QUESTION,
        what="a live runner, private",
        value=Stat.of(private),
        unit="MiB",
        better="less",
        base="bare interpreter with trio and msgspec",
        base_value=bench.sample(_interpreter_mib, warm_up=0),
        target=12,
        note=f"{LIVE} runners in a step, each forked from one template",
    )
    yield Row(
        question=QUESTION,
        what="the daemon, for a live runner",
        value=Stat.of(daemons),
        unit="MiB",
        better="less",
        note="what the first runs of a definition make it load is part of it",
    )


def _start(daemon: Daemon, path: str) -> Client:
    requests, payload = Requests(), start_payload(daemon, path)
    for _ in range(LIVE):
        yield requests.make("run.start", payload, changes=True)


def _runners_mib(daemon: Daemon, seconds: float = 30.0) -> list[float]:
    """Private memory of each runner, once all are in their step."""
    end = time.monotonic() + seconds
    while True:
        with daemon.reading() as connection:
            rows = connection.execute("SELECT pid FROM runners WHERE state = 'live'").fetchall()
        if len(rows) == LIVE:
            break
        if time.monotonic() > end:
            raise RuntimeError(f"{len(rows)} of {LIVE} runners came up")
        time.sleep(0.02)
    time.sleep(0.3)  # they are launched; let them enter the step
    return [float(psutil.Process(pid).memory_full_info().uss) / MIB for (pid,) in rows]


def _interpreter_mib() -> float:
    """Private memory of an interpreter that shares nothing with a template."""
    code = "import trio, msgspec, sys; print('.', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        found = float(psutil.Process(child.pid).memory_full_info().uss) / MIB
        child.communicate()
    return found
