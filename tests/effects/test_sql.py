"""`SqlTransaction`: exactly once, in a SQLite file and in a real PostgreSQL server where there is one."""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pwf.effects.sql import SqlTransaction
from pwf.errors import Conflict
from pwf.workflow.effects import NotApplied
from tests.effects.killed import KEY, is_told_right_wherever_it_is_killed

Connect = Callable[[], Any]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.rest)])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Opens the user's database, which has a table `tally`."""
    connect: Connect = functools.partial(sqlite3.connect, tmp_path / "data.db")
    if request.param == "postgresql":
        connect = request.getfixturevalue("postgresql")
    with closing(connect()) as database:
        database.execute("CREATE TABLE tally(name TEXT UNIQUE, n INTEGER)")
        database.commit()
    return connect


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """The socket's folder of a server of our own, which is started for these tests."""
    found = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None)
    if found is None:
        pytest.skip("there is no PostgreSQL here (Debian: apt install postgresql)")
    pytest.importorskip("psycopg", reason="psycopg can't be imported")
    folder = Path(tempfile.mkdtemp(prefix="pwf-pg-", dir="/tmp"))  # a socket's path is short
    who: dict[str, Any] = {}
    if os.getuid() == 0:  # a server that must not run as root
        who = {"user": "nobody", "extra_groups": []}
        shutil.chown(folder, "nobody")
    binaries = Path(found).resolve().parent
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **who}
    try:
        made = [
            binaries / "initdb",
            "-D",
            folder / "data",
            "-U",
            "pwf",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(made, check=True, **quiet)
        options = f"-c listen_addresses='' -c fsync=off -k {folder}"
        control = [binaries / "pg_ctl", "-D", folder / "data", "-w", "-o", options]
        subprocess.run([*control, "start"], check=True, **quiet)
        yield folder
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, **quiet)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def postgresql(server: Path) -> Connect:
    import psycopg

    with psycopg.connect(host=str(server), user="pwf", dbname="postgres", autocommit=True) as database:
        database.execute("DROP TABLE IF EXISTS tally, pwf_effects")
    return lambda: psycopg.connect(host=str(server), user="pwf", dbname="postgres")


def rows(connect: Connect, table: str = "tally") -> list[tuple[Any, ...]]:
    with closing(connect()) as database:
        return [tuple(row) for row in database.execute(f"SELECT * FROM {table}").fetchall()]


def adds(connect: Connect, name: str = "a") -> SqlTransaction:
    return SqlTransaction(
        connect=connect,
        patience_s=0,
        statements=[
            (f"INSERT INTO tally VALUES ('{name}', 1)", ()),
            (f"UPDATE tally SET n = n + 1 WHERE name = '{name}' RETURNING n", ()),
        ],
    )


def test_a_second_try_does_nothing_and_gets_the_output_of_the_first(connect: Connect) -> None:
    done = adds(connect).apply(KEY)
    assert (done.changed, done.rows) == ((1, 1), ((2,),))
    assert adds(connect).apply(KEY) == adds(connect).observe(KEY).output == done
    assert rows(connect) == [("a", 2)]


def test_another_request_under_the_key_gets_no_output_of_it_and_does_nothing(connect: Connect) -> None:
    adds(connect).apply(KEY)
    for ask in (adds(connect, "b").apply, adds(connect, "b").observe):
        with pytest.raises(Conflict, match=f"another request was carried out under the effect key {KEY}"):
            ask(KEY)
    assert rows(connect) == [("a", 2)]


def test_a_request_has_the_same_digest_whatever_kind_of_parameter_it_has() -> None:
    class Wrapped:  # as drivers have them: each repr of it names another address
        pass

    def request() -> SqlTransaction:
        parameters = [
            1,
            2**70,
            1.5,
            None,
            "ä",
            b"\x00",
            memoryview(b"b"),
            Decimal("1.10"),
            date(2026, 1, 1),
            Wrapped(),
        ]
        return SqlTransaction(connect=list, statements=[("a", parameters), ("b", {"n": (1,)})])

    assert request()._digest() == request()._digest()


@pytest.mark.rest
def test_wherever_it_is_killed_it_is_told_right_and_happens_exactly_once(connect: Connect) -> None:
    def make(number: int) -> SqlTransaction:
        with closing(connect()) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS pwf_effects(effect_key TEXT PRIMARY KEY, request TEXT, output TEXT)"
            )
            database.execute("DELETE FROM pwf_effects")
            database.execute("DELETE FROM tally")
            database.commit()
        return adds(connect)

    is_told_right_wherever_it_is_killed(make, lambda number: len(rows(connect)))


def test_a_statement_that_fails_takes_everything_back_and_has_not_happened(connect: Connect) -> None:
    adds(connect).apply("run1:save:2")
    with pytest.raises(NotApplied, match="rolled back"):
        adds(connect).apply(KEY)
    assert adds(connect).observe(KEY).verdict == "not_applied"
    assert [key for key, *_ in rows(connect, "pwf_effects")] == ["run1:save:2"]


def test_a_connection_that_commits_each_statement_by_itself_is_made_to_commit_all_at_once(
    connect: Connect,
) -> None:
    def by_itself() -> Any:
        database = connect()
        if isinstance(database, sqlite3.Connection):
            database.isolation_level = None
        else:
            database.autocommit = True
        return database

    adds(connect, "b").apply("run1:save:2")
    both = (*adds(connect).statements, *adds(connect, "b").statements)
    with pytest.raises(NotApplied, match="rolled back"):
        SqlTransaction(connect=by_itself, statements=both).apply(KEY)
    assert rows(connect) == [("b", 2)]


def test_a_transaction_that_still_goes_on_is_unknown_and_never_denied(connect: Connect) -> None:
    def impatient() -> Any:
        database = connect()
        is_file = isinstance(database, sqlite3.Connection)
        database.execute("PRAGMA busy_timeout = 0" if is_file else "SET lock_timeout = 50")
        return database

    with closing(connect()) as database:
        database.execute("CREATE TABLE pwf_effects(effect_key TEXT PRIMARY KEY, request TEXT, output TEXT)")
        database.commit()
        database.execute(f"INSERT INTO pwf_effects VALUES ('{KEY}', NULL, NULL)")
        assert adds(impatient).observe(KEY).verdict == "unknown"
        database.rollback()
    assert adds(impatient).observe(KEY).verdict == "not_applied"


def test_a_database_that_is_busy_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pwf.effects.prepared.ASK_AGAIN_S", 0)
    opened: list[sqlite3.Connection] = []

    def impatient() -> sqlite3.Connection:
        if len(opened) == 3:
            other.rollback()
        opened.append(sqlite3.connect(tmp_path / "data.db", timeout=0))
        return opened[-1]

    with closing(sqlite3.connect(tmp_path / "data.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        request = SqlTransaction(connect=impatient, statements=[], patience_s=30)
        assert request.observe(KEY).verdict == "not_applied"
    assert len(opened) == 4


def test_a_database_that_is_not_there_has_had_nothing_done_to_it_and_tells_nothing() -> None:
    def nowhere() -> Any:
        raise OSError("no route")

    with pytest.raises(NotApplied, match="no route"):
        SqlTransaction(connect=nowhere, statements=[]).apply(KEY)
    assert SqlTransaction(connect=nowhere, statements=[], patience_s=0).observe(KEY).verdict == "unknown"
