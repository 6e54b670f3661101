"""How many runs a second does the scheduler admit, with 1,000 to 1,000,000 queued, and with as many due later?

At the level of the store: the transaction that the scheduler makes, of 8 runs each (peers claim as many) or of 64, with
lease, event, runner row and synced commit. The runs that were admitted are put back between repetitions, not counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw

from benchmarks.bench import Bench
from benchmarks.cache import filled_database, put
from benchmarks.daemon import Daemon
from benchmarks.fill import clone
from benchmarks.questions.limits import commits
from benchmarks.rows import Row, Stat
from benchmarks.workflows import ONE
from pwf import host
from pwf.clock import SystemClock
from pwf.store.batch import Job
from pwf.store.executor import StoreSpec
from pwf.store.queue import Admit, admit

QUESTION = "admissions"
BACKLOGS = (1_000, 10_000, 100_000, 1_000_000)
BACKLOGS_QUICK = (1_000, 100_000)
CLAIM = 8
BATCH = 64
TRANSACTIONS = 32
LATER = 100_000
READY = 1_000
WITHIN = 1.2  # times the rate at the smallest backlog
MODEL = "modelmodel12"
#: Every second of the runs that are due later has a relative time, which has an index of its own.
RELATIVE = {
    "run_queue": {
        "due_elapsed_ms": "iif(c.i % 2, 1000000000000 + c.i, NULL)",
        "due_boot_id": "iif(c.i % 2, 'a boot', NULL)",
    }
}
_BACK = (
    "UPDATE entities SET lease_owner = NULL, lease_token = NULL, lease_boot_id = NULL, lease_until_awake_ms = NULL "
    "WHERE entity_id IN (SELECT 'run:' || run_id FROM runners)",
    "UPDATE runs SET status = 'queued' WHERE run_id IN (SELECT run_id FROM runners)",
    "UPDATE run_queue SET state = 'ready' WHERE run_id IN (SELECT run_id FROM runners)",
    "DELETE FROM runners",
)


def measure(bench: Bench) -> Iterator[Row]:
    """A rate for each backlog, the claim of eight for the peers, and how flat it all is."""
    backlogs = BACKLOGS_QUICK if bench.quick else BACKLOGS
    rates: dict[int, Stat] = {}
    for backlog in backlogs:
        with bench.folder() as folder:
            claim_ms, rates[backlog], base = _admit(bench, queued(backlog), folder)
        yield _row(f"{backlog:,} queued", rates[backlog], base, backlog)
        yield Row(
            question=QUESTION,
            what=f"claim of {CLAIM}, {backlog:,} queued",
            value=claim_ms,
            unit="ms",
            better="less",
            subject=f"claim {CLAIM} of {backlog:,} queued",
        )
    slow = rates[backlogs[0]].median / rates[backlogs[-1]].median
    yield Row(
        question=QUESTION,
        what=f"{backlogs[0]:,} against {backlogs[-1]:,} queued",
        value=Stat.of([slow]),
        unit="times",
        better="less",
        target=WITHIN,
        note="of the rate in transactions of 64",
    )
    with bench.folder() as folder:
        _, rate, base = _admit(bench, queued(READY, later=LATER), folder)
    yield _row(f"{READY:,} queued and {LATER:,} due later", rate, base, None)


def _row(what: str, rate: Stat, base: Stat, backlog: int | None) -> Row:
    return Row(
        question=QUESTION,
        what=what,
        value=rate,
        unit="runs/s",
        base="SQLite, one-row commits",
        base_value=base,
        base_unit="commits/s",
        target=3_000,
        series="by backlog" if backlog else "",
        x=backlog,
        x_label="queued runs" if backlog else "",
        note=f"transactions of {BATCH}",
    )


def _admit(bench: Bench, database: Path, folder: Path) -> tuple[Stat, Stat, Stat]:
    """Milliseconds of a claim of 8; runs a second in transactions of 64; commits a second as the base."""
    spec = StoreSpec(path=put(database, folder), clock=SystemClock(host.boot_id()), guarded=False)
    writer, side = spec.writer(), apsw.Connection(str(spec.path))
    side.set_busy_timeout(10_000)

    def rate(batch: int, transactions: int) -> float:
        command = Admit(limit=batch, epoch=1, owner="daemon:1", lease_ms=30_000)
        admitted, begin = 0, time.perf_counter()
        for _ in range(transactions):
            (answer,) = writer.run([Job(admit, command)]).answers
            assert answer.error is None, answer.error
            admitted += len(answer.value.runs)
        took = time.perf_counter() - begin
        assert admitted == batch * transactions, f"{admitted} were admitted"
        with side:
            for statement in _BACK:
                side.execute(statement).fetchall()
        writer.checkpoint()
        return admitted / took

    # As few transactions as leave the smallest backlog longer than a batch.
    try:
        claims, rates, base = bench.in_turn(
            lambda: CLAIM * 1_000 / rate(CLAIM, TRANSACTIONS),
            partial(rate, BATCH, min(TRANSACTIONS, READY // BATCH - 1)),
            partial(commits, folder, seconds=0.3),
        )
    finally:
        side.close()
        writer.close()
    return claims, rates, base


def queued(ready: int, *, later: int = 0) -> Path:
    """A store with so many runs ready, and so many due later; from the cache."""

    def make(path: Path) -> None:
        model_run(path)
        clone(path, MODEL, ready, {"run_queue": {"state": "'ready'"}})
        if later:
            clone(path, MODEL, later, RELATIVE, first=ready + 1)
        _forget(path)

    return filled_database(f"queued-{ready}-{later}", make)


def model_run(path: Path) -> None:
    """Put a store with one run that is due tomorrow at `path`."""
    with Bench().folder() as folder:
        with Daemon(folder) as daemon, daemon.client() as client:
            far_ms = time.time_ns() // 1_000_000 + 366 * 24 * 3_600_000
            client.start(daemon.workflow(ONE), run_id=MODEL, at_ms=far_ms)
        put(daemon.database, folder / "copy").rename(path)


def _forget(path: Path) -> None:
    """Take the model out of the queue."""
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM run_queue WHERE run_id = ?", (MODEL,)).fetchall()
    connection.execute(
        "UPDATE runs SET status = 'cancelled', ended_wall_ms = 0 WHERE run_id = ?", (MODEL,)
    ).fetchall()
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
