"""Stores with many runs or resources, quickly: one that a real daemon made is the model, and SQL multiplies its rows.

So every row is as pwf writes it today, whatever the schema. The clones differ from the model in their ids, which are
scattered as real ones are, and in what `changes` says. No daemon may serve the store meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw

from pwf.ids import Ids
from pwf.store.database import open_writer

CACHE_KIB = 512 * 1024
_ODD = 0x9E3779B97F4A7C15  # scatters consecutive numbers over all ids, each to one of its own

#: Columns that name the run, and what a clone has there; `:model` is the model's id, `c.run_id` and `c.run_no` the
#: clone's.
_NAMES = {
    "run_id": "c.run_id",
    "receipt_no": "NULL",
    "run_no": "c.run_no",
    "entity_no": "c.run_no",
    "name": "c.run_id",  # of the run's entity
    "request_id": "'q' || c.run_id",
    "outside_name": "NULL",
    "scope_key": "c.run_id || substr(m.scope_key, 13)",
    "resource_no": "c.run_no",
    "uid": "c.run_id",
}

_KEYS = ("run_id", "run_no", "entity_no", "request_id")
_RESOURCE_KEYS = ("resource_no", "entity_no")
_RUN_NO = "(SELECT run_no FROM runs WHERE run_id = :model)"
_RESOURCE_NO = "(SELECT resource_no FROM resources WHERE uid = :model)"

Changes = Mapping[str, Mapping[str, str]]


def clone_id(index: int) -> str:
    """The id of the clone with this number."""
    return Ids(lambda bits: (index * _ODD) % (1 << bits)).new()


def clone(database: Path, model: str, count: int, changes: Changes | None = None, *, first: int = 1) -> None:
    """Add `count` runs like `model` with the ids `clone_id(first)` and on.

    `changes[table][column]` is an SQL expression over `m` (the model's row) and `c.i` (the clone's number).
    Not durable while it works: a crash leaves a file to be thrown away.
    """
    _multiply(database, model, count, changes or {}, first=first, keys=_KEYS, number=_RUN_NO)


def clone_resources(database: Path, model: str, count: int) -> None:
    """Add `count` resources like the one with the uid `model`; the key of each is `clone_id(1)` and on."""
    changes = {"resources": {"key": "c.run_id"}}
    _multiply(database, model, count, changes, first=1, keys=_RESOURCE_KEYS, number=_RESOURCE_NO)


def _multiply(
    database: Path,
    model: str,
    count: int,
    changes: Changes,
    *,
    first: int,
    keys: tuple[str, ...],
    number: str,
) -> None:
    """`keys`: the columns by which rows belong to the model; `number`: SQL that gives the model's."""
    connection = open_writer(database, synchronous="OFF")
    try:
        connection.pragma("foreign_keys", False)
        connection.pragma("cache_size", -CACHE_KIB)
        scattered: Any = clone_id
        connection.create_scalar_function("clone_id", scattered, 1, deterministic=True)
        with connection:
            _run(
                connection,
                "CREATE TEMP TABLE clones(run_id TEXT PRIMARY KEY, i INTEGER, run_no INTEGER) WITHOUT ROWID",
            )
            _run(
                connection,
                "WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :end) "
                "INSERT INTO clones "
                "SELECT clone_id(i), i, i + (SELECT max(entity_no) FROM entities) - :first + 1 FROM n",
                first=first,
                end=first + count,
            )
            for table in _tables(connection, keys):
                _clone_rows(connection, table, model, changes.get(table, {}), keys, number)
            _run(connection, "DELETE FROM meta WHERE key = 'home_place'")  # it may be put into any home
            _run(connection, "DROP TABLE clones")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()


def _clone_rows(
    connection: apsw.Connection,
    table: str,
    model: str,
    changes: Mapping[str, str],
    keys: tuple[str, ...],
    number: str,
) -> None:
    columns = [row[1] for row in _run(connection, f"PRAGMA table_info({table})")]
    unknown = changes.keys() - set(columns)
    assert not unknown, f"{table} has no column {sorted(unknown)}"
    named = next(name for name in keys if name in columns)
    own = f"{named} = " + (":model" if named == "run_id" else number)
    if named == "request_id":  # what belongs to a question of the run
        own = "request_id IN (SELECT request_id FROM main.requests WHERE run_id = :model)"
    _run(connection, f"CREATE TEMP TABLE model AS SELECT * FROM main.{table} WHERE {own}", model=model)
    values = [changes.get(column) or _NAMES.get(column) or f"m.{column}" for column in columns]
    order = (
        "ORDER BY c.run_no" if {"run_no", "entity_no", "resource_no"} & set(columns) else ""
    )  # others in the order of their ids
    _run(
        connection,
        f"INSERT INTO main.{table}({', '.join(columns)}) SELECT {', '.join(values)} "
        f"FROM temp.clones c CROSS JOIN temp.model m {order}",
        model=model,
    )
    _run(connection, "DROP TABLE temp.model")


def _tables(connection: apsw.Connection, keys: tuple[str, ...]) -> list[str]:
    """Tables with rows of the model, those first that others refer to."""
    found = []
    for (table,) in _run(connection, "SELECT name FROM sqlite_schema WHERE type = 'table'"):
        columns = {row[1] for row in _run(connection, f"PRAGMA table_info({table})")}
        if columns & set(keys) and not table.startswith("sqlite_"):
            found.append(table)
    return sorted(found, key=lambda table: (table != "entities", table != "runs", table))


def _run(connection: apsw.Connection, sql: str, **values: object) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = connection.execute(sql, values).fetchall()
    return rows
