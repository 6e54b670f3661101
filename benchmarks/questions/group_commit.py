"""How much does group commit give, how many writes share a commit, and how many steps share a sync of the disk?

The writes are what a step's is at least: the fence and an event, from 1, 8 and 64 concurrent actors. The base is the
same store in the same run with one command per transaction. Syncs are counted by `strace` in a daemon that executes
ten-step runs; where there is no strace, or it may not look, the row is left out.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import trio

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.rows import Row, Stat
from benchmarks.workflows import chain
from pwf import host
from pwf.actors.base import store_actor
from pwf.actors.base.store_actor import StoreActor, StoreHandle
from pwf.clock import SystemClock
from pwf.store.batch import Batch, Job
from pwf.store.executor import StoreSpec, ThreadExecutor
from pwf.store.loop_share import LoopShare
from pwf.store.tx import Tx

QUESTION = "group_commit"
ACTORS = (1, 8, 64)
RUNNERS = 16
NODES = 10
SYNC = re.compile(r"\b(?:fsync|fdatasync)\(")


def measure(bench: Bench) -> Iterator[Row]:
    """For each number of actors the rate and the writes a commit; then the steps a sync."""
    seconds = 0.2 if bench.quick else 1.0
    for actors in ACTORS:
        shares: list[float] = []
        grouped, single = bench.in_turn(
            partial(_rate, bench, actors, seconds, store_actor.BATCH_MAX, shares),
            partial(_rate, bench, actors, seconds, 1, []),
        )
        place = {"x": float(actors), "x_label": "actors"}
        yield Row(
            question=QUESTION,
            what=f"{actors} actors",
            value=grouped,
            unit="writes/s",
            base="one command per transaction",
            base_value=single,
            target=3 * single.median if actors == 64 else None,
            series="group commit",
            **place,  # type: ignore[arg-type]
        )
        yield Row(
            question=QUESTION,
            what=f"{actors} actors, writes a commit",
            value=Stat.of(shares[1:]),  # without the warm-up
            unit="writes/commit",
            series="group commit",
            **place,  # type: ignore[arg-type]
        )
    if shutil.which("strace") and not bench.quick:
        yield _steps_per_sync(bench)


class _Counting(ThreadExecutor):
    """Counts what the store commits."""

    commits = 0
    writes = 0

    async def run(self, jobs: Sequence[Job]) -> Batch:
        self.commits += 1
        self.writes += len(jobs)
        return await super().run(jobs)


def _rate(bench: Bench, actors: int, seconds: float, batch_max: int, shares: list[float]) -> float:
    kept = store_actor.BATCH_MAX
    store_actor.BATCH_MAX = batch_max
    try:
        with bench.folder() as folder:
            spec = StoreSpec(path=folder / "pwf.db", clock=SystemClock(host.boot_id()))
            executor = _Counting(spec, LoopShare(may_run=lambda _: True))
            rate = trio.run(_write_all, executor, actors, seconds)
            shares.append(executor.writes / executor.commits)
            return rate
    finally:
        store_actor.BATCH_MAX = kept


async def _write_all(executor: _Counting, actors: int, seconds: float) -> float:
    async with trio.open_nursery() as nursery:
        store: StoreHandle = await nursery.start(StoreActor(executor).run)
        for actor in range(actors):
            await store.write(_create, actor + 1, before_claim=True)
        executor.commits = executor.writes = 0
        begin = time.perf_counter()
        async with trio.open_nursery() as writers:
            for actor in range(actors):
                writers.start_soon(_write, store, actor, trio.current_time() + seconds)
        rate = executor.writes / (time.perf_counter() - begin)
        nursery.cancel_scope.cancel()
    return rate


async def _write(store: StoreHandle, actor: int, until: float) -> None:
    while trio.current_time() < until:
        await store.write(_touch, actor + 1, before_claim=True)


def _create(tx: Tx, entity_no: int) -> None:
    tx.create_entity(entity_no, "bench")


def _touch(tx: Tx, entity_no: int) -> None:
    revision = tx.fence(entity_no)
    tx.event(entity_no, revision, "touched", "bench", 0, b"{}")


# --- syncs ----------------------------------------------------------------------------------------------------


def _steps_per_sync(bench: Bench) -> Row:
    with bench.folder() as folder, Daemon(folder, max_runners=RUNNERS) as daemon:
        payload = start_payload(daemon, daemon.workflow(chain(NODES)))
        runs = bench.pick(100, 20)

        def once() -> float:
            with _strace(daemon.pid, folder / "calls") as calls:
                start_runs(daemon, payload, runs, clients=RUNNERS + 1)
            return runs * NODES / max(1, len(SYNC.findall(calls.read_text())))

        return Row(
            question=QUESTION,
            what=f"{RUNNERS} runners, steps a sync",
            value=bench.sample(once),
            unit="steps/sync",
            note="fsync and fdatasync of the daemon, checkpoints included, as strace sees them, which slows it",
        )


class _strace:
    """Writes a process's syncs to a file while the context is open."""

    def __init__(self, pid: int, calls: Path) -> None:
        self._pid, self._calls = pid, calls

    def __enter__(self) -> Path:
        command = [
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=fsync,fdatasync",
            "-o",
            str(self._calls),
            "-p",
            str(self._pid),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        status = Path(f"/proc/{self._pid}/status")
        end = time.monotonic() + 10
        while "TracerPid:\t0\n" in status.read_text():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("strace may not look at the daemon")
            time.sleep(0.01)
        return self._calls

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=10)
