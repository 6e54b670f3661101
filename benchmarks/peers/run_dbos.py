"""DBOS Transact: one step and ten, called directly and through its queue; claims from a backlog; recovery.

`--part sqlite` is its default (rollback journal, `synchronous=FULL`), `wal` the same file set to WAL before DBOS opens
it, `postgres` a PostgreSQL of our own. Pitfalls: its SQLite times are whole seconds, so latency is taken at the
caller; the queue's thread looks for new queues once a second; nothing may listen while a backlog is laid.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, chdir, closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dbos import DBOS
from dbos._dbos import _get_dbos_instance
from dbos._utils import GlobalParams

from benchmarks.peers.postgres import serving, url
from benchmarks.peers.telling import arguments, engine, folder, tell, tell_best, tell_latency, until

CLAIM = 8
STEPS = 10
DURABILITY = {
    "sqlite": "its default: rollback journal, synchronous=FULL",
    "wal": "not its default: WAL, synchronous=FULL",
    "postgres": "PostgreSQL's defaults: fsync and synchronous_commit on",
}
NAMES = {"sqlite": "SQLite", "wal": "SQLite set to WAL", "postgres": "PostgreSQL"}


class Place:
    """Where databases are made. `server` is the PostgreSQL's folder."""

    def __init__(self, part: str, where: Path, server: str | None) -> None:
        self.part, self.where, self.server = part, where, server
        self._count = 0

    def fresh(self) -> str:
        """The URL of a new database."""
        self._count += 1
        if self.server is not None:
            with closing(self.connect(url(self.server, "postgres"))) as connection:
                connection.execute(f"CREATE DATABASE bench{self._count}")
            return url(self.server, f"bench{self._count}")
        path = self.where / f"dbos{self._count}.db"
        if self.part == "wal":
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("CREATE TABLE makes_the_file(x)")
                connection.commit()
        return f"sqlite:///{path}"

    def connect(self, database: str) -> Any:
        """A connection beside DBOS's own."""
        if self.server is None:
            return sqlite3.connect(database.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
        import psycopg

        return psycopg.connect(database, autocommit=True, options="-c search_path=dbos,public")

    def count(self, database: str, sql: str) -> int:
        """The one number that a query gives."""
        with closing(self.connect(database)) as connection:
            return int(connection.execute(sql).fetchone()[0])


class Workflows:
    """What is measured, registered with the present DBOS."""

    def __init__(self, database: str) -> None:
        DBOS(config={"name": "bench", "system_database_url": database, "log_level": "ERROR",
                     "run_admin_server": False, "application_version": "v1", "max_executor_threads": 64})  # fmt: skip

        @DBOS.step()
        def step(i: int) -> int:
            return i

        @DBOS.workflow()
        def steps(n: int) -> int:
            return sum(step(i) for i in range(n))

        @DBOS.step()
        def action(i: int) -> int:  # as `WORK` in benchmarks/workflows.py
            file = os.open("work", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(file, b"x")
            os.close(file)
            return i

        @DBOS.workflow()
        def actions(n: int) -> int:
            return sum(action(i) for i in range(n))

        @DBOS.step()
        def shell(_: int) -> int:
            return subprocess.run(["true"], capture_output=True, check=True).returncode

        @DBOS.workflow()
        def shells(n: int) -> int:
            return sum(shell(i) for i in range(n))

        @DBOS.step()
        async def async_step(i: int) -> int:
            return i

        @DBOS.workflow()
        async def hold(flag: str) -> int:
            await async_step(1)
            while not os.path.exists(flag):  # noqa: ASYNC110, ASYNC240 - another process makes it
                await asyncio.sleep(5)
            return await async_step(2)

        self.steps, self.actions, self.shells, self.hold = steps, actions, shells, hold


@contextmanager
def launched(database: str) -> Iterator[Workflows]:
    """DBOS on a database; ended at the end."""
    workflows = Workflows(database)
    DBOS.launch()
    try:
        yield workflows
    finally:
        DBOS.destroy()


def main() -> None:
    """All rows of one part, or the process that is to be killed."""
    if sys.argv[1:2] == ["hold"]:
        hold(*sys.argv[2:])
        return
    asked = arguments()
    engine(f"DBOS {version('dbos')} ({NAMES[asked.part]})", DURABILITY[asked.part])
    with folder() as where, ExitStack() as stack:
        server = stack.enter_context(serving(Path(asked.needs), where)) if asked.part == "postgres" else None
        place = Place(asked.part, where, server)
        with chdir(where):  # where the actions write
            direct(place, asked.times, quick=asked.quick)
        if asked.part != "wal":
            queue_latency(place, asked.times, quick=asked.quick)
            backlog(place, asked.times, (1_000,) if asked.quick else (1_000, 100_000))
        recovery(place, 1 if asked.quick else 3, 100 if asked.quick else 1_000)


# --- called directly --------------------------------------------------------------------------------------------


def direct(place: Place, times: int, *, quick: bool) -> None:
    """One step, one after the other; ten steps, from one caller and from eight."""
    latencies = [closed_loop(place, "steps", 1, 50 if quick else 200, 1)[1] for _ in range(times)]
    tell_latency("called directly", latencies)
    runs = 10 if quick else 40
    for kind, steps, question in (
        ("steps", "ten steps", "durable_steps"),
        ("actions", "ten actions", "effect_steps"),
        ("shells", "ten shell steps", "effect_steps"),
    ):
        named = "" if kind == "steps" else f"{steps}, "
        tell_best(
            {
                f"{named}called by {callers}": [
                    closed_loop(place, kind, STEPS, runs, callers)[0] * STEPS for _ in range(times)
                ]
                for callers in (1, 8)
            },
            steps=steps,
            question=question,
        )


def closed_loop(place: Place, kind: str, steps: int, runs: int, callers: int) -> tuple[float, list[float]]:
    """Runs a second, and the seconds of each, on a fresh database."""
    with launched(place.fresh()) as workflows, ThreadPoolExecutor(callers) as pool:
        workflow = getattr(workflows, kind)

        def one(_: int) -> float:
            begin = time.perf_counter()
            workflow(steps)
            return time.perf_counter() - begin

        one(0)
        begin = time.perf_counter()
        latencies = list(pool.map(one, range(runs)))
        return runs / (time.perf_counter() - begin), latencies


# --- through the queue ------------------------------------------------------------------------------------------


def queue_latency(place: Place, times: int, *, quick: bool) -> None:
    """From enqueueing to the result, with its default polling and with ten milliseconds."""
    for what, poll_s, calls in (
        ("default polling", 1.0, 3 if quick else 6),
        ("polling every 10 ms", 0.01, 30),
    ):
        runs = []
        for _ in range(1 if quick else times):
            with launched(place.fresh()) as workflows:
                DBOS.register_queue("q", worker_concurrency=CLAIM, polling_interval_sec=poll_s)
                time.sleep(1.2)
                runs.append([queued(workflows, poll_s) for _ in range(calls)])
        tell_latency(f"through its queue, {what}", runs)


def queued(workflows: Workflows, poll_s: float) -> float:
    """Seconds of one."""
    begin = time.perf_counter()
    DBOS.enqueue_workflow("q", workflows.steps, 1).get_result(polling_interval_sec=poll_s)
    return time.perf_counter() - begin


def backlog(place: Place, times: int, backlogs: tuple[int, ...]) -> None:
    """Its own claim transaction, eight rows at a time, from a backlog of clones."""
    for rows in backlogs:
        claims = [claim_ms(place, rows) for _ in range(times)]
        tell("admissions", f"claim of {CLAIM}, {rows:,} queued", claims, "ms", better="less",
             subject=f"claim {CLAIM} of {rows:,} queued")  # fmt: skip


def claim_ms(place: Place, rows: int) -> float:
    """The median of ten claims."""
    database = place.fresh()
    workflows = Workflows(database)
    DBOS.listen_queues([])
    DBOS.launch()
    try:
        DBOS.register_queue("q", worker_concurrency=CLAIM, polling_interval_sec=0.01)
        DBOS.enqueue_workflow("q", workflows.steps, 1)
        with closing(place.connect(database)) as connection:
            for table in ("workflow_status", "workflow_input"):
                clone(connection, table, rows, postgres=place.server is not None)
        system = _get_dbos_instance()._sys_db
        queue = system.get_queue("q")
        spent = []
        for _ in range(10):
            begin = time.perf_counter()
            who = (GlobalParams.executor_id, GlobalParams.app_version)
            claimed, _why = system.start_queued_workflows(queue, *who, None, 0, owner_xid="x")
            spent.append((time.perf_counter() - begin) * 1_000)
            assert len(claimed) == CLAIM, claimed
        return statistics.median(spent)
    finally:
        DBOS.destroy()


def clone(connection: Any, table: str, rows: int, *, postgres: bool) -> None:
    """Multiply a table's one row."""
    if postgres:
        sql = (
            "SELECT column_name FROM information_schema.columns "
            f"WHERE table_name = '{table}' AND table_schema = 'dbos' AND is_generated = 'NEVER'"
        )
        columns = [row[0] for row in connection.execute(sql)]
    else:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join("'clone-' || n" if name == "workflow_uuid" else f"s.{name}" for name in columns)
    connection.execute(
        f"WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {rows}) "
        f"INSERT INTO {table}({', '.join(columns)}) SELECT {values} FROM g, (SELECT * FROM {table} LIMIT 1) s"
    )


# --- recovery ---------------------------------------------------------------------------------------------------


def recovery(place: Place, times: int, runs: int) -> None:
    """Kill a process with so many workflows in flight; from the next one's start until all have ended."""
    spent = [killed(place, runs) for _ in range(times)]
    tell("recovery", f"{runs:,} killed, all ended", spent, "s", better="less",
         subject=f"{runs:,} killed runs recovered", note=f"repetitions: {times}")  # fmt: skip


def killed(place: Place, runs: int) -> float:
    """One crash and one recovery."""
    database, flag = place.fresh(), place.where / f"flag{time.monotonic_ns()}"
    command = [sys.executable, "-m", "benchmarks.peers.run_dbos", "hold", database, str(flag)]
    with subprocess.Popen([*command, str(runs)], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        first.stdout.readline()
        until(lambda: place.count(database, "SELECT count(*) FROM operation_outputs") >= runs, 120, 0.2)
        first.send_signal(signal.SIGKILL)
    flag.touch()
    begin = time.perf_counter()
    ended = "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'"
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE) as second:
        try:
            assert second.stdout is not None
            second.stdout.readline()
            until(lambda: place.count(database, ended) >= runs, 180, 0.05)
            return time.perf_counter() - begin
        finally:
            second.kill()


def hold(database: str, flag: str, runs: str) -> None:
    """The process that is killed: starts workflows that wait for the flag, or recovers them."""
    workflows = Workflows(database)
    DBOS.launch()

    async def start() -> None:
        for _ in range(int(runs)):
            await DBOS.start_workflow_async(workflows.hold, flag)
        print("started", flush=True)
        await asyncio.sleep(3_600)

    if int(runs):
        asyncio.run(start())
    else:
        print("launched", flush=True)
        time.sleep(3_600)


if __name__ == "__main__":
    main()
