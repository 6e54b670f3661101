"""StoreActor: group commit, answers after the commit, cancelled callers, changed keys, failure."""

import random
from collections import Counter

import apsw
import pytest
import trio
import trio.testing

from pwf.actors.base import store_actor
from pwf.actors.base.store_actor import BALLAST_RETRY_S, CUT_RETRY_S, PATIENCE_S, StoreActor
from pwf.errors import ClaimLost, NotFound, OutcomeUnknown, Rejected, StoreBroken, StoreRefused, Unavailable
from pwf.store.batch import WAL_OWED_BYTES, HeldClaim
from pwf.store.executor import ThreadExecutor
from pwf.store.tx import DAEMON_NO
from tests.store.faults import FaultyDisk
from tests.store.inline_executor import InlineExecutor, always_in_loop, seeded_pause
from tests.store.support import Warnings, keys, make_spec, put, put_then_raise, small_ballast

pytestmark = pytest.mark.trio


class Points:
    """Pauses of an inline executor that a test holds shut; counts batches."""

    def __init__(self):
        self.shut = {}
        self.seen = []

    async def __call__(self, point):
        self.seen.append(point)
        await trio.lowlevel.checkpoint()
        if point in self.shut:
            await self.shut[point].wait()

    def close(self, point):
        self.shut[point] = trio.Event()

    def open(self, point):
        self.shut.pop(point).set()

    @property
    def batches(self):
        return self.seen.count("committed")


@pytest.fixture
def points():
    return Points()


@pytest.fixture
def inline(tmp_path, points):
    return StoreActor(InlineExecutor(make_spec(tmp_path), points))


@pytest.fixture(params=["thread", "loop"])
def either(request, tmp_path, points):
    """Inline; in the loop's thread there is no point between taken and committed."""
    return StoreActor(InlineExecutor(make_spec(tmp_path), points, share_of(request.param)))


def share_of(param):
    return always_in_loop() if param == "loop" else None


@pytest.fixture(params=["threads", "loop", "inline"])
def actor(request, tmp_path):
    spec = make_spec(tmp_path)
    if request.param != "inline":
        return StoreActor(ThreadExecutor(spec, share_of(request.param)))
    return StoreActor(InlineExecutor(spec, seeded_pause(random.Random(5), 0.001)))


async def quiet():
    await trio.testing.wait_all_tasks_blocked()


async def writing_along(store, nursery):
    """The answers to a write that nobody waits for, once it is put in."""
    answers = []

    async def write():
        answers.append(await store.write_along(put, "along"))

    nursery.start_soon(write)
    await quiet()
    return answers


# --- on both executors ----------------------------------------------------------------------------------------


async def test_a_command_is_answered_and_then_readable(actor, nursery):
    store = await nursery.start(actor.run)
    assert await store.write(put, "a") == "a"
    assert await store.read(keys, None) == ["a"]


async def test_a_refused_command_raises_and_leaves_nothing(actor, nursery):
    store = await nursery.start(actor.run)
    with pytest.raises(Rejected, match="no"):
        await store.write(put_then_raise, ("a", Rejected("no")))
    assert await store.read(keys, None) == []


async def test_many_callers_at_once_each_get_their_own_answer(actor, nursery):
    store = await nursery.start(actor.run)
    answers = {}

    async def caller(number):
        key = f"{number:03}"
        try:
            if number % 3 == 0:
                await store.write(put_then_raise, (key, NotFound(key)))
            else:
                answers[key] = await store.write(put, key)
        except NotFound as error:
            answers[key] = error.message

    async with trio.open_nursery() as callers:
        for number in range(100):
            callers.start_soon(caller, number)
    assert answers == {f"{number:03}": f"{number:03}" for number in range(100)}
    assert await store.read(keys, None) == [f"{number:03}" for number in range(100) if number % 3]


async def test_changed_keys_are_published_after_the_commit(actor, nursery):
    store = await nursery.start(actor.run)
    heard: list[frozenset[str]] = []
    store.on_change(heard.append)
    await store.write(put, "a")
    await store.write(put, "b")
    with pytest.raises(Rejected):
        await store.write(put_then_raise, ("c", Rejected("no")))
    assert heard == [{"meta:a"}, {"meta:b"}]


async def test_a_store_that_stops_answers_whoever_still_waits(actor):
    async with trio.open_nursery() as nursery:
        store = await nursery.start(actor.run)
        nursery.cancel_scope.cancel()
    with pytest.raises(Unavailable, match="the store has stopped"):
        await store.write(put, "a")


async def test_a_refused_store_does_not_start(tmp_path, nursery):
    (tmp_path / "pwf.db").write_bytes(b"something else")
    with pytest.raises(StoreRefused):
        await StoreActor(ThreadExecutor(make_spec(tmp_path))).run()


# --- group commit ---------------------------------------------------------------------------------------------


async def test_what_waits_while_a_batch_commits_is_committed_together(either, points, nursery):
    store = await nursery.start(either.run)
    points.close("taken")
    for number in range(50):
        nursery.start_soon(store.write, put, f"{number:02}")
    await quiet()
    points.open("taken")
    await quiet()
    assert points.batches <= 2
    assert len(await store.read(keys, None)) == 50


async def test_a_batch_has_a_bound(either, points, nursery, monkeypatch):
    monkeypatch.setattr(store_actor, "BATCH_MAX", 10)
    store = await nursery.start(either.run)
    for number in range(40):
        nursery.start_soon(store.write, put, f"{number:02}")
    await quiet()
    assert points.batches >= 4


async def test_what_nobody_waits_for_goes_with_the_next_batch(either, points, nursery):
    store = await nursery.start(either.run)
    answers = await writing_along(store, nursery)
    assert points.batches == 0
    await store.write(put, "a")
    await quiet()
    assert (points.batches, answers) == (1, ["along"])
    assert await store.read(keys, None) == ["a", "along"]


async def test_what_nobody_waits_for_goes_alone_when_nobody_comes(either, points, nursery, autojump_clock):
    store = await nursery.start(either.run)
    begun = trio.current_time()
    assert await store.write_along(put, "along") == "along"
    assert trio.current_time() - begun == pytest.approx(PATIENCE_S)
    assert points.batches == 1
    assert await store.read(keys, None) == ["along"], "once, though it was put in twice"


async def test_what_nobody_waits_for_is_not_written_twice_by_a_batch_that_takes_long(
    inline, points, nursery, autojump_clock
):
    store = await nursery.start(inline.run)
    answers = await writing_along(store, nursery)
    points.close("executed")
    nursery.start_soon(store.write, put, "a")
    await trio.sleep(10 * PATIENCE_S)
    assert answers == []
    points.open("executed")
    await quiet()
    assert (points.batches, answers) == (1, ["along"])


async def test_a_cancelled_caller_of_what_nobody_waits_for_leaves_no_trace(either, points, nursery):
    store = await nursery.start(either.run)
    with trio.move_on_after(PATIENCE_S / 4):
        await store.write_along(put, "along")
    await store.write(put, "a")
    assert await store.read(keys, None) == ["a"]


async def test_nobody_is_answered_before_the_commit(inline, points, nursery, tmp_path):
    store = await nursery.start(inline.run)
    points.close("executed")
    answered = []

    async def caller():
        answered.append(await store.write(put, "a"))

    nursery.start_soon(caller)
    await quiet()
    assert answered == []
    foreign = apsw.Connection(str(tmp_path / "pwf.db"))
    assert foreign.execute("SELECT count(*) FROM meta").fetchall() == [(0,)]
    foreign.close()
    points.open("executed")
    await quiet()
    assert answered == ["a"]


# --- the loop's share, and a slow disk ------------------------------------------------------------------------


async def test_between_two_batches_of_the_loop_others_have_their_turn(tmp_path, nursery, monkeypatch):
    monkeypatch.setattr(store_actor, "BATCH_MAX", 8)
    store = await nursery.start(StoreActor(ThreadExecutor(make_spec(tmp_path), always_in_loop())).run)
    turns, seen = [0], []

    async def others():
        while True:
            await trio.lowlevel.checkpoint()
            turns[0] += 1

    def look(tx, key):
        seen.append(turns[0])
        return put(tx, key)

    async with trio.open_nursery() as callers:
        for number in range(32):
            callers.start_soon(store.write, look, f"{number:02}")
    seen.clear()
    nursery.start_soon(others)
    async with trio.open_nursery() as callers:
        for number in range(32, 64):
            callers.start_soon(store.write, look, f"{number:02}")
    # trio runs those who are ready in any order: at one turn the store is the last, at the next the first
    assert max(Counter(seen).values()) <= 2 * 8


@pytest.mark.parametrize("in_loop", [False, True])
async def test_a_renewal_waits_for_no_more_commits_of_a_slow_disk_than_there_were_commands_before_it(
    tmp_path, nursery, monkeypatch, autojump_clock, in_loop
):
    monkeypatch.setattr(store_actor, "BATCH_MAX", 8)
    monkeypatch.setattr(store_actor, "INBOX_MAX", 16)
    writers, commit_s = 64, 0.005

    async def pause(point):
        await trio.sleep(commit_s if point == "committed" else 0)

    share = always_in_loop() if in_loop else None
    store = await nursery.start(StoreActor(InlineExecutor(make_spec(tmp_path), pause, share)).run)

    async def write_on(writer):
        for number in range(100_000):
            await store.write(put, f"{writer}-{number}")

    async with trio.open_nursery() as others:
        for writer in range(writers):
            others.start_soon(write_on, writer)
        for number in range(10):
            await trio.sleep(0.05)
            asked = trio.current_time()
            await store.write(put, f"renewal {number}")
            assert trio.current_time() - asked <= (writers / 8 + 2) * commit_s
        others.cancel_scope.cancel()


# --- cancelled callers ----------------------------------------------------------------------------------------


async def test_a_caller_that_is_cancelled_before_its_turn_leaves_no_trace(either, points, nursery):
    store = await nursery.start(either.run)
    points.close("taken")
    nursery.start_soon(store.write, put, "a")
    await quiet()
    with trio.CancelScope() as scope:
        nursery.start_soon(cancel_when_quiet, scope)
        await store.write(put, "b")
    assert scope.cancelled_caught
    points.open("taken")
    await quiet()
    assert await store.read(keys, None) == ["a"]


@pytest.mark.parametrize("point", ["taken", "executed", "committed"])
async def test_a_caller_that_is_cancelled_later_learns_the_outcome_first(inline, points, nursery, point):
    store = await nursery.start(inline.run)
    points.close(point)
    outcome = []

    async def caller():
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_quiet, scope)
            outcome.append(await store.write(put, "a"))
            await trio.lowlevel.checkpoint()
            outcome.append("not cancelled")

    nursery.start_soon(caller)
    await quiet()
    assert outcome == []
    points.open(point)
    await quiet()
    assert outcome == ["a"]
    assert await store.read(keys, None) == ["a"]


async def cancel_when_quiet(scope):
    await quiet()
    scope.cancel()


async def test_a_store_that_is_stopped_during_a_batch_still_answers_it(inline, points):
    points.close("executed")
    outcome = []

    async def caller(store):
        outcome.append(await store.write(put, "a"))

    stopping = trio.CancelScope()

    async def serve(*, task_status):
        with stopping:
            await inline.run(task_status=task_status)

    async with trio.open_nursery() as nursery:
        store = await nursery.start(serve)
        nursery.start_soon(caller, store)
        await quiet()
        stopping.cancel()
        await quiet()
        assert outcome == []
        points.open("executed")
    assert outcome == ["a"]


# --- the claim ------------------------------------------------------------------------------------------------


async def test_a_guarded_store_serves_only_under_its_epoch(tmp_path, nursery):
    def claim(tx, token):
        if tx.one("SELECT 1 FROM entities WHERE entity_no = 0") is None:
            tx.create_entity("daemon", "", DAEMON_NO)
        until = tx.now.awake_ms + 30_000
        return tx.take_lease(DAEMON_NO, token=token, owner="me", until_awake_ms=until)[1]

    store = await nursery.start(StoreActor(InlineExecutor(make_spec(tmp_path, guarded=True))).run)
    with pytest.raises(Unavailable, match="still starting"):
        await store.write(put, "a")
    generation = await store.write(claim, "token", before_claim=True)
    await store.hold_claim(HeldClaim(generation, "token"))
    await store.write(put, "b")
    await store.write(claim, "other", before_claim=True)
    with pytest.raises(ClaimLost):
        await store.write(put, "c")
    assert await store.read(keys, None) == ["b"]


# --- failure --------------------------------------------------------------------------------------------------


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture(params=["thread", "loop"])
def faulty(request, tmp_path, disk):
    spec = make_spec(
        tmp_path, vfs=disk.name, synchronous="FULL", ballast=small_ballast(tmp_path), warn=Warnings()
    )
    return StoreActor(InlineExecutor(spec, share=share_of(request.param)))


async def test_a_commit_that_fails_ends_the_actor_and_tells_the_callers(faulty, disk, tmp_path):
    told = []

    async def caller(key):
        try:
            await faulty.handle.write(put, key)
        except Unavailable as error:
            told.append(error.code)

    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(faulty.run)
            disk.broken_sync()
            nursery.start_soon(caller, "a")
            nursery.start_soon(caller, "b")
    assert caught.group_contains(StoreBroken)
    assert told == ["outcome_unknown", "outcome_unknown"]
    disk.heal()
    # the file knows: after the restart both are there, or neither is
    writer = make_spec(tmp_path).writer()
    assert keys(writer.tx) in ([], ["a", "b"])
    writer.close()


async def test_a_full_disk_is_flagged_and_cleared_without_a_restart(
    faulty, disk, nursery, tmp_path, autojump_clock
):
    store = await nursery.start(faulty.run)
    heard: list[frozenset[str]] = []
    store.on_change(heard.append)
    disk.full(times=1)
    assert await store.write(put, "a") == "a"  # the ballast made room for it
    assert store.disk_full
    assert not (tmp_path / "ballast").exists()
    assert {"daemon"} in heard
    heard.clear()
    await trio.sleep(BALLAST_RETRY_S + 1)  # within seconds, when there is space again
    assert heard == [{"daemon"}]
    assert not store.disk_full
    assert (tmp_path / "ballast").exists()
    assert await store.write(put, "b") == "b"


async def test_the_space_is_looked_for_even_when_the_store_is_never_idle(
    faulty, disk, nursery, autojump_clock
):
    store = await nursery.start(faulty.run)
    disk.full(times=1)
    await store.write(put, "a")
    assert store.disk_full
    for number in range(20):
        await store.write(put, f"b{number}")
        await trio.sleep(1)
    assert not store.disk_full


async def test_a_busy_commit_leaves_the_store_serving(faulty, nursery):
    store = await nursery.start(faulty.run)
    writer = faulty._executor._writer
    real = writer._statement

    def busy_once(sql, *more):
        if sql == "COMMIT":
            writer._statement = real
            raise apsw.BusyError("locked")
        return real(sql, *more)

    writer._statement = busy_once
    with pytest.raises(OutcomeUnknown):
        await store.write(put, "a")
    assert await store.write(put, "a") == "a"


async def test_a_wal_that_a_foreign_reader_kept_is_cut_after_its_end_without_a_further_write(
    tmp_path, autojump_clock
):
    spec = make_spec(tmp_path)
    wal = tmp_path / "pwf.db-wal"
    async with trio.open_nursery() as nursery:
        store = await nursery.start(StoreActor(InlineExecutor(spec)).run)
        await store.write(put, "a")
        holder = apsw.Connection(str(spec.path))
        holder.execute("BEGIN").fetchall()
        holder.execute("SELECT * FROM meta").fetchall()
        write = "INSERT INTO meta VALUES ('big', :v) ON CONFLICT DO UPDATE SET value = :v"
        for number in range(WAL_OWED_BYTES // 1_000_000 + 2):
            await store.write(lambda tx, text: tx.run(write, {"v": text}), f"{number % 10}" * 1_000_000)
        await trio.sleep(3 * CUT_RETRY_S)
        assert wal.stat().st_size >= WAL_OWED_BYTES
        holder.close()
        await trio.sleep(2 * CUT_RETRY_S)
        assert wal.stat().st_size == 0
        nursery.cancel_scope.cancel()
