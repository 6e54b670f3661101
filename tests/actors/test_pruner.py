"""Pruner: the pace of retention, what is cleaned after it, clients' prunes and backups. Virtual time, real SQLite."""

from __future__ import annotations

import threading
from typing import Any

import apsw
import pytest
import trio

from pwf.actors.base.store_actor import StoreActor
from pwf.actors.upkeep import pruner as pruner_module
from pwf.actors.upkeep.backup import Backups
from pwf.actors.upkeep.pruner import BUSY_PAUSE_S, EVERY_S, FIRST_S, RETRY_S, Pruner, slices
from pwf.clock import Now
from pwf.errors import InvalidArgument, Unavailable
from pwf.protocol.operations import PruneResult
from pwf.store.backup import write_backup
from pwf.store.batch import Job
from pwf.store.daemon import ClaimEpoch, claim
from pwf.store.executor import ThreadExecutor
from pwf.store.receipts import ReceiptKey
from pwf.store.resource_state import EVENTS_KEPT
from pwf.store.retention import DAY_MS
from pwf.store.runs import start_run
from pwf.store.space import disk_bytes
from pwf.store.verify import verify
from tests.actors.no_log import NoLog
from tests.store.inline_executor import InlineExecutor
from tests.store.resource_world import Resources
from tests.store.support import HandClock
from tests.store.test_resource_retention import effect, talk
from tests.store.world import World, linear

pytestmark = pytest.mark.trio

BIG = "x" * 10_000
NOTHING = PruneResult(before_ms=0)


class TrioClock(HandClock):
    """Goes on with trio's virtual clock; `wall_ahead_ms` is what somebody has set it ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.wall_ahead_ms = 0

    def now(self) -> Now:
        try:
            passed = int(trio.current_time() * 1000)
        except RuntimeError:
            passed = 0
        return Now(
            self.wall_ms + passed + self.wall_ahead_ms,
            self.elapsed_ms + passed,
            self.awake_ms + passed,
            self.boot_id,
        )


class Setting:
    """A store with runs, its actor and a Pruner."""

    def __init__(self, folder: Any, days: int = 30) -> None:
        self.clock = TrioClock()
        self.world = World(folder, self.clock)
        self.world.checked = False
        self.log = NoLog()
        self.busy = False
        self.days = days
        self.runs: list[str] = []

    def ended(self, count: int) -> None:
        """So many runs that end now."""
        for _ in range(count):
            runner = self.world.run(linear(1), input=BIG)
            runner.finish(1)
            runner.leave()
            self.runs.append(runner.run_id)

    async def begin(self, nursery: trio.Nursery, *, threads: bool = False) -> Pruner:
        """Close the world, open the actor on its file."""
        self.epoch = self.world.do(claim, ClaimEpoch(token="t", lease_ms=1_000, pid=1, version="x")).epoch
        self.world.close()
        spec = self.world.spec
        executor = ThreadExecutor(spec) if threads else InlineExecutor(spec)
        self.store = await nursery.start(StoreActor(executor).run)
        self.pruner = Pruner(
            store=self.store,
            is_idle=lambda: not self.busy,
            disk_bytes=lambda: disk_bytes(spec.path),
            epoch=self.epoch,
            retention_days=self.days,
            clock=self.clock,
            log=self.log,
        )
        self.backups = Backups(spec.path, self.epoch, self.clock, self.log)
        return self.pruner

    async def serve(self, nursery: trio.Nursery, *, threads: bool = False) -> None:
        """The same, and the two actors run: clients may ask."""
        await self.begin(nursery, threads=threads)
        nursery.start_soon(self.pruner.run)
        nursery.start_soon(self.backups.run)

    async def left(self) -> set[str]:
        return set(
            await self.store.read(lambda tx, _: [row[0] for row in tx.all("SELECT run_id FROM runs")], None)
        )

    async def violations(self) -> Any:
        return (await self.store.read(verify, self.epoch)).violations

    async def count(self, table: str) -> int:
        rows = await self.store.read(lambda tx, _: tx.all(f"SELECT count(*) FROM {table}"), None)
        return int(rows[0][0])


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path)


async def test_of_resources_that_live_on_it_keeps_less_by_itself(setting, nursery, autojump_clock):
    resources = Resources(setting.world)
    uid = resources.apply().uid
    talk(resources, uid, 2 * EVENTS_KEPT)
    effect(resources, uid)
    setting.clock.forward(40 * DAY_MS)
    pruner = await setting.begin(nursery)
    nursery.start_soon(pruner.run)
    await trio.sleep(FIRST_S + 60)
    assert await setting.count("events WHERE entity_no <> 0") == EVENTS_KEPT
    assert (await setting.count("effects"), await setting.count("resources")) == (0, 1)
    assert await setting.violations() == ()


async def test_with_nothing_to_be_removed_resources_keep_everything(setting, nursery, autojump_clock):
    setting.days = 0
    effect(resources := Resources(setting.world), resources.apply().uid)
    setting.clock.forward(400 * DAY_MS)
    pruner = await setting.begin(nursery)
    nursery.start_soon(pruner.run)
    await trio.sleep(FIRST_S + 60)
    assert await setting.count("effects") == 1


async def test_what_has_ended_thirty_days_ago_goes_by_itself_and_what_it_had_with_it(
    setting, nursery, autojump_clock
):
    setting.ended(3)
    setting.clock.forward(29 * DAY_MS)
    setting.ended(1)
    pruner = await setting.begin(nursery)
    nursery.start_soon(pruner.run)
    await trio.sleep(FIRST_S + 60)
    assert await setting.left() == set(setting.runs)
    await trio.sleep(24 * 3_600)
    assert await setting.left() == {setting.runs[3]}
    assert setting.log.events[0][0] == "pruner.pruned"
    await trio.sleep(29 * 24 * 3_600 + EVERY_S)
    assert await setting.left() == set()
    for table in ("definitions", "environments", "contents", "content_chunks", "attempts"):
        assert await setting.count(table) == 0, table
    assert await setting.violations() == ()


async def test_with_zero_days_everything_is_kept_and_what_nothing_refers_to_still_goes(
    tmp_path, nursery, autojump_clock
):
    setting = Setting(tmp_path, days=0)
    setting.ended(2)
    setting.world.sql("INSERT INTO contents VALUES (:d, 3, 1, 0)", {"d": "a" * 64})
    setting.clock.forward(400 * DAY_MS)
    pruner = await setting.begin(nursery)
    assert (await pruner.keep()).values == 1
    assert await setting.left() == set(setting.runs)


async def test_while_runs_execute_the_walk_goes_at_a_bounded_pace_and_to_the_end(
    setting, nursery, autojump_clock
):
    setting.ended(12)
    setting.clock.forward(31 * DAY_MS)
    pruner = await setting.begin(nursery)
    setting.busy = True
    begin = trio.current_time()
    with trio.move_on_after(BUSY_PAUSE_S * 5.5):
        await pruner.keep()
    assert 5 <= 12 - len(await setting.left()) <= 7
    await pruner.keep()
    assert await setting.left() == set()
    assert trio.current_time() - begin >= BUSY_PAUSE_S * 12


async def test_between_two_trees_other_commands_take_their_turn(setting, nursery, autojump_clock):
    setting.ended(200)
    setting.clock.forward(31 * DAY_MS)
    command = setting.world.start_command(linear(2))
    pruner = await setting.begin(nursery)
    seen = []

    async def start() -> None:
        for number in range(5):
            started = await setting.store.write(start_run, command)
            seen.append((number, len(await setting.left()), started.unwrap().run_id))

    async with trio.open_nursery() as both:
        both.start_soon(pruner.keep)
        both.start_soon(start)
    assert [left for _, left, _ in seen][-1] > 150
    assert await setting.left() == {run_id for _, _, run_id in seen}


async def test_a_walk_that_is_ended_anywhere_leaves_whole_trees(setting, nursery, autojump_clock):
    setting.ended(30)
    setting.clock.forward(31 * DAY_MS)
    pruner = await setting.begin(nursery)
    setting.busy = True
    for _ in range(40):
        with trio.move_on_after(BUSY_PAUSE_S):
            await pruner.keep()
        assert await setting.violations() == ()
    assert await setting.left() == set()


async def test_a_store_that_can_not_write_just_now_is_tried_again(
    setting, nursery, autojump_clock, monkeypatch
):
    setting.ended(2)
    setting.clock.forward(31 * DAY_MS)
    pruner = await setting.begin(nursery)
    prune_tree, failures = pruner_module.prune_tree, [1]

    def fails_once(tx, command):
        if failures:
            failures.pop()
            raise Unavailable("locked")
        return prune_tree(tx, command)

    monkeypatch.setattr(pruner_module, "prune_tree", fails_once)
    nursery.start_soon(pruner.run)
    await trio.sleep(FIRST_S + 1)
    assert len(await setting.left()) == 2
    await trio.sleep(RETRY_S)
    assert await setting.left() == set()


async def test_by_a_wall_clock_that_was_set_ahead_nothing_goes_for_a_day(setting, nursery, autojump_clock):
    setting.ended(2)
    pruner = await setting.begin(nursery)
    nursery.start_soon(pruner.run)
    await trio.sleep(FIRST_S + 60)
    setting.clock.wall_ahead_ms = 365 * DAY_MS
    await trio.sleep(2 * EVERY_S)
    assert len(await setting.left()) == 2
    assert "pruner.clock_set" in [name for name, _ in setting.log.events]
    setting.clock.wall_ahead_ms = 0
    await trio.sleep(2 * EVERY_S)
    assert len(await setting.left()) == 2
    setting.clock.wall_ahead_ms = 365 * DAY_MS  # a machine that was really away so long is believed
    await trio.sleep(25 * 3_600)
    assert await setting.left() == set()


# --- clients --------------------------------------------------------------------------------------------------


def receipt(name="k"):
    return ReceiptKey(scope_key=name, operation="state.prune", payload_digest="p")


async def ask(setting, before_ms, *, dry_run=False, key=None):
    return await setting.pruner.handle.prune(before_ms, dry_run=dry_run, actor="client:ann", receipt=key)


async def test_a_person_may_prune_at_once_and_a_dry_run_only_says_so(setting, nursery, autojump_clock):
    setting.ended(3)
    await setting.serve(nursery)
    await trio.sleep(1)
    now_ms = setting.clock.now().wall_ms
    planned = (await ask(setting, now_ms, dry_run=True)).unwrap()
    assert (planned.dry_run, planned.trees, planned.runs) == (True, 3, 3)
    assert len(await setting.left()) == 3
    done = await ask(setting, now_ms, key=receipt())
    assert (done.unwrap().trees, done.unwrap().runs, done.unwrap().values) == (3, 3, 1)
    assert await setting.left() == set()
    again = await ask(setting, now_ms, key=receipt())
    assert (again.adopted, again.unwrap()) == (True, done.unwrap())


async def test_a_prune_of_the_future_is_refused(setting, nursery, autojump_clock):
    await setting.serve(nursery)
    with pytest.raises(InvalidArgument, match="future"):
        await ask(setting, setting.clock.now().wall_ms + 1)


async def test_two_prunes_at_once_take_turns(setting, nursery, autojump_clock):
    setting.ended(10)
    await setting.serve(nursery)
    await trio.sleep(1)
    now_ms = setting.clock.now().wall_ms
    found = []

    async def one(name: str) -> None:
        found.append((await ask(setting, now_ms, key=receipt(name))).unwrap().runs)

    async with trio.open_nursery() as both:
        both.start_soon(one, "a")
        both.start_soon(one, "b")
    assert sorted(found) == [0, 10]


async def test_a_person_does_not_wait_for_the_slow_pace_of_the_automatic_walk(
    setting, nursery, autojump_clock
):
    setting.ended(400)
    setting.clock.forward(31 * DAY_MS)
    await setting.serve(nursery)
    setting.busy = True
    await trio.sleep(FIRST_S + 10 * BUSY_PAUSE_S)
    assert len(await setting.left()) > 350
    with trio.fail_after(5 * BUSY_PAUSE_S):
        await ask(setting, setting.clock.now().wall_ms)
    assert await setting.left() == set()


async def test_free_pages_are_given_back_when_it_pays(setting, nursery, autojump_clock, monkeypatch):
    monkeypatch.setattr("pwf.store.space.PAYS_BYTES", 100_000)
    for number in range(40):
        setting.world.writer.run([Job(put_large, number)])
    await setting.begin(nursery)
    await setting.store.cut_log()
    before = disk_bytes(setting.world.spec.path)
    result = await setting.pruner.keep()
    assert result.values == 40
    assert result.freed_bytes > 3_000_000
    assert result.freed_bytes == before - disk_bytes(setting.world.spec.path)
    assert result.owed_bytes == 0


async def test_what_another_process_keeps_from_being_given_back_is_said_as_owed(
    setting, nursery, autojump_clock, monkeypatch
):
    monkeypatch.setattr("pwf.store.space.PAYS_BYTES", 100_000)
    for number in range(40):
        setting.world.writer.run([Job(put_large, number)])
    await setting.begin(nursery)
    holder = apsw.Connection(str(setting.world.spec.path))
    holder.execute("BEGIN").fetchall()
    holder.execute("SELECT count(*) FROM meta").fetchall()
    result = await setting.pruner.keep()
    assert (result.freed_bytes, result.owed_bytes > 3_000_000) == (0, True)
    holder.close()


def put_large(tx, number):
    from pwf.store.values import store_content

    return store_content(tx, f"{number}".encode() * 50_000)


async def test_a_prune_whose_client_goes_away_ends_between_two_trees(setting, nursery, autojump_clock):
    setting.ended(100)
    await setting.serve(nursery)
    await trio.sleep(1)
    now_ms = setting.clock.now().wall_ms
    with trio.move_on_after(1) as scope:
        nursery.start_soon(ends_when, scope, setting)
        await ask(setting, now_ms)
    left = len(await setting.left())
    assert 0 < left < 100
    assert await setting.violations() == ()
    await trio.sleep(1)
    assert len(await setting.left()) == left, "nobody waits for it any more"
    assert (await ask(setting, now_ms)).unwrap().runs == left


async def ends_when(scope, setting):
    while len(await setting.left()) > 90:
        await trio.lowlevel.checkpoint()
    scope.cancel()


async def test_who_waits_for_a_prune_when_the_pruner_ends_is_told(setting, nursery, autojump_clock):
    setting.ended(100)
    pruner = await setting.begin(nursery)
    told = []

    async def one() -> None:
        try:
            await ask(setting, setting.clock.now().wall_ms - 1)
        except Unavailable as error:
            told.append(error.message)

    await trio.sleep(1)
    async with trio.open_nursery() as all_of_them:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await pruner.run()

        all_of_them.start_soon(run)
        for _ in range(3):
            all_of_them.start_soon(one)
        all_of_them.start_soon(ends_when, scope, setting)
    assert told == ["the pruner has stopped"] * 3


async def test_a_backup_is_made_while_the_store_writes(setting, nursery, tmp_path):
    setting.ended(20)
    await setting.serve(nursery, threads=True)
    target = tmp_path / "b.db"
    async with trio.open_nursery() as both:
        both.start_soon(setting.backups.handle.make, target)
        for _ in range(5):
            await ask(setting, setting.clock.now().wall_ms, key=None)
    connection = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.execute("SELECT count(*) FROM runs").fetchall()[0][0] in range(21)
    connection.close()


async def test_a_backup_whose_client_goes_away_leaves_no_file(setting, nursery, tmp_path):
    setting.ended(5)
    await setting.serve(nursery, threads=True)
    with trio.CancelScope() as scope:
        scope.cancel()
        await setting.backups.handle.make(tmp_path / "b.db")
    assert list(tmp_path.glob("b.db*")) == []


async def test_backups_take_turns_and_hold_up_no_prune(setting, nursery, tmp_path, monkeypatch):
    setting.ended(5)
    await setting.serve(nursery, threads=True)
    writing, most, may_go_on = [], [0], threading.Event()

    def slowly(database, target, *, now, epoch, check_wanted):
        writing.append(target)
        most[0] = max(most[0], len(writing))
        may_go_on.wait(10)
        made = write_backup(database, target, now=now, epoch=epoch, check_wanted=check_wanted)
        writing.remove(target)
        return made

    monkeypatch.setattr("pwf.actors.upkeep.backup.write_backup", slowly)
    async with trio.open_nursery() as all_of_them:
        for name in ("a.db", "b.db"):
            all_of_them.start_soon(setting.backups.handle.make, tmp_path / name)
        await ask(setting, setting.clock.now().wall_ms)
        may_go_on.set()
    assert most == [1]
    assert {path.name for path in tmp_path.glob("?.db")} == {"a.db", "b.db"}


async def test_by_a_wall_clock_that_was_set_ahead_no_receipt_goes(setting, nursery, autojump_clock):
    setting.ended(1)
    await setting.serve(nursery)
    await trio.sleep(1)
    await ask(setting, setting.clock.now().wall_ms, key=receipt())
    setting.clock.wall_ahead_ms = 365 * DAY_MS
    await trio.sleep(FIRST_S)
    assert await setting.count("receipts") == 1
    await trio.sleep(3 * 24 * 3_600)  # a machine that was really away so long is believed
    assert await setting.count("receipts") == 0


async def test_values_are_dropped_in_commands_of_bounded_size():
    mib = 1024 * 1024
    values = [("a", 10 * mib), ("b", 10 * mib), ("c", 64 * mib), ("d", 1), ("e", 1)]
    assert slices(values) == [("a",), ("b",), ("c",), ("d", "e")]
    assert [len(group) for group in slices((str(n), 1) for n in range(250))] == [100, 100, 50]
    assert slices([]) == []
