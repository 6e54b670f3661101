"""A store in a folder, with a clock that the test moves."""

from __future__ import annotations

import random
from pathlib import Path

from pwf.clock import Now
from pwf.ids import Ids
from pwf.store.ballast import Ballast
from pwf.store.batch import Job, JobResult, Writer
from pwf.store.executor import StoreSpec


class HandClock:
    """Stands still until moved."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.elapsed_ms = 1_000_000
        self.awake_ms = 500_000
        self.boot_id = "boot-1"

    def now(self) -> Now:
        return Now(self.wall_ms, self.elapsed_ms, self.awake_ms, self.boot_id)

    def forward(self, ms: int) -> None:
        """All clocks go on, as while the machine is awake."""
        self.wall_ms += ms
        self.elapsed_ms += ms
        self.awake_ms += ms


class Warnings:
    """What the store said."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, **fields: object) -> None:
        self.events.append(event)


def make_spec(folder: Path, **changes) -> StoreSpec:
    """A store in `folder`; `changes` are fields of `StoreSpec`."""
    facts = {
        "path": folder / "pwf.db",
        "clock": HandClock(),
        "ids": Ids(random.Random(1).getrandbits),
        "guarded": False,
        "warn": Warnings(),
        "synchronous": "OFF",
    }
    return StoreSpec(**(facts | changes))


def small_ballast(folder: Path) -> Ballast:
    """64 KiB are enough for a test."""
    return Ballast(folder / "ballast", size=64 * 1024)


def run(writer: Writer, *jobs: tuple) -> list[JobResult]:
    """One batch of (handler, command) pairs."""
    return writer.run([Job(*job) for job in jobs]).answers


def do(writer: Writer, handler, command=None):
    """One command; its result, or raises its error."""
    answer = run(writer, (handler, command))[0]
    if answer.error is not None:
        raise answer.error
    return answer.value


# --- handlers of a toy family, on the table `meta` --------------------------------------------------------------


def put(tx, key):
    tx.run("INSERT INTO meta (key, value) VALUES (:key, 'v')", {"key": key})
    tx.changed(f"meta:{key}")
    return key


def put_then_raise(tx, what):
    """`what` is (key, exception)."""
    put(tx, what[0])
    raise what[1]


def keys(tx, _=None):
    return [row[0] for row in tx.all("SELECT key FROM meta ORDER BY key")]


def insert_run(tx, run_id, **columns):
    """The least that a run's row needs."""
    tx.run(
        "INSERT INTO definitions (definition_id, workflow, root, path, graph, packages, warnings, created_wall_ms)"
        " VALUES ('d', 'w', '/', '/w.py', x'7b7d', x'7b7d', x'5b5d', 0) ON CONFLICT DO NOTHING"
    )
    tx.run(
        "INSERT INTO environments (environment_id, root, body) VALUES ('e', '/', x'7b7d') ON CONFLICT DO NOTHING"
    )
    facts = {
        "run_id": run_id,
        "workflow": "w",
        "definition_id": "d",
        "environment_id": "e",
        "status": "queued",
        "node": "a",
        "visit": 1,
        "visits": b"{}",
        "created_wall_ms": 0,
    } | columns
    facts["run_no"] = tx.create_entity("run", run_id)
    names = ", ".join(facts)
    tx.run(f"INSERT INTO runs ({names}) VALUES ({', '.join(':' + name for name in facts)})", facts)
