"""SQL on your own database, exactly once: a row with the effect's key is in the transaction of the statements.

The row is the proof: it is there if and only if the transaction was committed. A second try meets it, does nothing, and
gets the output of the first. The row has the digest of its request: another request never gets that output.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from pwf.effects.prepared import Request, ask_again
from pwf.errors import Conflict
from pwf.workflow.effects import NotApplied, Observation, applied, not_applied, unknown

TABLE = "pwf_effects"


class SqlDone(msgspec.Struct, frozen=True, kw_only=True):
    """The output: of each statement, how many rows it changed (-1: not known), and what the last one returned."""

    changed: tuple[int, ...]
    rows: tuple[tuple[Any, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SqlTransaction(Request[SqlDone]):
    """Run `statements`, each with its parameters, in one transaction of your SQLite or PostgreSQL database.

    `connect` opens a DB-API connection (`sqlite3.connect`, `psycopg.connect`), which is closed afterwards. Whoever it
    connects as must be allowed to make the table `pwf_effects`, or it must be there. What the last statement returns
    must be JSON.
    """

    connect: Callable[[], Any]
    statements: Sequence[tuple[str, Sequence[Any]]]
    patience_s: float = 60.0  # for so long a database that is busy or away is asked again what has happened

    def apply(self, key: str) -> SqlDone:
        """Run them, or give the output of the try that did. Everything that fails before COMMIT is `NotApplied`.

        Raises `Conflict` when something else was done under the key.
        """
        with closing(self._opened()) as database:
            try:
                done = self._claim(database, key) or self._run(database, key)
            except Conflict:
                raise
            except Exception as error:
                with suppress(Exception):  # the connection may be gone, and its transaction with it
                    database.rollback()
                raise NotApplied(f"the transaction was rolled back: {error}") from error
            database.commit()
            return done

    def observe(self, key: str) -> Observation:
        """Try to take the key, which waits for a transaction of the old connection to end, and give it back.

        Raises `Conflict` as `apply` does.
        """
        return ask_again(lambda: self._look(key), "unknown", self.patience_s)

    def _look(self, key: str) -> Observation:
        try:
            with closing(self._opened()) as database:
                done = self._claim(database, key)
                database.rollback()
        except Conflict:
            raise
        except Exception:  # noqa: BLE001 - each driver has errors of its own
            return unknown()
        return not_applied() if done is None else applied(done, ref=key)

    def _opened(self) -> Any:
        try:
            database = self.connect()
        except Exception as error:
            raise NotApplied(f"the database could not be opened: {error}") from error
        if _is_sqlite(database):
            if hasattr(sqlite3, "LEGACY_TRANSACTION_CONTROL"):  # Python 3.12
                database.autocommit = sqlite3.LEGACY_TRANSACTION_CONTROL
            database.isolation_level = None  # `_claim` begins the transaction itself
        elif getattr(database, "autocommit", False):
            database.autocommit = False  # else each statement would be a transaction of its own
        return database

    def _claim(self, database: Any, key: str) -> SqlDone | None:
        """Begin a transaction that holds the key's row. What was done under the key, or None: nothing was."""
        cursor, mark = database.cursor(), _mark(database)
        if _is_sqlite(database):
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute(f"SELECT max(name) FROM sqlite_master WHERE type = 'table' AND name = '{TABLE}'")
        else:
            cursor.execute(f"SELECT to_regclass('{TABLE}')")
        if cursor.fetchone()[0] is None:
            cursor.execute(f"CREATE TABLE {TABLE}(effect_key TEXT PRIMARY KEY, request TEXT, output TEXT)")
        wanted = self._digest()
        row = f"INSERT INTO {TABLE}(effect_key, request) VALUES ({mark}, {mark}) ON CONFLICT DO NOTHING"
        cursor.execute(row, (key, wanted))
        if cursor.rowcount == 1:
            return None
        cursor.execute(f"SELECT request, output FROM {TABLE} WHERE effect_key = {mark}", (key,))
        request, output = cursor.fetchone()
        if request != wanted:
            raise Conflict(
                f"another request was carried out under the effect key {key}",
                hint="the function that makes the request must depend on ctx alone",
            )
        return msgspec.json.decode(output, type=SqlDone)

    def _digest(self) -> str:
        """The same for the same statements and parameters, in every process."""
        return hashlib.sha256(json.dumps(list(self.statements), default=_plain).encode()).hexdigest()

    def _run(self, database: Any, key: str) -> SqlDone:
        cursor = database.cursor()
        changed: list[int] = []
        rows: tuple[tuple[Any, ...], ...] = ()
        for statement, parameters in self.statements:
            cursor.execute(statement, parameters)
            rows = tuple(tuple(row) for row in cursor.fetchall()) if cursor.description else ()
            changed.append(cursor.rowcount)
        output = msgspec.json.encode(SqlDone(changed=tuple(changed), rows=rows)).decode()
        mark = _mark(database)
        cursor.execute(f"UPDATE {TABLE} SET output = {mark} WHERE effect_key = {mark}", (output, key))
        return msgspec.json.decode(output, type=SqlDone)  # what a second try would read


def _plain(value: object) -> str:
    """What stands in a digest for a parameter that is no JSON. What would tell an address tells only its type."""
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    return type(value).__qualname__ if type(value).__repr__ is object.__repr__ else repr(value)


def _mark(database: Any) -> str:
    """What stands for a parameter."""
    return "?" if _is_sqlite(database) else "%s"


def _is_sqlite(database: Any) -> bool:
    return type(database).__module__.partition(".")[0] == "sqlite3"
