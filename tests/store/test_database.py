"""Opening: whose file it is, what is in it, how SQLite must treat it (S6), a foreign lock (S1)."""

import hashlib
import os
import stat
import threading
import time

import apsw
import pytest

from pwf.errors import HomeRefused, StoreBroken, StoreRefused
from pwf.store import database, migrate
from pwf.store.database import (
    FileGuard,
    check_settings,
    open_reader,
    open_writer,
    read_settings,
)
from tests.store.support import Warnings, make_spec, run


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pwf.db"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def fingerprint(folder):
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if not file.name.endswith("-shm")  # an index of the WAL, which SQLite makes to read it
    }


# --- the file ---------------------------------------------------------------------------------------------


def test_a_new_database_has_every_setting_that_durability_rests_on(path):
    connection = open_writer(path)
    found = read_settings(connection)
    assert found["journal_mode"] == "wal"
    assert found["synchronous"] == 2
    assert found["foreign_keys"] == 1
    assert found["auto_vacuum"] == 2
    assert found["application_id"] == 0x70776631
    assert found["user_version"] == migrate.schema_version()
    connection.close()


def test_the_settings_are_there_again_after_a_restart(path):
    open_writer(path).close()
    connection = open_writer(path)
    check_settings(path, read_settings(connection))
    connection.close()


def test_all_files_are_for_the_owner_alone(path):
    old = os.umask(0)
    try:
        connection = open_writer(path)
        connection.execute("INSERT INTO meta VALUES ('a', 'b')").fetchall()
        assert {file.name: mode(file) for file in path.parent.iterdir()} == {
            "pwf.db": 0o600,
            "pwf.db-wal": 0o600,
            "pwf.db-shm": 0o600,
        }
        connection.close()
    finally:
        os.umask(old)


def test_a_file_that_others_could_read_is_made_private(path):
    open_writer(path).close()
    path.chmod(0o644)
    open_writer(path).close()
    assert mode(path) == 0o600


@pytest.mark.parametrize("name", ["journal_mode", "synchronous", "foreign_keys", "auto_vacuum"])
def test_a_setting_that_did_not_take_refuses_to_serve_and_names_it(path, name):
    connection = open_writer(path)
    found = read_settings(connection) | {name: "other"}
    connection.close()
    with pytest.raises(StoreRefused, match=f"{name} is 'other'"):
        check_settings(path, found)


def test_a_store_whose_synchronous_does_not_take_is_not_served(path, monkeypatch):
    real = apsw.Connection.pragma

    class Deaf(apsw.Connection):
        def pragma(self, name, *value):
            return (
                real(self, name) if name == "synchronous" and value == ("FULL",) else real(self, name, *value)
            )

        def execute(self, *args, **more):
            return super().execute(*args, **more)

    open_writer(path).close()
    monkeypatch.setattr(database.apsw, "Connection", Deaf)
    monkeypatch.setattr(database, "_SYNCHRONOUS", {"FULL": 3})
    with pytest.raises(StoreRefused, match="synchronous is 2"):
        open_writer(path)


def foreign_database(path):
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (a)").fetchall()
    connection.close()


@pytest.mark.parametrize(
    "make",
    [
        foreign_database,
        lambda path: path.write_bytes(b"not a database at all" * 100),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"SQLite format 3\x00"),
    ],
    ids=["another program's database", "no database", "empty", "cut off"],
)
def test_a_file_that_is_not_ours_is_refused_untouched(path, make):
    make(path)
    before = fingerprint(path.parent)
    with pytest.raises(StoreRefused, match="is not a pwf database"):
        open_writer(path)
    assert fingerprint(path.parent) == before


@pytest.mark.parametrize("name", ["pwf.db", "pwf.db-wal", "pwf.db-shm"])
def test_no_link_is_followed_to_the_database_nor_to_its_side_files(path, tmp_path, name):
    theirs = tmp_path / "elsewhere" / name
    theirs.parent.mkdir()
    if name != "pwf.db":
        open_writer(path).close()
    theirs.write_text("precious")
    theirs.chmod(0o644)
    path.with_name(name).symlink_to(theirs)
    with pytest.raises(HomeRefused, match=f"{name} is a link"):
        open_writer(path)
    assert (theirs.read_text(), mode(theirs)) == ("precious", 0o644)


def test_a_link_that_leads_nowhere_is_refused_as_well(path, tmp_path):
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(HomeRefused, match="is a link"):
        open_writer(path)


def test_a_database_from_a_newer_pwf_is_refused_untouched(path):
    connection = open_writer(path)
    connection.pragma("user_version", 99)
    connection.close()
    before = fingerprint(path.parent)
    with pytest.raises(StoreRefused, match="from a newer pwf: its schema is 99") as caught:
        open_writer(path)
    assert "upgrade pwf" in caught.value.hint
    assert fingerprint(path.parent) == before


def test_a_newer_number_that_stands_only_in_the_wal_is_seen_and_nothing_is_moved(path):
    connection = open_writer(path)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("user_version", 99)
    connection.close()
    before = fingerprint(path.parent)
    assert set(before) == {"pwf.db", "pwf.db-wal"}
    with pytest.raises(StoreRefused, match="from a newer pwf"):
        open_writer(path)
    assert fingerprint(path.parent) == before


def test_a_database_of_another_pre_release_is_refused_with_the_first_difference(path):
    connection = open_writer(path)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute("ALTER TABLE meta ADD COLUMN more TEXT").fetchall()
    connection.close()
    with pytest.raises(StoreRefused, match="first difference: table meta"):
        open_writer(path)


def test_a_wal_that_lost_its_database_is_not_played_into_a_new_one(path):
    path.with_name("pwf.db-wal").write_bytes(b"something")
    with pytest.raises(StoreRefused, match=r"pwf\.db-wal is still there"):
        open_writer(path)
    assert not path.exists()


def test_a_creation_that_was_cut_short_leaves_nothing_that_counts(path):
    path.with_name("pwf.db.new").write_bytes(b"half a database")
    path.with_name("pwf.db.new-journal").write_bytes(b"half a journal")
    open_writer(path).close()
    assert [file.name for file in path.parent.iterdir()] == ["pwf.db"]


def test_a_creation_that_fails_leaves_no_database(path, monkeypatch):
    def fail(connection):
        raise apsw.FullError("no space")

    monkeypatch.setattr(database, "create_schema", fail)
    with pytest.raises(StoreRefused, match="can not be made"):
        open_writer(path)
    assert not path.exists()


def test_a_file_without_hard_links_is_renamed_into_place(path, monkeypatch):
    def no_links(source, target):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    open_writer(path).close()
    assert [file.name for file in path.parent.iterdir()] == ["pwf.db"]


def test_a_damaged_database_is_refused(path):
    open_writer(path).close()
    data = bytearray(path.read_bytes())
    data[100:2000] = b"\xff" * 1900
    path.write_bytes(bytes(data))
    with pytest.raises(StoreRefused, match="damaged") as caught:
        open_writer(path)
    assert "backup" in caught.value.hint


def test_the_reader_can_not_write(path):
    writer = open_writer(path)
    reader = open_reader(path)
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("INSERT INTO meta VALUES ('a', 'b')").fetchall()
    reader.close()
    writer.close()


# --- files that are taken away while they are served ------------------------------------------------------


def removed(file):
    file.unlink()


def moved(file):
    file.rename(file.with_name("elsewhere"))


def replaced(file):
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    other.rename(file)


def linked(file):
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def without_its_folder(file):
    file.parent.rename(file.parent.with_name("moved"))


@pytest.mark.parametrize("name", ["pwf.db", "pwf.db-wal"])
@pytest.mark.parametrize("harm", [removed, moved, replaced, linked, without_its_folder])
def test_a_file_that_is_deleted_or_replaced_while_it_is_open_is_noticed_and_named(tmp_path, name, harm):
    path = tmp_path / "home" / "pwf.db"
    path.parent.mkdir()
    connection = open_writer(path)
    guard = FileGuard(path)
    connection.execute("INSERT INTO meta VALUES ('a', 'b')").fetchall()
    guard.check()
    harm(path.with_name(name))
    with pytest.raises(StoreBroken, match=r"pwf\.db(-wal)? was (deleted|replaced by another file)") as caught:
        guard.check()
    assert "pwf state restore FILE" in caught.value.hint
    assert "pwf state new" in caught.value.hint
    connection.close()


def test_writing_checkpoints_and_further_readers_are_nothing_that_the_guard_notices(path):
    connection = open_writer(path)
    guard = FileGuard(path)
    guard.check()
    for step in range(3):
        connection.execute(f"INSERT INTO meta VALUES ('{step}', 'b')").fetchall()
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        open_reader(path).close()
        guard.check()
    connection.close()


def test_no_empty_database_takes_the_place_of_one_that_was_served(path):
    with pytest.raises(StoreRefused, match="is gone, and this folder was served before") as caught:
        open_writer(path, create=False)
    assert caught.value.hint == (
        "pwf state restore FILE puts a backup in its place; pwf state new begins with an empty one"
    )
    assert not path.exists()
    open_writer(path).close()
    open_writer(path, create=False).close()


# --- a foreign lock (S1) ------------------------------------------------------------------------------------


def test_a_foreign_lock_is_waited_for_warned_of_once_and_loses_nothing(tmp_path):
    warnings = Warnings()
    writer = make_spec(tmp_path, warn=warnings).writer()
    foreign = apsw.Connection(str(tmp_path / "pwf.db"))
    foreign.execute("BEGIN IMMEDIATE").fetchall()

    def let_go():
        time.sleep(1.0)
        foreign.execute("ROLLBACK").fetchall()

    thread = threading.Thread(target=let_go)
    thread.start()

    def put(tx, key):
        return tx.run("INSERT INTO meta VALUES (:key, 'v')", {"key": key})

    answers = run(writer, (put, "a"), (put, "b"))
    thread.join()
    assert [answer.value for answer in answers] == [1, 1]
    assert warnings.events == ["store.locked_by_another_process"]
    foreign.close()
    writer.close()


def test_a_foreign_lock_that_stays_makes_a_batch_unavailable(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_LIMIT_S", 0.05)
    monkeypatch.setattr(database.BusyWait.__init__, "__defaults__", (0.05,))
    writer = make_spec(tmp_path).writer()
    foreign = apsw.Connection(str(tmp_path / "pwf.db"))
    foreign.execute("BEGIN IMMEDIATE").fetchall()
    (answer,) = run(writer, (lambda tx, _: tx.one("SELECT 1"), None))
    assert answer.error.code == "unavailable"
    foreign.execute("ROLLBACK").fetchall()
    assert run(writer, (lambda tx, _: tx.one("SELECT 1"), None))[0].value == (1,)
    foreign.close()
    writer.close()
