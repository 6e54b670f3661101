"""The schema's number, how a new database gets it, and how an older one is brought up to it.

`schema.sql` is the canonical result: a new database is made from it. Until the first release it is also migration 1, so
that there is one text. From then on `migrations/NNNN_what.sql` lead there from each released number, 0001 being the
released schema, and a test holds both ways equal. Migrations go forward only and are never edited once released; each
runs in one transaction with its number, so that a crash leaves the old schema or the new one, never a mixture.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import apsw

from pwf.errors import StoreRefused

_HERE = Path(__file__).parent
_FILE = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Numbers and texts in order: 1, 2, 3 … without a gap."""
    found = sorted(
        (int(match[1]), path.read_text(encoding="utf-8"))
        for path in (_HERE / "migrations").glob("*.sql")
        if (match := _FILE.fullmatch(path.name))
    )
    found = found or [(1, _schema())]
    numbers = [number for number, _ in found]
    if numbers != list(range(1, len(numbers) + 1)):
        raise RuntimeError(f"migrations are not numbered 1, 2, 3 …: {numbers}")
    return tuple(found)


def schema_version() -> int:
    """The number that this pwf serves."""
    return migrations()[-1][0]


def create_schema(connection: apsw.Connection) -> None:
    """Make the schema in an empty database, inside the caller's transaction."""
    run_script(connection, _schema())
    connection.pragma("user_version", schema_version())


def migrate(connection: apsw.Connection) -> list[int]:
    """Bring an older database up to `schema_version()`; returns the numbers that were applied.

    The caller has refused databases from a newer pwf. Raises `StoreRefused` when a migration would leave a
    dangling reference; then nothing of it is kept.
    """
    present = connection.pragma("user_version")
    applied: list[int] = []
    connection.pragma("foreign_keys", False)  # a migration rebuilds tables; checked at its end
    try:
        for number, script in migrations()[present:]:
            _apply(connection, number, script)
            applied.append(number)
    finally:
        connection.pragma("foreign_keys", True)
    return applied


def schema_of(connection: apsw.Connection) -> dict[str, str]:
    """Every table, index, trigger and view with its SQL, free of comments and white space: for comparing."""
    return {what: _normal(sql) for what, sql in written_schema(connection).items()}


def written_schema(connection: apsw.Connection) -> dict[str, str]:
    """The same as it was written: where this is equal, nothing needs to be made comparable."""
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return {f"{kind} {name}": str(sql) for kind, name, sql in rows}


@cache
def expected_schema() -> dict[str, str]:
    """What `schema_of` must give for a database that this pwf serves."""
    return {what: _normal(sql) for what, sql in expected_as_written().items()}


@cache
def expected_as_written() -> dict[str, str]:
    """What `written_schema` gives for a database that this pwf has made."""
    connection = apsw.Connection(":memory:")
    try:
        create_schema(connection)
        return written_schema(connection)
    finally:
        connection.close()


def run_script(connection: apsw.Connection, script: str) -> None:
    """Run a text of many statements to its end."""
    connection.execute(script).fetchall()


def _schema() -> str:
    return (_HERE / "schema.sql").read_text(encoding="utf-8")


def _apply(connection: apsw.Connection, number: int, script: str) -> None:
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        run_script(connection, script)
        dangling = connection.execute("PRAGMA foreign_key_check").fetchall()
        if dangling:
            raise StoreRefused(
                f"migration {number} would leave {len(dangling)} dangling references, "
                f"the first in {dangling[0][0]}",
                hint="nothing was changed; report this with the output of: pwf state verify",
            )
        connection.pragma("user_version", number)
        connection.execute("COMMIT").fetchall()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK").fetchall()


def _normal(sql: str) -> str:
    without_comments = re.sub(r"--[^\n]*", " ", sql)
    return re.sub(r"\s*([(),=])\s*", r"\1", re.sub(r"\s+", " ", without_comments)).strip()
