"""Batches, from the writer's thread or the loop's: savepoints, one COMMIT, and what follows when SQLite fails."""

import time

import apsw
import pytest

from pwf.errors import ClaimLost, DiskFull, OutcomeUnknown, Rejected, StoreBroken, Unavailable
from pwf.store.batch import WAL_IDLE_BYTES, WAL_PAUSE_BYTES, HeldClaim, Job, Writer
from pwf.store.database import WAL_KEPT_BYTES
from pwf.store.tx import DAEMON_NO
from tests.store.inline_executor import run_from_loop
from tests.store.support import do, keys, make_spec, put, put_then_raise, run, small_ballast


@pytest.fixture(autouse=True, params=["thread", "loop"])
def way(request, monkeypatch):
    if request.param == "loop":
        monkeypatch.setattr(Writer, "run", run_from_loop)


#: It counts how often a command is run: once more, where the loop has left a batch that must be undone.
counted = pytest.mark.parametrize("way", ["thread"], indirect=True)


def stored(writer):
    return do(writer, keys)


def codes(answers):
    return [getattr(answer.error, "code", None) for answer in answers]


# --- one command fails alone --------------------------------------------------------------------------------


def test_a_command_that_is_refused_leaves_no_trace_and_its_neighbours_stay(writer):
    batch = writer.run([Job(put, "a"), Job(put_then_raise, ("b", Rejected("no"))), Job(put, "c")])
    assert codes(batch.answers) == [None, "rejected", None]
    assert batch.changed == {"meta:a", "meta:c"}
    assert stored(writer) == ["a", "c"]


def test_a_mistake_in_a_handler_reaches_its_caller_alone(writer):
    mistake = ZeroDivisionError("a bug")
    answers = run(writer, (put, "a"), (put_then_raise, ("b", mistake)), (put, "c"))
    assert answers[1].error is mistake
    assert stored(writer) == ["a", "c"]


def test_a_broken_rule_of_the_schema_reaches_its_caller_alone(writer):
    answers = run(writer, (put, "a"), (put, "a"), (put, "b"))
    assert isinstance(answers[1].error, apsw.ConstraintError)
    assert stored(writer) == ["a", "b"]


def test_nothing_is_committed_before_commit(writer, spec):
    reader = apsw.Connection(str(spec.path))
    writer.execute([Job(put, "a")])
    assert reader.execute("SELECT count(*) FROM meta").fetchall() == [(0,)]
    writer.commit()
    assert reader.execute("SELECT count(*) FROM meta").fetchall() == [(1,)]
    reader.close()


def test_a_batch_has_one_reading_of_the_clock(writer, clock):
    def now_then_forward(tx, _):
        clock.forward(10)
        return tx.now

    first, second = run(writer, (now_then_forward, None), (now_then_forward, None))
    assert first.value == second.value
    assert run(writer, (now_then_forward, None))[0].value.awake_ms == first.value.awake_ms + 20


# --- the daemon's claim -------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path):
    writer = make_spec(tmp_path, guarded=True).writer()
    yield writer
    writer.close()


def claim(tx, owner):
    if tx.one("SELECT 1 FROM entities WHERE entity_no = 0") is None:
        tx.create_entity("daemon", "", DAEMON_NO)
    token = tx.ids.token()
    _, generation = tx.take_lease(
        DAEMON_NO, token=token, owner=owner, until_awake_ms=tx.now.awake_ms + 30_000, dead_owner="daemon:1"
    )
    return HeldClaim(generation, token)


def test_only_the_claim_itself_runs_before_the_claim(guarded):
    refused, taken = guarded.run([Job(put, "a"), Job(claim, "daemon:1", before_claim=True)]).answers
    assert isinstance(refused.error, Unavailable)
    guarded.claim = taken.value
    assert do(guarded, put, "b") == "b"
    assert stored(guarded) == ["b"]


def test_after_another_daemon_took_the_epoch_nothing_is_written(guarded):
    guarded.claim = guarded.run([Job(claim, "daemon:1", before_claim=True)]).answers[0].value
    guarded.run([Job(claim, "daemon:2", before_claim=True)])
    answers = run(guarded, (put, "a"), (put, "b"))
    assert [type(answer.error) for answer in answers] == [ClaimLost, ClaimLost]
    assert guarded.run([Job(keys, None, before_claim=True)]).answers[0].value == []


def test_an_epoch_lost_within_a_batch_is_seen_by_the_next(guarded):
    guarded.claim = guarded.run([Job(claim, "daemon:1", before_claim=True)]).answers[0].value
    guarded.run([Job(claim, "daemon:2", before_claim=True), Job(put, "a")])
    assert isinstance(run(guarded, (put, "b"))[0].error, ClaimLost)


@counted
def test_a_command_that_runs_alone_after_its_batch_was_lost_is_fenced_by_the_epoch(guarded):
    """While no transaction is open, another daemon may take the home."""
    guarded.claim = guarded.run([Job(claim, "daemon:1", before_claim=True)]).answers[0].value
    tries = 0

    def lose_then_be_taken_over(tx, _):
        nonlocal tries
        tries += 1
        if tries == 1:
            lose_transaction(tx, "a")
        claim(tx, "daemon:2")

    answers = guarded.run([Job(lose_then_be_taken_over, None), Job(put, "b")]).answers
    assert tries == 2
    assert isinstance(answers[1].error, ClaimLost)
    assert guarded.run([Job(keys, None, before_claim=True)]).answers[0].value == []


# --- SQLite ends the transaction ------------------------------------------------------------------------------


def lose_transaction(tx, key):
    """What SQLite does for some errors: the whole transaction is gone, and an error is raised."""
    put(tx, key)
    tx._connection.execute("ROLLBACK").fetchall()
    raise apsw.IOError("SQLite gave up")


@counted
def test_when_sqlite_ends_the_transaction_nothing_more_of_the_batch_runs_in_it(writer):
    seen = []

    def watch(tx, key):
        seen.append((key, tx._connection.in_transaction))
        return put(tx, key)

    batch = writer.run([Job(watch, "a"), Job(lose_transaction, "b"), Job(watch, "c")])
    # a ran, was lost with the transaction and ran again, alone; c ran only then
    assert seen == [("a", True), ("a", True), ("c", True)]
    assert codes(batch.answers) == [None, "unavailable", None]
    assert batch.changed == {"meta:a", "meta:c"}
    assert batch.broken is None
    assert stored(writer) == ["a", "c"]


@counted
def test_a_lost_transaction_gives_each_command_the_answer_of_its_own_run(writer):
    runs = []

    def count(tx, key):
        runs.append(key)
        return len(runs)

    answers = run(writer, (count, "a"), (lose_transaction, "b"), (count, "c"))
    assert [answer.value for answer in answers] == [2, None, 3]


def test_a_handlers_clean_up_that_fails_in_the_wake_does_not_hide_what_ended_the_transaction(writer):
    def clean_up(tx, key):
        tx.run("SAVEPOINT inner")
        try:
            lose_transaction(tx, key)
        finally:
            tx.run("RELEASE inner")

    answers = run(writer, (put, "a"), (clean_up, "b"))
    assert codes(answers) == [None, "unavailable"]


def test_a_part_of_a_command_is_undone_alone(writer):
    def in_parts(tx, _):
        put(tx, "a")
        with pytest.raises(Rejected), tx.savepoint():
            put_then_raise(tx, ("b", Rejected("no")))
        with tx.savepoint():
            put(tx, "c")

    batch = writer.run([Job(in_parts, None)])
    assert batch.changed == {"meta:a", "meta:c"}
    assert stored(writer) == ["a", "c"]


@counted
def test_only_a_command_that_has_written_before_it_raises_makes_the_batch_run_again(writer):
    runs = []

    def count(tx, key):
        runs.append(key)
        return put(tx, key)

    def refuse(tx, key):
        raise Rejected(key)

    assert codes(run(writer, (count, "a"), (refuse, "no"), (count, "b"))) == [None, "rejected", None]
    assert runs == ["a", "b"]
    assert codes(run(writer, (count, "c"), (put_then_raise, ("d", Rejected("no"))), (count, "e"))) == [
        None,
        "rejected",
        None,
    ]
    assert runs == ["a", "b", "c", "c", "e"]
    assert stored(writer) == ["a", "b", "c", "e"]


def test_a_handler_that_hides_what_must_be_undone_does_not_keep_it(writer):
    def hide(tx, _):
        try:
            with tx.savepoint():
                put_then_raise(tx, ("a", Rejected("no")))
        except Exception:  # noqa: BLE001 - what a careless handler does
            put(tx, "b")

    assert codes(run(writer, (hide, None))) == [None]
    assert stored(writer) == ["b"]


def test_a_part_that_lost_the_transaction_says_so(writer):
    def in_parts(tx, key):
        with tx.savepoint():
            lose_transaction(tx, key)

    assert codes(run(writer, (put, "a"), (in_parts, "b"))) == [None, "unavailable"]


# --- a COMMIT fails -------------------------------------------------------------------------------------------


@pytest.fixture
def on(tmp_path, disk, warnings):
    """A writer on a disk that fails on demand, with a ballast."""
    writer = make_spec(
        tmp_path, vfs=disk.name, warn=warnings, synchronous="FULL", ballast=small_ballast(tmp_path)
    ).writer()
    yield writer
    disk.heal()
    writer.close()


def test_a_commit_that_fails_has_an_unknown_outcome_for_all_and_breaks_the_store(on, disk):
    disk.broken_sync()
    batch = on.run([Job(put, "a"), Job(put_then_raise, ("b", Rejected("no"))), Job(put, "c")])
    assert [type(answer.error) for answer in batch.answers] == [OutcomeUnknown] * 3
    assert isinstance(batch.broken, StoreBroken)
    assert batch.changed == frozenset()
    later = on.run([Job(put, "d")])
    assert isinstance(later.answers[0].error, Unavailable)


def test_a_commit_that_could_not_be_synced_for_lack_of_space_has_an_unknown_outcome(on, disk):
    """Its record is written: the next start may find it."""
    disk.unsynced_for_lack_of_space()
    batch = on.run([Job(put, "a")])
    assert isinstance(batch.answers[0].error, OutcomeUnknown)
    assert isinstance(batch.broken, StoreBroken)


def test_a_commit_that_fails_to_write_breaks_the_store_too(on, disk):
    disk.broken_write()
    batch = on.run([Job(put, "a")])
    assert isinstance(batch.answers[0].error, OutcomeUnknown)
    assert isinstance(batch.broken, StoreBroken)


def test_a_commit_that_is_busy_is_unknown_and_the_store_goes_on(on, monkeypatch):
    real = on._statement

    def busy_at_commit(sql, *more):
        if sql == "COMMIT":
            raise apsw.BusyError("locked")
        return real(sql, *more)

    on._statement = busy_at_commit
    batch = on.run([Job(put, "a")])
    assert isinstance(batch.answers[0].error, OutcomeUnknown)
    assert batch.broken is None
    on._statement = real
    assert do(on, put, "b") == "b"
    assert stored(on) == ["b"]


# --- the disk is full -----------------------------------------------------------------------------------------


def test_a_full_disk_at_the_commit_releases_the_ballast_and_runs_the_commands_one_by_one(
    on, disk, tmp_path, warnings
):
    disk.full(times=1)
    batch = on.run([Job(put, "a"), Job(put, "b")])
    assert codes(batch.answers) == [None, None]
    assert batch.disk_full
    assert not (tmp_path / "ballast").exists()
    assert warnings.events == ["store.disk_full"]
    assert stored(on) == ["a", "b"]


def test_a_disk_that_stays_full_answers_disk_full_and_leaves_nothing_half_done(on, disk, spec):
    do(on, put, "a")
    disk.full(after=1)  # the first page of a commit still fits
    batch = on.run([Job(put, "b"), Job(put, "c")])
    assert [type(answer.error) for answer in batch.answers] == [DiskFull, DiskFull]
    assert batch.broken is None
    assert stored(on) == ["a"]
    disk.heal()
    assert do(on, put, "b") == "b"
    assert stored(on) == ["a", "b"]


def test_reads_go_on_while_the_disk_is_full(on, disk):
    do(on, put, "a")
    disk.full()
    do(on, keys)
    assert stored(on) == ["a"]


def test_a_database_at_its_size_limit_is_told_as_disk_full(on):
    on._connection.execute("PRAGMA max_page_count = 1").fetchall()

    def much(tx, key):
        tx.run("INSERT INTO meta (key, value) VALUES (:key, :value)", {"key": key, "value": "x" * 200_000})

    batch = on.run([Job(much, "a"), Job(keys, None)])
    assert codes(batch.answers) == ["disk_full", None]
    assert batch.answers[1].value == []
    on._connection.execute("PRAGMA max_page_count = 1000000").fetchall()


def test_handlers_see_that_the_disk_is_full_until_the_ballast_is_back(on, disk, tmp_path):
    def full(tx, _):
        return tx.disk_full

    assert do(on, full) is False
    disk.full(times=1)
    do(on, put, "a")
    assert do(on, full) is True
    assert on.rebuild_ballast()
    assert do(on, full) is False
    assert (tmp_path / "ballast").stat().st_size == 64 * 1024


def test_a_ballast_that_can_not_be_made_for_another_reason_is_said_and_only_missed(tmp_path, warnings):
    (tmp_path / "ballast.new").mkdir()
    writer = make_spec(tmp_path, warn=warnings, ballast=small_ballast(tmp_path)).writer()
    assert warnings.events == ["store.ballast_failed"]
    assert do(writer, lambda tx, _: tx.disk_full) is False
    writer.close()


# --- checkpoints ----------------------------------------------------------------------------------------------


def fill(writer, size):
    write = "INSERT INTO meta VALUES ('big', :v) ON CONFLICT DO UPDATE SET value = :v"
    for number in range(size // 1_000_000 + 2):
        do(writer, lambda tx, value: tx.run(write, {"v": value}), f"{number % 10}" * 1_000_000)
    assert writer.wal_bytes >= size


def test_a_checkpoint_is_due_only_after_enough_was_written(writer):
    do(writer, put, "a")
    assert not writer.wants_checkpoint(idle=True)
    fill(writer, WAL_IDLE_BYTES)
    assert writer.wants_checkpoint(idle=True)
    assert not writer.wants_checkpoint(idle=False)
    writer.checkpoint()
    assert not writer.wants_checkpoint(idle=True)


def test_after_a_checkpoint_the_wal_starts_anew(writer, spec):
    fill(writer, 2 * WAL_KEPT_BYTES)
    writer.checkpoint()
    do(writer, put, "a")
    assert writer.wal_bytes < 100_000
    assert spec.path.with_name("pwf.db-wal").stat().st_size <= WAL_KEPT_BYTES + 100_000


@pytest.fixture
def long_wal(writer, spec):
    """A WAL past its limit, and the foreign reader that kept it from starting anew."""
    holder = apsw.Connection(str(spec.path))
    do(writer, put, "a")
    holder.execute("BEGIN").fetchall()
    holder.execute("SELECT * FROM meta").fetchall()
    fill(writer, WAL_PAUSE_BYTES)
    assert writer.wants_pause
    yield holder
    holder.close()


def test_a_wal_past_its_limit_is_cut_off(writer, spec, long_wal):
    long_wal.execute("ROLLBACK").fetchall()
    writer.checkpoint(cut=True)
    assert writer.wal_bytes == 0
    assert spec.path.with_name("pwf.db-wal").stat().st_size == 0


@pytest.mark.serial
def test_a_foreign_reader_that_stays_holds_up_nothing(writer, long_wal, warnings):
    started = time.monotonic()
    writer.checkpoint(cut=True)
    assert time.monotonic() - started < 2
    assert warnings.events == ["store.checkpoint_failed"]
    assert not writer.wants_checkpoint(idle=True)  # not again at once
    assert do(writer, put, "b") == "b"


def test_a_long_wal_that_a_reader_pins_owes_a_cut_until_it_is_cut_and_that_is_said_once(
    writer, long_wal, warnings
):
    assert writer.owes_cut
    assert [writer.checkpoint(cut=True) for _ in range(3)] == [False] * 3
    assert warnings.events == ["store.checkpoint_failed"]
    assert writer.owes_cut
    long_wal.execute("ROLLBACK").fetchall()
    assert writer.checkpoint(cut=True)
    assert not writer.owes_cut


@pytest.mark.parametrize("lost", ["pwf.db", "pwf.db-wal"])
def test_all_that_was_committed_is_rescued_from_files_that_have_lost_their_names(writer, spec, lost):
    do(writer, put, "a")
    writer.checkpoint()
    do(writer, put, "b")
    spec.path.with_name(lost).unlink()
    do(writer, put, "c")
    target = spec.path.with_name("rescued")
    writer.rescue(target)
    with pytest.raises(FileExistsError):
        writer.rescue(target)
    copy = apsw.Connection(str(target))
    assert copy.execute("SELECT key FROM meta WHERE value = 'v' ORDER BY key").fetchall() == [
        ("a",),
        ("b",),
        ("c",),
    ]
    copy.close()


def test_a_checkpoint_that_fails_is_said_and_loses_nothing(on, disk, warnings):
    fill(on, WAL_IDLE_BYTES)
    disk.broken_sync()
    on.checkpoint()
    assert warnings.events == ["store.checkpoint_failed"]
    assert not on.wants_checkpoint(idle=True)  # not again at once
    disk.heal()
    assert do(on, put, "a") == "a"
