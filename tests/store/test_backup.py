"""Backup, restore, and what is newer than a backup."""

import os
import random
import shutil

import apsw
import pytest

from pwf.errors import Conflict, DiskFull, InvalidArgument, Rejected, StoreBroken, StoreRefused
from pwf.ids import Ids
from pwf.store import backup as backup_module
from pwf.store import restore as restore_module
from pwf.store.backup import read_made, write_backup
from pwf.store.daemon import ClaimEpoch
from pwf.store.home import ClaimHome, claim_home
from pwf.store.migrate import schema_version
from pwf.store.restore import check_backup, compare, restore_backup
from tests.store.support import do, put
from tests.store.world import World, graph, linear, node

ASK = graph(node("ask", "checkpoint"))
BIG = "x" * 500_000


def serve(world, inode=7):
    command = ClaimHome(
        claim=ClaimEpoch(token="t", lease_ms=30_000, pid=9, version="x"), device=1, inode=inode
    )
    claimed = world.do(claim_home, command)
    world.epoch = claimed.epoch
    return claimed


@pytest.fixture
def served(world):
    serve(world)
    return world


@pytest.fixture
def file(tmp_path):
    return tmp_path / "backup.db"


def back_up(world, file, check_wanted=lambda: None):
    return write_backup(
        world.spec.path, file, now=world.clock.now(), epoch=world.epoch, check_wanted=check_wanted
    )


def check(world, file):
    return check_backup(file, world.clock.now())


def ended(world):
    runner = world.run(linear(1))
    runner.finish(BIG)
    runner.leave()
    return runner.run_id


def restored(world, file, folder):
    """A store on the restored file, in a folder of its own."""
    folder.mkdir()
    restore_backup(file, folder / "pwf.db")
    again = World(folder, world.clock)
    again.writer.tx.ids = Ids(random.Random(2).getrandbits)
    return again


# --- backup ---------------------------------------------------------------------------------------------------


def test_a_backup_is_one_private_file_that_says_what_it_is(served, file):
    run_id = ended(served)
    made = back_up(served, file)
    assert (made.path, made.size, made.runs, made.violations) == (str(file), file.stat().st_size, 1, ())
    assert made.made.at_ms == served.clock.wall_ms
    assert made.made.epoch == served.epoch
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert sorted(path.name for path in file.parent.glob("backup.db*")) == ["backup.db"]
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.execute("SELECT run_id FROM runs").fetchall() == [(run_id,)]
    assert connection.pragma("journal_mode") == "delete"
    connection.close()


def test_a_backup_is_one_instant_while_commands_go_on(served, file, monkeypatch):
    for _ in range(4):
        ended(served)
    monkeypatch.setattr(backup_module, "STEP_PAGES", 1)
    steps = []

    def write_between():
        steps.append(1)
        if len(steps) % 10 == 0:
            do(served.writer, put, f"{len(steps)}")

    back_up(served, file, write_between)

    assert len(steps) > 100
    assert len(served.sql("SELECT key FROM meta WHERE value = 'v'")) >= 10
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.execute("SELECT count(*) FROM meta WHERE value = 'v'").fetchall() == [(0,)]
    connection.close()


def test_a_backup_that_is_given_up_leaves_no_file(served, file):
    ended(served)

    class GivenUp(Exception):
        pass

    def give_up():
        raise GivenUp

    with pytest.raises(GivenUp):
        back_up(served, file, give_up)
    assert list(file.parent.glob("backup*")) == []


def test_a_backup_that_is_given_up_while_it_is_verified_leaves_no_file(served, file, monkeypatch):
    ended(served)
    monkeypatch.setattr(backup_module, "STEPS_BETWEEN_CHECKS", 10)
    finish, verifying = backup_module._finish, []

    def begin_to_finish(*arguments):
        verifying.append(True)
        return finish(*arguments)

    monkeypatch.setattr(backup_module, "_finish", begin_to_finish)

    def check_wanted():
        if verifying:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(served, file, check_wanted)
    assert list(file.parent.glob("backup*")) == []


def test_a_target_that_can_not_be_is_refused_before_anything_is_read(served, file, monkeypatch):
    with pytest.raises(InvalidArgument, match="absolute"):
        back_up(served, type(file)("b.db"))
    with pytest.raises(InvalidArgument, match="no folder"):
        back_up(served, file.parent / "nowhere" / "b.db")
    with pytest.raises(Conflict, match="is a folder"):
        back_up(served, file.parent)
    file.write_text("precious")
    with pytest.raises(Conflict, match="exists"):
        back_up(served, file)
    assert file.read_text() == "precious"
    file.unlink()
    monkeypatch.setattr(backup_module, "MARGIN_BYTES", 10**18)
    with pytest.raises(DiskFull, match="left"):
        back_up(served, file)


def test_a_database_that_is_damaged_gives_no_backup(served, file):
    ended(served)
    served.checked = False
    foreign = apsw.Connection(str(served.spec.path))  # without foreign keys
    foreign.execute("DELETE FROM definitions").fetchall()
    foreign.close()
    with pytest.raises(StoreBroken, match="damaged"):
        back_up(served, file)
    assert not file.exists()


def test_a_rule_that_a_run_breaks_is_named_and_the_backup_is_made(served, file):
    run_id = ended(served)
    served.checked = False
    served.sql("UPDATE runs SET attempts = 9")
    made = back_up(served, file)
    assert [(found.rule, found.run_id) for found in made.violations] == [("attempts_miscounted", run_id)]
    assert file.exists()


DAMAGES = [
    "DELETE FROM content_chunks WHERE chunk = 1",
    "UPDATE content_chunks SET data = x'00' WHERE chunk = 1",
    "UPDATE runs SET input = x'7b'",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_values_are_named_by_backup_and_by_restore(served, file, damage):
    run_id = served.start(linear(1), input=BIG)
    served.checked = False
    served.sql(damage)
    made = back_up(served, file)
    assert [found.run_id for found in made.violations] == [run_id]
    assert check(served, file).violations == made.violations


@pytest.mark.parametrize("page", [2, 5, 9])
def test_a_database_with_a_page_of_nonsense_gives_no_backup_or_names_it_never_another_error(
    served, file, page
):
    ended(served)
    served.checked = False
    served.close()
    data = bytearray(served.spec.path.read_bytes())
    data[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    served.spec.path.write_bytes(bytes(data))
    with pytest.raises(StoreBroken, match="damaged") as caught:
        back_up(served, file)
    assert "pwf state verify" in caught.value.hint
    assert not file.exists()
    for left in served.spec.path.parent.glob("pwf.db*"):
        left.unlink()
    served.writer = served.spec.writer()


@pytest.mark.parametrize("name", ["backup.db.partial", "backup.db.new"])
def test_a_file_of_the_users_beside_the_backup_is_left_alone(served, file, name):
    theirs = file.with_name(name)
    theirs.write_text("precious")
    back_up(served, file)
    assert theirs.read_text() == "precious"


@pytest.mark.parametrize("end", ["-wal", "-journal", "-shm"])
def test_a_file_that_sqlite_would_take_for_a_part_of_the_backup_is_a_conflict_and_left_alone(
    served, file, end
):
    theirs = file.with_name(file.name + end)
    theirs.write_text("precious")
    with pytest.raises(Conflict, match=f"{end} exists"):
        back_up(served, file)
    assert theirs.read_text() == "precious"
    assert not file.exists()


@pytest.mark.parametrize("name", ["pwf.db-journal", "pwf.db.new", "PWF.DB-mj1"])
def test_the_databases_own_side_files_are_no_target(served, name):
    with pytest.raises(Conflict, match="belongs to the database itself"):
        back_up(served, served.spec.path.with_name(name))
    assert not served.spec.path.with_name(name).exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [("a\0b", "NUL"), ("x" * 300, "File name too long"), ("/".join(["x" * 200] * 30), "File name too long")],
)
def test_a_name_that_no_file_can_have_is_one_plain_error_for_backup_and_restore(served, file, name, said):
    with pytest.raises(InvalidArgument, match=said):
        back_up(served, file.with_name("d") / name if "/" in name else file.parent / name)
    with pytest.raises(StoreRefused, match="there is no file"):
        check(served, file.parent / name)


# --- restore --------------------------------------------------------------------------------------------------


def test_a_restored_backup_has_everything_and_holds_what_was_going_on(served, file, tmp_path):
    done = ended(served)
    served.run(linear(2))
    going_on = served.start(linear(1))
    back_up(served, file)
    first = served.sql("SELECT value FROM meta WHERE key = 'home_id'")
    checked = check(served, file)
    assert (checked.runs, checked.going_on, checked.violations) == (3, {"queued": 1, "running": 1}, ())
    assert checked.made.home_id == first[0][0]
    assert checked.newest_ms == served.clock.wall_ms

    again = restored(served, file, tmp_path / "again")
    # even the very same folder, by its inode, is not the place of a backup
    claimed = serve(again)

    assert claimed.home_id != first[0][0]
    assert again.row(going_on)["hold"] == "restored"
    assert again.sql("SELECT * FROM runners") == []
    assert again.status(done) == "completed"
    output = again.view(done).output
    assert output.size == len(BIG) + 2
    assert again.do(lambda tx, _: read_made(tx)).epoch == served.epoch
    again.check()
    again.close()


def test_a_plain_copy_of_a_database_is_restored_as_a_backup_is(served, file, tmp_path):
    run_id = served.start(linear(1))
    served.close()
    shutil.copy(served.spec.path, file)
    served.writer = served.spec.writer()
    assert check(served, file).made is None

    again = restored(served, file, tmp_path / "again")
    serve(again)

    assert again.row(run_id)["hold"] == "restored"
    again.close()


def test_a_file_that_is_no_backup_is_refused_with_the_reason(served, file, tmp_path):
    with pytest.raises(StoreRefused, match="there is no file"):
        check(served, file)
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreRefused, match="not a pwf database"):
        check(served, file)
    file.unlink()
    back_up(served, file)
    connection = apsw.Connection(str(file))
    connection.pragma("user_version", schema_version() + 1)
    connection.close()
    with pytest.raises(StoreRefused, match="newer pwf"):
        check(served, file)


def test_a_damaged_backup_is_refused(served, file):
    ended(served)
    back_up(served, file)
    data = bytearray(file.read_bytes())
    for page in range(8, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(bytes(data))
    with pytest.raises(StoreRefused, match=r"damaged|read"):
        check(served, file)


def test_restore_never_replaces_a_database_nor_its_log(served, file, tmp_path):
    back_up(served, file)
    kept = served.spec.path.read_bytes()
    with pytest.raises(Rejected):
        restore_backup(file, served.spec.path)
    assert served.spec.path.read_bytes() == kept
    home = tmp_path / "home"
    home.mkdir()
    (home / "pwf.db-wal").write_bytes(b"left over")
    with pytest.raises(Rejected, match="-wal"):
        restore_backup(file, home / "pwf.db")
    assert os.listdir(home) == ["pwf.db-wal"]


def test_a_restore_that_fails_leaves_no_database(served, file, tmp_path, monkeypatch):
    back_up(served, file)
    home = tmp_path / "home"
    home.mkdir()

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(restore_module.NewFile, "finish", no_room)
    with pytest.raises(StoreRefused, match="No space left"):
        restore_backup(file, home / "pwf.db")
    assert os.listdir(home) == []


# --- what is newer --------------------------------------------------------------------------------------------


def test_what_is_newer_than_a_backup_is_named(served, file):
    old, moved = ended(served), served.start(ASK)
    back_up(served, file)
    assert compare(file, served.spec.path, served.clock.now()).named == ()
    served.clock.forward(1_000)
    served.launch(moved).ask()
    new = served.start(linear(1))

    newer = compare(file, served.spec.path, served.clock.now())

    assert (newer.made, newer.changed, newer.newest_ms) == (1, 1, served.clock.wall_ms)
    assert newer.named == (f"{moved} (waiting)", f"{new} (queued)")
    assert old not in str(newer.named)


def test_a_present_database_that_can_not_be_read_is_named_as_such(served, file, tmp_path):
    back_up(served, file)
    damaged = tmp_path / "damaged.db"
    served.start(ASK)
    back_up(served, damaged)
    data = bytearray(damaged.read_bytes())
    for page in range(3, len(data) // 4096):
        data[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    damaged.write_bytes(bytes(data))
    with pytest.raises(StoreRefused, match=r"damaged\.db (can not be read|is damaged)"):
        compare(file, damaged, served.clock.now())


def test_a_backup_of_an_empty_database_restores_to_one(tmp_path, file):
    first = World(tmp_path)
    serve(first)
    back_up(first, file)
    again = restored(first, file, tmp_path / "again")
    serve(again)
    assert again.sql("SELECT count(*) FROM runs") == [(0,)]
    again.close()
    first.close()
