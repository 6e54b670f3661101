"""What a transaction that may admit runs is offered: capacity, and processes that stand by. In virtual time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pwf.actors.runs.admission import LOOK_S
from pwf.actors.runs.launching import launchable
from pwf.actors.runs.recovery import REREAD_S
from pwf.actors.runs.run_supervisor import RunSupervisor
from pwf.actors.runs.scheduler import SchedulerHandle
from pwf.config import Config
from pwf.errors import InvalidArgument, Unavailable
from pwf.protocol.graph import SourceFile
from pwf.store.control import Control, cancel
from pwf.store.custody import standing_runners
from pwf.store.runs import start_run
from tests.actors.test_scheduler import LATER, Process, Setting
from tests.store.world import MANUAL, graph, linear, node

pytestmark = pytest.mark.trio

SEND = graph(node("send", "action", effect=MANUAL))
COMMIT_S = 1.0


class Commits:
    """What happens at a point of the next commit. `seconds`: how long each takes there."""

    def __init__(self) -> None:
        self.acts: dict[str, Callable[[], Any]] = {}
        self.seconds: dict[str, float] = {}
        self.count = 0

    async def __call__(self, point: str) -> None:
        self.count += point == "committed"
        act = self.acts.pop(point, None)
        if act is not None:
            act()
        await trio.sleep(self.seconds.get(point, 0))


@pytest.fixture
def setting(tmp_path):
    found = Setting(tmp_path)
    found.pause = Commits()
    return found


async def begin(setting: Setting, nursery: trio.Nursery, flow: Any = None) -> SchedulerHandle:
    """A scheduler that knows the definition: a run of it is over, and nothing is under way."""
    flow = flow or linear(1)
    run_id = setting.start(flow)
    scheduler = await setting.begin(nursery)
    await trio.sleep(0.1)
    first = setting.pool.made.pop()
    setting.pool.asked = 0
    await first.serve()
    await trio.sleep(0.1)
    assert (await setting.view(run_id)).summary.status == "completed"
    assert scheduler.used == 0
    return scheduler


async def being_admitted(setting: Setting, nursery: trio.Nursery) -> tuple[SchedulerHandle, Process]:
    """A start of the run `mine` is in the middle of its commit, with the process that stands by for it."""
    command = setting.command(SEND, run_id="mine")
    scheduler = await begin(setting, nursery, SEND)
    ready = setting.pool.stand_by()
    setting.pause.seconds = {"executed": COMMIT_S}
    nursery.start_soon(scheduler.start, command)
    await trio.sleep(COMMIT_S / 2)
    return scheduler, ready


async def statuses(setting: Setting) -> dict[str, str]:
    rows = await setting.store.read(lambda tx, _: tx.all("SELECT run_id, status FROM runs"), None)
    return dict(rows)


async def clean(setting: Setting) -> bool:
    return await setting.violations() == ()


# --- started at once ------------------------------------------------------------------------------------------


async def test_a_start_that_finds_a_process_is_launched_with_one_commit(setting, nursery, autojump_clock):
    command = setting.command(linear(1), run_id="mine")
    await begin(setting, nursery)
    ready, before = setting.pool.stand_by(), setting.pause.count
    done = await setting.scheduler.start(command)
    assert (done.result.run_id, setting.pause.count - before) == ("mine", 1)
    assert (await statuses(setting))["mine"] == "running"
    (standing,) = await setting.store.read(standing_runners, None)
    assert standing.identity == ready.identity
    launch = await ready.serve()
    assert (launch.run_id, launch.marker, ready.marker) == ("mine", "h:mine:1", "h:mine:1")
    await trio.sleep(0.1)
    assert (await statuses(setting))["mine"] == "completed"
    assert setting.pause.count - before == 3
    assert setting.pool.asked == 0
    assert await clean(setting)


async def test_a_start_without_a_process_that_stands_by_gets_one_made(setting, nursery, autojump_clock):
    command = setting.command(linear(1), run_id="mine")
    await begin(setting, nursery)
    await setting.scheduler.start(command)
    await trio.sleep(0.1)
    assert (await setting.pool.made[0].serve()).run_id == "mine"


async def test_a_process_that_nobody_needed_stands_by_for_the_next(setting, nursery, autojump_clock):
    later = setting.command(linear(1), run_id="later", at_ms=setting.world.clock.wall_ms + 3_600_000)
    command = setting.command(linear(1), run_id="mine")
    await begin(setting, nursery)
    ready = setting.pool.stand_by()
    await setting.scheduler.start(later)
    await wait_all_tasks_blocked()
    assert setting.pool.waiting == [ready]
    assert setting.scheduler.free == setting.scheduler.capacity
    await setting.scheduler.start(command)
    assert (await ready.launched()).run_id == "mine"


async def test_a_start_beyond_the_capacity_waits_and_takes_the_process_when_there_is_room(
    setting, nursery, autojump_clock
):
    setting.config = Config(max_runners=1)
    commands = [setting.command(linear(1), run_id=name) for name in ("first", "second")]
    await begin(setting, nursery)
    processes = [setting.pool.stand_by(), setting.pool.stand_by()]
    for command in commands:
        await setting.scheduler.start(command)
    assert (await processes[0].serve()).run_id == "first"
    with trio.fail_after(0.1):
        assert (await processes[1].serve()).run_id == "second"
    await trio.sleep(0.1)
    assert await clean(setting)


async def test_concurrent_starts_never_admit_more_than_there_is_room_for(setting, nursery, autojump_clock):
    setting.config = Config(max_runners=2)
    commands = [setting.command(linear(1), run_id=f"r{number}") for number in range(6)]
    await begin(setting, nursery)
    setting.pause.seconds = {"executed": 0.3, "committed": 0.3}
    async with trio.open_nursery() as starting:
        for command in commands:
            setting.pool.stand_by()
            starting.start_soon(setting.scheduler.start, command)
    await trio.sleep(10)
    running = [run_id for run_id, status in (await statuses(setting)).items() if status == "running"]
    assert (len(running), setting.scheduler.used) == (2, 2)
    assert await clean(setting)


# --- lost wake-ups --------------------------------------------------------------------------------------------


async def test_capacity_that_was_promised_to_a_start_that_failed_goes_to_who_came_meanwhile(
    setting, nursery, autojump_clock
):
    setting.config = Config(max_runners=1)
    good = setting.command(linear(1), run_id="good")
    bad = setting.command(linear(1), priority=10**9)
    await begin(setting, nursery)
    setting.pause.seconds = {"taken": COMMIT_S}

    async def fails() -> None:
        await trio.sleep(COMMIT_S / 2)  # into the batch after that of the other
        with pytest.raises(InvalidArgument):
            await setting.scheduler.start(bad)
        setting.pause.seconds = {}

    async with trio.open_nursery() as starting:
        starting.start_soon(fails)
        await setting.store.write(start_run, good)
        assert setting.scheduler.free == 0, "it is promised"
    await trio.sleep(LOOK_S)
    assert (await statuses(setting))["good"] == "running"


async def test_a_start_that_is_withdrawn_before_its_turn_leaves_no_trace(setting, nursery, autojump_clock):
    command = setting.command(linear(1), run_id="mine")
    await begin(setting, nursery)
    ready = setting.pool.stand_by()
    setting.pause.seconds = {"taken": COMMIT_S}
    nursery.start_soon(setting.store.write, lambda _tx, _: None, None)
    await trio.sleep(0.1)
    with trio.move_on_after(0.1):
        await setting.scheduler.start(command)
    await wait_all_tasks_blocked()
    assert (setting.pool.waiting, setting.scheduler.free) == ([ready], setting.scheduler.capacity)
    await trio.sleep(REREAD_S)
    assert "mine" not in await statuses(setting)


# --- while the commit is under way ----------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["taken", "executed", "committed"])
async def test_a_run_whose_client_is_gone_before_the_answer_is_launched_all_the_same(
    setting, nursery, autojump_clock, point
):
    command = setting.command(linear(1), run_id="mine")
    await begin(setting, nursery)
    ready = setting.pool.stand_by()
    setting.pause.seconds = {point: COMMIT_S}
    with trio.move_on_after(COMMIT_S / 2) as client:
        await setting.scheduler.start(command)
        await trio.lowlevel.checkpoint()
    assert client.cancelled_caught
    setting.pause.seconds = {}
    assert (await ready.serve()).run_id == "mine"
    await trio.sleep(0.1)
    assert (await statuses(setting))["mine"] == "completed"
    assert setting.pool.custody.given == [], "nobody takes it for an orphan"
    assert await clean(setting)


async def one_batch(setting: Setting, nursery: trio.Nursery, on_committed: Callable[[], None]) -> None:
    """What is written from now on is one batch; when that is committed, and nobody is answered yet, this is done."""

    async def hold_up() -> None:
        await setting.store.write(lambda _tx, _: None, None)
        setting.pause.seconds = {}
        setting.pause.acts = {"committed": on_committed}

    setting.pause.seconds = {"taken": COMMIT_S}
    nursery.start_soon(hold_up)
    await trio.sleep(0.1)


@pytest.mark.parametrize("admitted_by", ["its start", "the scheduler"])
async def test_a_cancel_that_commits_with_the_admission_stops_the_runner_before_it_is_told(
    setting, nursery, autojump_clock, admitted_by
):
    """Who has cancelled may have the answer first, and then finds no supervisor to stop."""
    setting.config = Config(max_runners=1)
    commands = [setting.command(SEND, run_id=name) for name in ("other", "mine")]
    scheduler = await begin(setting, nursery, SEND)
    other, ready = setting.pool.stand_by(), setting.pool.stand_by()
    if admitted_by == "its start":
        other, ready = ready, other
    else:
        for command in commands:
            await scheduler.start(command)
    await one_batch(setting, nursery, lambda: nursery.start_soon(scheduler.stop_run, "mine", LATER))
    if admitted_by == "its start":
        nursery.start_soon(scheduler.start, commands[1])
    else:
        await other.serve()
    await trio.sleep(0.1)
    await setting.store.write(cancel, Control(run_id="mine"))
    assert await ready.told() == b""
    await trio.sleep(0.1)
    assert (await statuses(setting))["mine"] == "cancelled"
    assert scheduler.used == 0
    assert await clean(setting)


async def test_a_drain_waits_for_what_is_just_being_admitted_and_begins_no_step_of_it(
    setting, nursery, autojump_clock
):
    scheduler, ready = await being_admitted(setting, nursery)
    await scheduler.drain(10.0)
    assert await ready.told() == b""
    view = await setting.view("mine")
    assert (view.summary.status, [step.status for step in view.steps]) == ("queued", ["interrupted"])
    assert [effect.status for effect in view.effects] == ["cancelled"], "it surely has not happened"
    assert await setting.store.read(standing_runners, None) == ()
    assert await clean(setting)


async def test_a_drain_without_time_settles_what_is_just_being_admitted(setting, nursery, autojump_clock):
    scheduler, _ = await being_admitted(setting, nursery)
    await scheduler.drain(0.0)
    assert (await statuses(setting))["mine"] == "queued"
    assert await setting.store.read(standing_runners, None) == ()


async def test_recovery_takes_no_run_for_an_orphan_whose_admission_is_just_being_answered(
    setting, nursery, autojump_clock
):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    ready = setting.pool.stand_by()
    setting.pause.seconds = {"committed": 2 * REREAD_S}  # recovery reads it meanwhile
    await scheduler.start(command)
    setting.pause.seconds = {}
    await trio.sleep(REREAD_S)
    assert setting.pool.custody.given == []
    assert (await ready.serve()).run_id == "mine"
    await trio.sleep(0.1)
    assert (await statuses(setting))["mine"] == "completed"


async def test_what_is_admitted_while_the_scheduler_ends_is_left_to_the_next_daemon(
    setting, nursery, autojump_clock
):
    scheduler, ready = await being_admitted(setting, nursery)
    setting.life.cancel()
    await trio.sleep(2 * COMMIT_S)
    assert (scheduler.used, scheduler.free, setting.pool.waiting) == (0, 0, [ready])
    (standing,) = await setting.store.read(standing_runners, None)
    assert (standing.name, standing.identity) == ("mine", ready.identity)
    assert await clean(setting)


# --- processes that are of no use -----------------------------------------------------------------------------


async def test_a_process_that_died_before_it_was_told_costs_its_run_another_launch(
    setting, nursery, autojump_clock
):
    command = setting.command(linear(1), run_id="mine")
    await begin(setting, nursery)
    ready = setting.pool.stand_by()
    await ready.theirs.aclose()
    await setting.scheduler.start(command)
    await trio.sleep(0.1)
    launch = await setting.pool.made[-1].serve()
    assert (launch.run_id, launch.generation, launch.attempt) == ("mine", 2, 2)
    await trio.sleep(0.1)
    assert (await statuses(setting))["mine"] == "completed"
    assert await clean(setting)


async def test_a_supervisor_that_fails_before_it_serves_hangs_up_on_the_process(
    setting, nursery, autojump_clock, monkeypatch
):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    ready = setting.pool.stand_by()

    async def fails(*_: Any) -> Any:
        raise Unavailable("the read took too long")

    monkeypatch.setattr(RunSupervisor, "_live", fails)
    await scheduler.start(command)
    assert await ready.told() == b""
    monkeypatch.undo()
    await trio.sleep(2 * REREAD_S)
    assert (await setting.pool.made[-1].serve()).generation == 2
    await trio.sleep(0.1)
    assert (await statuses(setting))["mine"] == "completed"
    assert await clean(setting)


async def test_no_process_is_offered_for_what_is_compared_first_or_isolated_or_gone(
    setting, nursery, autojump_clock
):
    setting.start(linear(1))
    scheduler = await setting.begin(nursery)
    await trio.sleep(0.1)
    (live,) = setting.actor._live.values()
    known = live.handle.launched_from
    setting.pool.stand_by()
    source = SourceFile(path="/flow.py", kind="root", module="", digest="d", size=1)
    for changed in ({"isolate": "spawn"}, {"sources": (source,)}, {"root": "/nowhere"}):
        facts = msgspec.structs.replace(known.facts, **changed)
        setting.actor._launchables.learn(launchable(live.admission, facts, known.environment))
        offer = scheduler._offers.take(1)
        assert (offer.admit.limit, offer.admit.standbys) == (1, ())
        await scheduler._offers.close(offer, None)


async def test_a_scheduler_that_is_ended_while_its_inbox_is_full_ends(
    setting, nursery, autojump_clock, monkeypatch
):
    """What was just admitted is handed over surely, which nobody takes any more."""
    monkeypatch.setattr("pwf.actors.runs.scheduler.INBOX_MAX", 1)
    setting.pause.seconds = {"committed": COMMIT_S}
    setting.start(linear(1))
    scheduler = await setting.begin(nursery)
    await trio.sleep(1.5 * COMMIT_S)  # its first admission is being committed
    setting.life.cancel()
    await wait_all_tasks_blocked()
    with contextlib.suppress(Unavailable):
        await scheduler.stop_run("another", LATER)
    await trio.sleep(COMMIT_S)
    has_ended = setting.life.cancelled_caught
    setting.actor._inbox.take_now()  # else this test would never end either
    assert has_ended
