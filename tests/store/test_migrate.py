"""Migrations and the canonical schema lead to the same database."""

import apsw
import pytest

from pwf.errors import StoreRefused
from pwf.store import migrate


@pytest.fixture
def empty():
    connection = apsw.Connection(":memory:")
    yield connection
    connection.close()


def test_the_migrations_from_nothing_make_the_canonical_schema(empty):
    migrate.migrate(empty)
    assert migrate.schema_of(empty) == migrate.expected_schema()
    assert empty.pragma("user_version") == migrate.schema_version()


def test_every_table_is_strict(empty):
    migrate.create_schema(empty)
    tables = empty.execute("SELECT name, strict FROM pragma_table_list WHERE type = 'table'").fetchall()
    assert [name for name, strict in tables if not strict and not str(name).startswith("sqlite_")] == []


def two_migrations(second):
    return lambda: ((1, "CREATE TABLE a (x INTEGER PRIMARY KEY) STRICT;"), (2, second))


def test_only_what_is_missing_is_applied_and_the_number_grows(empty, monkeypatch):
    monkeypatch.setattr(migrate, "migrations", two_migrations("ALTER TABLE a ADD COLUMN y TEXT"))
    empty.execute("CREATE TABLE a (x INTEGER PRIMARY KEY) STRICT; PRAGMA user_version = 1").fetchall()
    assert migrate.migrate(empty) == [2]
    assert empty.pragma("user_version") == 2
    assert migrate.migrate(empty) == []


def test_a_migration_that_fails_leaves_the_old_schema_whole(empty, monkeypatch):
    monkeypatch.setattr(migrate, "migrations", two_migrations("CREATE TABLE b (x) ; CREATE TABLE a (x)"))
    with pytest.raises(apsw.SQLError):
        migrate.migrate(empty)
    assert set(migrate.schema_of(empty)) == {"table a"}
    assert empty.pragma("user_version") == 1
    assert empty.pragma("foreign_keys") == 1


def test_a_migration_that_leaves_a_dangling_reference_is_refused_whole(empty, monkeypatch):
    second = "CREATE TABLE b (x INTEGER REFERENCES a (x)) STRICT; INSERT INTO b VALUES (7)"
    monkeypatch.setattr(migrate, "migrations", two_migrations(second))
    with pytest.raises(StoreRefused, match="dangling"):
        migrate.migrate(empty)
    assert set(migrate.schema_of(empty)) == {"table a"}


def test_schemas_are_compared_without_comments_and_white_space(empty):
    empty.execute("CREATE TABLE a(x TEXT, -- a remark\n  y   TEXT\n)").fetchall()
    assert migrate.schema_of(empty) == {"table a": "CREATE TABLE a(x TEXT,y TEXT)"}
