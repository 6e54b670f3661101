"""One suite for both executors: the real one, working in its threads or in the loop's, and the inline one."""

import random
import threading
from functools import partial

import apsw
import pytest
import trio
import trio.testing

from pwf.errors import NotFound, Rejected, StoreRefused, Unavailable
from pwf.store.batch import WAL_IDLE_BYTES, WAL_PAUSE_BYTES, Job, Writer
from pwf.store.executor import ThreadExecutor
from tests.store.inline_executor import InlineExecutor, always_in_loop, seeded_pause
from tests.store.support import keys, put, put_then_raise
from tests.store.test_reading import ENDLESS

pytestmark = pytest.mark.trio

LIMIT_S = 5.0


@pytest.fixture(params=["threads", "loop", "inline"])
def executor(request, spec):
    if request.param != "inline":
        return ThreadExecutor(spec, always_in_loop() if request.param == "loop" else None)
    return InlineExecutor(spec, seeded_pause(random.Random(7), 0.001))


async def test_a_batch_is_answered_in_order_and_readable_at_once(executor):
    async with executor:
        batch = await executor.run([Job(put, "a"), Job(put_then_raise, ("b", Rejected("no"))), Job(put, "c")])
        assert [answer.value for answer in batch.answers] == ["a", None, "c"]
        assert batch.changed == {"meta:a", "meta:c"}
        assert await executor.read(keys, None, limit_s=LIMIT_S) == ["a", "c"]


async def test_what_was_committed_is_there_after_a_restart(executor, spec):
    async with executor:
        await executor.run([Job(put, "a")])
    assert not spec.path.with_name("pwf.db-wal").exists()
    async with ThreadExecutor(spec) as again:
        assert await again.read(keys, None, limit_s=LIMIT_S) == ["a"]


async def test_a_store_that_is_refused_is_refused_at_the_entrance(executor, spec):
    spec.path.write_bytes(b"something else")
    with pytest.raises(StoreRefused):
        async with executor:
            pytest.fail("entered")


async def test_a_call_runs_on_the_writer(executor):
    async with executor:
        assert await executor.call(lambda writer: writer.wal_bytes) == 0
        with pytest.raises(ZeroDivisionError):
            await executor.call(lambda writer: 1 // 0)


async def test_what_a_read_raises_reaches_its_caller(executor):
    def missing(tx, _):
        raise NotFound("nothing here")

    async with executor:
        with pytest.raises(NotFound, match="nothing here"):
            await executor.read(missing, None, limit_s=LIMIT_S)
        assert await executor.read(keys, None, limit_s=LIMIT_S) == []


async def test_a_glance_sees_what_is_committed(executor):
    async with executor:
        assert await executor.glance(keys, None, limit_s=LIMIT_S) == []
        await executor.run([Job(put, "a")])
        assert await executor.glance(keys, None, limit_s=LIMIT_S) == ["a"]
        with pytest.raises(NotFound):
            await executor.glance(_missing, None, limit_s=LIMIT_S)


async def test_a_glance_that_takes_longer_goes_on_in_the_readers_thread(threads):
    where = []

    def long_first(tx, _):
        where.append(threading.current_thread().name)
        if len(where) == 1:
            tx.one(ENDLESS)
        return "seen"

    async with threads:
        assert await threads.glance(long_first, None, limit_s=LIMIT_S) == "seen"
        assert where == [threading.current_thread().name, "pwf-store-reader"]
        with pytest.raises(Unavailable, match="longer than"):
            await threads.glance(lambda tx, _: tx.one(ENDLESS), None, limit_s=0.05)


async def test_while_the_wal_is_cut_off_a_glance_waits_like_any_read(threads, monkeypatch):
    begun, go_on, where = threading.Event(), threading.Event(), []

    def slow_checkpoint(writer, *, cut):
        begun.set()
        go_on.wait(LIMIT_S)
        return True

    monkeypatch.setattr(Writer, "wants_checkpoint", lambda writer, *, idle: True)
    monkeypatch.setattr(Writer, "wants_pause", True)
    monkeypatch.setattr(Writer, "checkpoint", slow_checkpoint)

    def look(tx, _):
        where.append(threading.current_thread().name)

    async with threads, trio.open_nursery() as nursery:
        nursery.start_soon(partial(threads.settle, idle=False))
        await trio.to_thread.run_sync(begun.wait)
        nursery.start_soon(partial(threads.glance, look, None, limit_s=LIMIT_S))
        await trio.testing.wait_all_tasks_blocked()
        assert where == []
        go_on.set()
    assert where == ["pwf-store-reader"]


def _missing(tx, _):
    raise NotFound("nothing here")


async def test_a_read_has_a_limit(executor):
    async with executor:
        with pytest.raises(Unavailable, match=r"longer than 0\.05 s"):
            await executor.read(lambda tx, _: tx.one(ENDLESS), None, limit_s=0.05)
        assert await executor.read(keys, None, limit_s=LIMIT_S) == []


async def test_a_batch_whose_caller_is_cancelled_is_committed_all_the_same(executor):
    async with executor:
        with trio.CancelScope() as scope:
            scope.cancel()
            batch = await executor.run([Job(put, "a")])
            assert batch.answers[0].value == "a"
        assert await executor.read(keys, None, limit_s=LIMIT_S) == ["a"]


async def test_settling_makes_a_checkpoint_when_one_is_due(executor, spec):
    def much(tx, number):
        tx.run("INSERT INTO meta VALUES (:key, :value)", {"key": str(number), "value": "x" * 1_000_000})

    async with executor:
        for number in range(WAL_IDLE_BYTES // 1_000_000 + 1):
            await executor.run([Job(much, number)])
        before = spec.path.stat().st_size
        await executor.settle(idle=True)
        assert spec.path.stat().st_size > before
        assert not await executor.call(lambda writer: writer.wants_checkpoint(idle=True))


# --- threads alone --------------------------------------------------------------------------------------------


@pytest.fixture(params=["thread", "loop"])
def threads(request, spec):
    return ThreadExecutor(spec, always_in_loop() if request.param == "loop" else None)


async def test_a_cancelled_reader_leaves_at_once_and_its_read_is_stopped(threads):
    async with threads:
        with trio.move_on_after(0.1) as scope:
            await threads.read(lambda tx, _: tx.one(ENDLESS), None, limit_s=60)
        assert scope.cancelled_caught
        with trio.fail_after(5):
            assert await threads.read(keys, None, limit_s=LIMIT_S) == []


async def test_a_read_that_is_cancelled_in_the_queue_never_runs(threads):
    ran = []
    async with threads, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: threads.read(lambda tx, _: tx.one(ENDLESS), None, limit_s=60))
        await trio.sleep(0.05)
        with trio.move_on_after(0.05):
            await threads.read(lambda tx, _: ran.append("ran"), None, limit_s=LIMIT_S)
        nursery.cancel_scope.cancel()
    async with ThreadExecutor(threads._spec) as again:
        await again.read(keys, None, limit_s=LIMIT_S)
    assert ran == []


async def test_reads_go_on_while_a_batch_waits_for_a_foreign_lock(threads, spec):
    async with threads:
        await threads.run([Job(put, "a")])
        foreign = apsw.Connection(str(spec.path))
        foreign.execute("BEGIN IMMEDIATE").fetchall()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, [Job(put, "b")])
            await trio.sleep(0.05)
            assert await threads.read(keys, None, limit_s=LIMIT_S) == ["a"]
            foreign.execute("ROLLBACK").fetchall()
        assert await threads.read(keys, None, limit_s=LIMIT_S) == ["a", "b"]
        foreign.close()


async def test_past_the_limit_of_the_wal_reads_pause_for_a_checkpoint_that_cuts_it(threads, spec):
    def much(tx, number):
        write = "INSERT INTO meta VALUES ('big', :v) ON CONFLICT DO UPDATE SET value = :v"
        tx.run(write, {"v": f"{number % 10}" * 4_000_000})

    def slow(tx, _):
        found = keys(tx)
        started.set()
        for _ in range(100):
            tx.one("SELECT count(*) FROM meta")
        return found

    started = threading.Event()
    async with threads, trio.open_nursery() as nursery:
        for number in range(WAL_PAUSE_BYTES // 4_000_000 + 1):
            await threads.run([Job(much, number)])
        nursery.start_soon(lambda: threads.read(slow, None, limit_s=LIMIT_S))
        await trio.to_thread.run_sync(started.wait)
        await threads.settle(idle=False)
        assert spec.path.with_name("pwf.db-wal").stat().st_size == 0
        assert await threads.read(keys, None, limit_s=LIMIT_S) == ["big"]


async def test_an_executor_that_could_not_start_leaves_no_thread(threads, spec):

    spec.path.write_bytes(b"something else")
    with pytest.raises(StoreRefused):
        async with threads:
            pytest.fail("entered")
    for thread in threading.enumerate():
        if thread.name.startswith("pwf-store"):
            thread.join(5)
            assert not thread.is_alive()


# --- virtual time alone -----------------------------------------------------------------------------------------


async def test_inline_a_batch_passes_every_point_in_order(spec):
    points = []

    async def pause(point):
        points.append(point)
        await trio.lowlevel.checkpoint()

    async with InlineExecutor(spec, pause) as executor:
        await executor.run([Job(put, "a")])
        await executor.settle(idle=True)
    assert points == ["taken", "executed", "committed", "replied"]


class Crash(Exception):
    """The machine stops here."""


@pytest.mark.parametrize(("point", "kept"), [("taken", []), ("executed", []), ("committed", ["a"])])
async def test_inline_a_crash_keeps_what_was_committed_and_nothing_else(spec, point, kept):
    async def pause(at):
        if at == point:
            raise Crash

    with pytest.raises(Crash):
        async with InlineExecutor(spec, pause) as executor:
            await executor.run([Job(put, "a")])
    async with InlineExecutor(spec) as again:
        assert await again.read(keys, None, limit_s=LIMIT_S) == kept


async def test_inline_the_same_seed_gives_the_same_pauses(autojump_clock):
    async def timeline(seed):
        pause, times = seeded_pause(random.Random(seed)), []
        for _ in range(20):
            started = trio.current_time()
            await pause("taken")
            times.append(round(trio.current_time() - started, 9))
        return times

    assert await timeline(3) == await timeline(3)
    assert await timeline(3) != await timeline(4)
