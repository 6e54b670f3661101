"""How soon after a crash are 1,000 and 10,000 runs in flight settled, and how soon has each made a further step?

The daemon and its runners were killed while every run was in its second step. The clock starts with the new daemon's
process. Settled: queued again or held, each old process proved dead. A further step: the second step is committed,
by 16 runners. The base is the start of a daemon that has nothing to recover.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import apsw

from benchmarks.bench import Bench
from benchmarks.cache import put
from benchmarks.daemon import Daemon
from benchmarks.fill import clone
from benchmarks.rows import Row, Stat

QUESTION = "recovery"
RUNNERS = 16
SIZES = ((1_000, 1.0), (10_000, 5.0))  # runs, target in seconds
STEPPING = 1_000
STEPPED_S = 1.8
MODEL = "modelmodel12"
PATIENCE_S = 120.0
POLL_S = 0.005

HOLDING = """
import os, time
from pwf import Workflow
flow = Workflow("hold"{isolate})

@flow.compute
def first(ctx):
    return 1

@flow.compute
def second(ctx):
    while not os.path.exists(os.path.join(os.path.dirname(ctx.input), "go")):
        time.sleep(0.01)
    return 2

flow.graph(first >> second)
"""


def measure(bench: Bench) -> Iterator[Row]:
    """Settled, for each size; then the further step."""
    for runs, target in SIZES[:1] if bench.quick else SIZES:
        times, base = _settled(bench, runs)
        yield _row(f"{runs:,} runs settled", times, base, target, x=runs)
    runs = bench.pick(STEPPING, 100)
    subject = f"{runs:,} killed runs recovered"
    yield _row(f"{runs:,} runs one step further", stepped(bench, runs), None, STEPPED_S, subject=subject)


def stepped(bench: Bench, runs: int, *, kept: bool = False) -> Stat:
    """Seconds until each of so many killed runs has made a further step. `kept`: its process may be given the next."""
    with bench.folder() as folder:
        crash = Crash(folder, runs, kept=kept)
        crash.go()
        return bench.sample(partial(crash.recover, _all_ended), warm_up=0)


def _row(
    what: str, value: Stat, base: Stat | None, target: float, *, x: float | None = None, subject: str = ""
) -> Row:
    return Row(
        question=QUESTION,
        what=what,
        value=value,
        unit="s",
        better="less",
        base="start with nothing to recover" if base else "",
        base_value=base,
        target=target,
        subject=subject,
        series="settled" if x else "",
        x=x,
        x_label="runs in flight" if x else "",
        note=f"{RUNNERS} runners",
    )


def _settled(bench: Bench, runs: int) -> tuple[Stat, Stat]:
    with bench.folder() as folder, bench.folder() as empty:
        crash = Crash(folder, runs)
        idle = Daemon(empty, max_runners=RUNNERS)
        with idle:
            pass  # makes the home
        times, base = bench.in_turn(partial(crash.recover, _none_left), partial(_start_s, idle), warm_up=0)
    return times, base


def _start_s(daemon: Daemon) -> float:
    begin = time.perf_counter()
    daemon.start()
    took = time.perf_counter() - begin
    daemon.stop()
    return took


class Crash:
    """A store as a crash left it, with so many runs in their second step; `recover` starts from a copy each time."""

    def __init__(self, folder: Path, runs: int, *, kept: bool = False) -> None:
        self.folder, self.runs = folder, runs
        self._text = HOLDING.replace("{isolate}", ', isolate="keep"' if kept else "")
        self.daemon = Daemon(folder, max_runners=RUNNERS)
        self._left = folder / "left"
        self._make()

    def go(self) -> None:
        """Let the second step end, when it is tried again."""
        (self.folder / "go").touch()

    def _make(self) -> None:
        with self.daemon as daemon, daemon.client() as client:
            path = daemon.workflow(self._text)
            client.start(path, path, run_id=MODEL)
            while not _in_second_step(daemon):
                time.sleep(0.01)
            daemon.kill()
        database = put(self.daemon.database, self._left)
        wal = self.daemon.database.with_name("pwf.db-wal")
        if wal.exists():
            database.with_name(wal.name).write_bytes(wal.read_bytes())
        clone(database, MODEL, self.runs - 1)

    def recover(self, done: Callable[[apsw.Connection, int], bool]) -> float:
        """Seconds from the start of a daemon on a copy until `done(connection, epoch before)`."""
        for old in self.daemon.home.glob("pwf.db*"):
            old.unlink()
        put(self._left / "pwf.db", self.daemon.home)
        with self.daemon.reading() as connection:
            before = connection.execute("SELECT max(epoch) FROM runners").get
        begin = time.perf_counter()
        self.daemon.start()
        try:
            with self.daemon.reading() as connection:
                while not done(connection, before):
                    if time.perf_counter() > begin + PATIENCE_S:
                        raise RuntimeError(f"not recovered within {PATIENCE_S:g} s")
                    time.sleep(POLL_S)
            return time.perf_counter() - begin
        finally:
            self.daemon.kill()


def _in_second_step(daemon: Daemon) -> bool:
    with daemon.reading() as connection:
        return bool(
            connection.execute(
                "SELECT 1 FROM attempts WHERE node = 'second' AND status = 'active'"
            ).fetchall()
        )


def _none_left(connection: apsw.Connection, before: int) -> bool:
    return not connection.execute("SELECT 1 FROM runners WHERE epoch <= ? LIMIT 1", (before,)).fetchall()


def _all_ended(connection: apsw.Connection, _before: int) -> bool:
    rows = connection.execute(
        "SELECT 1 FROM run_counts WHERE status NOT IN ('completed') AND runs > 0 LIMIT 1"
    )
    return not rows.fetchall()
