"""Upgrades: an older database is brought up to date under the claim and keeps its rows; or it is refused untouched.

Until the first release there is one schema, which changes in place: a database of another pre-release is refused with
what to do. The migration here is made up; it does to today's schema what a later one will do.
"""

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from pwf.errors import StoreRefused
from pwf.protocol.database_file import APPLICATION_ID
from pwf.store import migrate
from pwf.store.database import PAGE_BYTES
from tests.store.world import World, graph, linear, node

ROOT = Path(__file__).parents[2]
SCHEMA = "pwf/store/schema.sql"

#: Rebuilds a table that others refer to, and adds a column and a table.
NEXT = """
CREATE TABLE tags(run_id TEXT NOT NULL REFERENCES runs(run_id), tag TEXT NOT NULL, PRIMARY KEY (run_id, tag))
STRICT, WITHOUT ROWID;
CREATE TABLE contents_new(
  digest TEXT PRIMARY KEY CHECK (length(digest) = 64),
  size INTEGER NOT NULL CHECK (size >= 0),
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)),
  created_wall_ms INTEGER NOT NULL,
  note TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO contents_new SELECT digest, size, complete, created_wall_ms, NULL FROM contents;
DROP TABLE contents;
ALTER TABLE contents_new RENAME TO contents;
"""


def filled(folder):
    """A database with a run in every state, and its rows."""
    world = World(folder)
    done = world.run(linear(2))
    done.finish("x" * 10_000, to="b")
    done.finish()
    done.leave()
    asked = world.run(graph(node("ask", "checkpoint")))
    asked.ask()
    asked.leave()
    world.pause(world.start(linear(1)))
    world.run(linear(3))
    world.start(linear(1), input="x" * 10_000)
    rows = world.dump()
    assert rows["contents"]
    world.close()
    return rows


def test_a_migrated_database_keeps_every_row_and_its_rules(tmp_path, monkeypatch):
    rows = filled(tmp_path)
    first = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: (*first, (2, NEXT)))
    monkeypatch.setattr("pwf.store.database.refuse_other_schema", lambda connection, path: None)

    world = World(tmp_path)

    found = world.dump()
    assert found.pop("tags") == []
    found["contents"] = [row[:4] for row in found["contents"]]
    assert found == rows
    world.check()
    assert world.sql("PRAGMA user_version") == [(2,)]
    assert world.sql("PRAGMA foreign_key_check") == []
    assert world.launch().finish(1) == "end"
    world.close()


def previous_schema():
    """The schema of the newest commit in which it was another than today's; None without a history."""

    def git(*words):
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    today = (ROOT / SCHEMA).read_text()
    for commit in git("log", "-20", "--format=%H", "--", SCHEMA).split():
        text = git("show", f"{commit}:{SCHEMA}")
        if text and text != today:
            return text
    return None


def test_a_database_of_the_previous_commits_schema_is_refused_untouched_with_what_to_do(tmp_path):
    schema = previous_schema()
    if schema is None:
        pytest.skip("this copy of pwf has no history to take an earlier schema from")
    path = tmp_path / "pwf.db"
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", PAGE_BYTES)
    connection.pragma("auto_vacuum", 2)
    connection.pragma("application_id", APPLICATION_ID)
    migrate.run_script(connection, schema)
    connection.pragma("user_version", migrate.schema_version())
    connection.execute("INSERT INTO meta VALUES ('home_id', 'kept')").fetchall()
    connection.close()
    if same_form(schema):
        pytest.skip("the previous commit changed only remarks")
    before = path.read_bytes()

    with pytest.raises(StoreRefused) as caught:
        World(tmp_path)

    assert "first difference" in caught.value.message
    assert "move it away" in caught.value.hint
    assert path.read_bytes() == before


def test_what_the_previous_commit_wrote_is_opened_with_every_row(tmp_path):
    code = tmp_path / "previous"
    if not check_out("HEAD~1", code):
        pytest.skip("this copy of pwf has no previous commit")
    schema = (code / SCHEMA).read_text()
    if not same_form(schema):
        pytest.skip("it had another schema, which is refused until the first release: the test above")
    home = tmp_path / "home"
    home.mkdir()
    fill = (
        "import pathlib, sys; from tests.store.test_upgrade import filled; filled(pathlib.Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(code)}
    subprocess.run([sys.executable, "-c", fill, str(home)], cwd=code, env=environment, check=True)
    written = rows_of(home / "pwf.db")
    assert written["runs"]

    world = World(home)

    assert world.dump() == written
    world.check()
    assert world.launch().finish() == "end"
    world.close()


def check_out(commit, folder):
    """That commit's files. False where there is no such commit."""
    done = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False)
    if done.returncode != 0:
        return False
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=done.stdout, check=True)
    return True


def rows_of(path):
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in sorted(tables)}
    finally:
        connection.close()


def same_form(schema):
    connection = apsw.Connection(":memory:")
    try:
        migrate.run_script(connection, schema)
        return migrate.schema_of(connection) == migrate.expected_schema()
    finally:
        connection.close()
