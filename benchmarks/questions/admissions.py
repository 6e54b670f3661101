"""How many runs a second does the scheduler admit, with 1,000 to 1,000,000 queued, and with as many due later?

At the level of the store: the transaction that the scheduler makes, of 8 runs each (peers claim as many) or of 64, with
lease, event, runner row and synced commit. The runs that were admitted are put back between repetitions, not counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
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
#: Runs are due in the order in which they were made.
DUE = {"due_wall_ms": "m.due_wall_ms + c.i"}
#: Every second of the runs that are due later has a relative time, which has an index of its own.
RELATIVE = {
    "run_queue": {
        **DUE,
        "due_elapsed_ms": "iif(c.i % 2, 1000000000000 + c.i, NULL)",
        "due_boot_id": "iif(c.i % 2, 'a boot', NULL)",
    }
}
_BACK = (
    "UPDATE entities SET lease_owner = NULL, lease_token = NULL, lease_boot_id = NULL, lease_until_awake_ms = NULL "
    "WHERE entity_no IN (SELECT entity_no FROM runners)",
    "UPDATE runs SET status = 'queued' WHERE run_no IN (SELECT entity_no FROM runners)",
    "UPDATE run_queue SET state = 'ready' WHERE run_no IN (SELECT entity_no FROM runners)",
    "DELETE FROM runners",
)


def measure(bench: Bench) -> Iterator[Row]:
    """A rate for each backlog, the claim of eight for the peers, and how flat it all is."""
    sizes: list[tuple[int, int]] = [(ready, 0) for ready in (BACKLOGS_QUICK if bench.quick else BACKLOGS)]
    with bench.folder() as folder, ExitStack() as stack:
        backlogs = [
            stack.enter_context(closing(Backlog(folder / f"{ready}-{later}", ready, later)))
            for ready, later in [*sizes, (READY, LATER)]
        ]
        claims = bench.in_turn(*(backlog.claim_ms for backlog in backlogs))
        *rates, base = bench.in_turn(
            *(backlog.runs_a_second for backlog in backlogs), partial(commits, folder, seconds=0.3)
        )
    for backlog, claim, rate in zip(backlogs, claims, rates, strict=True):
        yield from _rows(backlog, claim, rate, base)
    smallest, largest = rates[0], rates[len(sizes) - 1]
    yield Row(
        question=QUESTION,
        what=f"{sizes[0][0]:,} against {sizes[-1][0]:,} queued",
        value=Stat.of([smallest.median / largest.median]),
        unit="times",
        better="less",
        target=WITHIN,
        note=f"of the rate in transactions of {BATCH}",
    )


def _rows(backlog: Backlog, claim: Stat, rate: Stat, base: Stat) -> Iterator[Row]:
    yield Row(
        question=QUESTION,
        what=backlog.what,
        value=rate,
        unit="runs/s",
        base="SQLite, one-row commits",
        base_value=base,
        base_unit="commits/s",
        target=3_000,
        series="" if backlog.later else "by backlog",
        x=None if backlog.later else backlog.ready,
        x_label="" if backlog.later else "queued runs",
        note=f"transactions of {BATCH}",
    )
    yield Row(
        question=QUESTION,
        what=f"claim of {CLAIM}, {backlog.what}",
        value=claim,
        unit="ms",
        better="less",
        base="SQLite, a one-row commit",
        base_value=Stat(
            median=1_000 / base.median, low=1_000 / base.high, high=1_000 / base.low, count=base.count
        ),
        subject="" if backlog.later else f"claim {CLAIM} of {backlog.what}",
    )


class Backlog:
    """A store with so many runs ready and so many due later, opened for admissions. Each measurement restores it."""

    def __init__(self, folder: Path, ready: int, later: int) -> None:
        self.ready, self.later = ready, later
        self.what = f"{ready:,} queued" + (f" and {later:,} due later" if later else "")
        spec = StoreSpec(
            path=put(queued(ready, later), folder), clock=SystemClock(host.boot_id()), guarded=False
        )
        self._writer = spec.writer()
        self._side = apsw.Connection(str(spec.path))
        self._side.set_busy_timeout(10_000)

    def claim_ms(self) -> float:
        """Milliseconds of a transaction that admits as many as peers claim at once."""
        return CLAIM * 1_000 / self._rate(CLAIM, TRANSACTIONS)

    def runs_a_second(self) -> float:
        """The rate in large transactions, fewer than would use up the smallest backlog."""
        return self._rate(BATCH, READY // BATCH - 1)

    def close(self) -> None:
        """Close both connections."""
        self._side.close()
        self._writer.close()

    def _rate(self, batch: int, transactions: int) -> float:
        command = Admit(limit=batch, epoch=1, owner="daemon:1", lease_ms=30_000)
        admitted, begin = 0, time.perf_counter()
        for _ in range(transactions):
            (answer,) = self._writer.run([Job(admit, command)]).answers
            if answer.error is not None:
                raise answer.error
            admitted += len(answer.value.runs)
        took = time.perf_counter() - begin
        assert admitted == batch * transactions, f"{admitted} were admitted"
        with self._side:
            for statement in _BACK:
                self._side.execute(statement).fetchall()
        self._writer.checkpoint()
        return admitted / took


def queued(ready: int, later: int) -> Path:
    """A store with so many runs ready, and so many due later; from the cache."""

    def make(path: Path) -> None:
        model_run(path)
        clone(path, MODEL, ready, {"run_queue": {"state": "'ready'", **DUE}})
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
    queued = "DELETE FROM run_queue WHERE run_no = (SELECT run_no FROM runs WHERE run_id = ?)"
    connection.execute(queued, (MODEL,)).fetchall()
    connection.execute(
        "UPDATE runs SET status = 'cancelled', ended_wall_ms = 0 WHERE run_id = ?", (MODEL,)
    ).fetchall()
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
