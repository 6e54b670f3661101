"""A batch in the loop's thread: what it does there, and what goes on in the writer's."""

import threading

import apsw
import pytest
import trio
import trio.testing

from pwf.errors import OutcomeUnknown, Rejected, StoreBroken
from pwf.store.batch import Job, Writer
from pwf.store.executor import ThreadExecutor
from pwf.store.loop_share import TURN_S, LoopShare
from pwf.store.values import store_content
from pwf.values import CHUNK_BYTES
from tests.store.faults import FaultyDisk
from tests.store.inline_executor import always_in_loop
from tests.store.support import Warnings, keys, make_spec, put, put_then_raise, small_ballast

pytestmark = pytest.mark.trio

WRITER = "pwf-store-writer"
LIMIT_S = 5.0


class Where:
    """Handlers that say in which thread they ran, and how many COMMITs there were."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []
        self.committed: list[str] = []

    def put(self, tx, key):
        self.ran.append((key, thread()))
        return put(tx, key)

    def watch(self, monkeypatch):
        real = Writer.try_commit

        def try_commit(writer):
            self.committed.append(thread())
            return real(writer)

        monkeypatch.setattr(Writer, "try_commit", try_commit)


def thread() -> str:
    name = threading.current_thread().name
    return "writer" if name == WRITER else "loop"


@pytest.fixture
def where(monkeypatch):
    where = Where()
    where.watch(monkeypatch)
    return where


@pytest.fixture
async def loop(spec):
    async with ThreadExecutor(spec, always_in_loop()) as executor:
        yield executor


async def test_a_short_batch_is_done_in_the_loop_on_a_fast_disk(loop, where):
    batch = await loop.run([Job(where.put, "a"), Job(where.put, "b")])
    assert [answer.value for answer in batch.answers] == ["a", "b"]
    assert where.ran == [("a", "loop"), ("b", "loop")]
    assert where.committed == ["loop"]
    assert await loop.read(keys, None, limit_s=LIMIT_S) == ["a", "b"]


async def test_on_a_slow_disk_a_short_batch_is_committed_in_the_writers_thread(loop, where):
    loop._share.pace.in_loop = False
    batch = await loop.run([Job(where.put, "a")])
    assert batch.answers[0].value == "a"
    assert (where.ran, where.committed) == ([("a", "loop")], ["writer"])
    assert batch.changed == {"meta:a"}


async def test_from_the_first_long_command_on_a_batch_is_the_writers_threads_in_one_transaction(spec, where):
    share = LoopShare(clock=lambda: 0.0, may_run=lambda job: "long" not in job.command)
    share.pace.in_loop = True
    async with ThreadExecutor(spec, share) as executor:
        batch = await executor.run([Job(where.put, key) for key in ("a", "long", "b")])
        assert [answer.value for answer in batch.answers] == ["a", "long", "b"]
        assert batch.changed == {"meta:a", "meta:long", "meta:b"}
        assert where.ran == [("a", "loop"), ("long", "writer"), ("b", "writer")]
        assert where.committed == ["writer"]
        await executor.run([Job(where.put, "long too"), Job(where.put, "c")])
        assert where.ran[3:] == [("long too", "writer"), ("c", "writer")]


async def test_a_batch_that_has_used_up_its_turn_goes_on_in_the_writers_thread(spec, where):
    times = iter(number * TURN_S / 2 for number in range(100))
    share = LoopShare(clock=lambda: next(times), may_run=lambda job: True)
    share.pace.in_loop = True
    async with ThreadExecutor(spec, share) as executor:
        await executor.run([Job(where.put, str(number)) for number in range(4)])
    assert where.ran == [("0", "loop"), ("1", "writer"), ("2", "writer"), ("3", "writer")]
    assert where.committed == ["writer"]


async def test_the_loop_does_not_wait_for_a_foreign_lock(loop, spec, where):
    foreign = apsw.Connection(str(spec.path))
    foreign.execute("BEGIN IMMEDIATE").fetchall()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop.run, [Job(where.put, "a")])
        with trio.fail_after(LIMIT_S):
            await trio.sleep(0.02)
        assert where.ran == []
        foreign.execute("ROLLBACK").fetchall()
    foreign.close()
    assert where.ran == [("a", "writer")], "the thread waits as long as it takes"


async def test_while_the_writers_thread_works_a_batch_waits_for_it(loop, where):
    begun, go_on = threading.Event(), threading.Event()

    def rescue(writer):
        begun.set()
        go_on.wait(LIMIT_S)
        where.ran.append(("call", thread()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop.call, rescue)
        await trio.to_thread.run_sync(begun.wait)
        nursery.start_soon(loop.run, [Job(where.put, "a")])
        await trio.testing.wait_all_tasks_blocked()
        assert where.ran == []
        go_on.set()
    assert where.ran == [("call", "writer"), ("a", "writer")]


async def test_what_must_be_undone_is_begun_anew_in_the_writers_thread(loop, where):
    no = Rejected("no")
    batch = await loop.run([Job(where.put, "a"), Job(put_then_raise, ("b", no)), Job(where.put, "c")])
    assert [answer.error for answer in batch.answers] == [None, no, None]
    assert where.ran[:2] == [("a", "loop"), ("a", "writer")]
    assert where.ran[-2:] == [("a", "writer"), ("c", "writer")]
    assert batch.changed == {"meta:a", "meta:c"}
    assert await loop.read(keys, None, limit_s=LIMIT_S) == ["a", "c"]


async def test_a_command_that_turns_out_to_take_long_is_begun_anew_in_the_writers_thread(loop, where):
    def store(tx, size):
        where.ran.append((str(size), thread()))
        return store_content(tx, b"x" * size)

    await loop.run([Job(store, CHUNK_BYTES)])
    assert where.ran == [(str(CHUNK_BYTES), "loop")]
    where.ran.clear()
    batch = await loop.run([Job(where.put, "a"), Job(store, CHUNK_BYTES + 1)])
    assert [answer.error for answer in batch.answers] == [None, None]
    assert [at for _, at in where.ran] == ["loop", "loop", "writer", "writer"]


# --- failure --------------------------------------------------------------------------------------------------


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
async def faulty(tmp_path, disk):
    ballast = small_ballast(tmp_path)
    spec = make_spec(tmp_path, vfs=disk.name, synchronous="FULL", ballast=ballast, warn=Warnings())
    async with ThreadExecutor(spec, always_in_loop()) as executor:
        yield executor


async def test_a_commit_that_failed_in_the_loop_is_not_tried_again(faulty, disk, where):
    disk.broken_sync()
    batch = await faulty.run([Job(where.put, "a")])
    assert isinstance(batch.answers[0].error, OutcomeUnknown)
    assert isinstance(batch.broken, StoreBroken)
    assert where.committed == ["loop"]


async def test_a_commit_in_the_loop_that_finds_the_disk_full_leaves_the_rest_to_the_writers_thread(
    faulty, disk, where, tmp_path
):
    disk.full(times=1)
    batch = await faulty.run([Job(where.put, "a")])
    assert (batch.answers[0].value, batch.disk_full) == ("a", True)
    assert not (tmp_path / "ballast").exists()
    assert where.ran == [("a", "loop"), ("a", "writer")]
