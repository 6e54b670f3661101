"""What other tasks may do to the Scheduler and to a RunSupervisor: put messages, also late, many, or cancelled ones."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from pwf.actors.base.mailbox import Mailbox, ask
from pwf.actors.runs.run_supervisor import INBOX_MAX as WISHES_MAX
from pwf.actors.runs.run_supervisor import SupervisorHandle
from pwf.actors.runs.scheduler import INBOX_MAX, Look, StopRun, WhoIsSupervised
from pwf.config import Config
from pwf.errors import Unavailable
from pwf.store.control import Control, cancel
from tests.actors.test_offers import COMMIT_S, Commits, begin, being_admitted, statuses
from tests.actors.test_scheduler import LATER, Setting
from tests.store.world import linear

pytestmark = pytest.mark.trio


@pytest.fixture
def setting(tmp_path):
    found = Setting(tmp_path)
    found.pause = Commits()
    return found


def fill(setting: Setting) -> None:
    """No further message fits until the actor's next turn."""
    while setting.actor._inbox.put_now(Look()):
        pass
    assert setting.actor._inbox.count == INBOX_MAX


async def supervised(setting: Setting, run_id: str) -> set[tuple[int, int]]:
    """Its first generation, and no other."""
    number = "SELECT run_no FROM runs WHERE run_id = :run_id"
    rows = await setting.store.read(lambda tx, _: tx.all(number, {"run_id": run_id}), None)
    return {(rows[0][0], 1)}


async def hand_over(setting: Setting, message: Any) -> None:
    await setting.actor._inbox.put_surely(message)


# --- a full inbox ---------------------------------------------------------------------------------------------


async def test_a_stop_whose_sender_is_cancelled_at_a_full_inbox_is_not_lost(setting, nursery, autojump_clock):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    ready = setting.pool.stand_by()
    await scheduler.start(command)
    await ready.launched()
    with trio.CancelScope() as sender:
        sender.cancel()
        fill(setting)
        await scheduler.stop_run("mine", LATER)
    assert await ready.told() == b""


async def test_what_a_cancelled_start_has_admitted_reaches_a_full_inbox(setting, nursery, autojump_clock):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    ready = setting.pool.stand_by()
    setting.pause.seconds = {"executed": COMMIT_S}
    with trio.CancelScope() as client:
        setting.pause.acts = {"committed": lambda: (client.cancel(), fill(setting))}
        await scheduler.start(command)
    setting.pause.seconds = {}
    assert (await ready.serve()).run_id == "mine"
    await trio.sleep(0.1)
    assert (await statuses(setting))["mine"] == "completed"
    assert scheduler.free == scheduler.capacity


async def test_a_wake_up_that_finds_the_inbox_full_costs_no_seat(setting, nursery, autojump_clock):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    ready = setting.pool.stand_by()
    await scheduler.start(command)
    await ready.serve()
    fill(setting)
    await trio.sleep(0.1)
    assert (scheduler.used, scheduler.free) == (0, scheduler.capacity)


# --- askers that went away, seats that come back --------------------------------------------------------------


async def test_a_question_whose_asker_has_gone_harms_nobody(setting, nursery, autojump_clock):
    scheduler, ready = await being_admitted(setting, nursery)
    with trio.move_on_after(0.1):  # it is answered when the offer is closed
        await ask(setting.actor._inbox, WhoIsSupervised())
    await trio.sleep(COMMIT_S)
    answer = await ask(setting.actor._inbox, WhoIsSupervised())
    assert (answer.live, scheduler.used) == (await supervised(setting, "mine"), 1)
    assert (await ready.launched()).run_id == "mine"


async def test_a_question_is_answered_when_the_offers_of_that_time_are_closed_though_others_open(
    setting, nursery, autojump_clock
):
    setting.config = Config(max_runners=2)
    first, second = (setting.command(linear(1), run_id=name) for name in ("first", "second"))
    scheduler = await begin(setting, nursery)
    setting.pause.seconds = {"taken": COMMIT_S}
    nursery.start_soon(scheduler.start, first)
    await trio.sleep(COMMIT_S / 2)
    async with trio.open_nursery() as asking:
        asking.start_soon(ask_within_this_batch, setting)
        await wait_all_tasks_blocked()
        await scheduler.start(second)  # its offer is open longer
    await wait_all_tasks_blocked()
    assert scheduler.used == 2


async def ask_within_this_batch(setting: Setting) -> None:
    with trio.fail_after(COMMIT_S * 0.75):
        answer = await ask(setting.actor._inbox, WhoIsSupervised())
    assert answer.live == await supervised(setting, "first")


async def test_every_seat_comes_back_from_starts_that_are_cancelled_at_any_time(
    setting, nursery, autojump_clock
):
    setting.config = Config(max_runners=2)
    commands = [setting.command(linear(1)) for _ in range(20)]
    scheduler = await begin(setting, nursery)
    setting.pause.seconds = {"taken": 0.1, "executed": 0.1, "committed": 0.1}
    for number, command in enumerate(commands):
        with trio.move_on_after(number * 0.03):
            await scheduler.start(command)
        await trio.sleep(0.5)
        for process in setting.pool.made:
            await process.serve()
        setting.pool.made.clear()
    await trio.sleep(5)
    assert (scheduler.used, scheduler.free) == (0, 2)


# --- stops ----------------------------------------------------------------------------------------------------


async def test_a_stop_ends_nothing_that_was_admitted_since(setting, nursery, autojump_clock):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    ready = setting.pool.stand_by()
    await scheduler.start(command)
    await wait_all_tasks_blocked()
    (live,) = setting.actor._live.values()
    await scheduler.stop_run("mine", live.admission.revision)
    assert (await ready.serve()).run_id == "mine"
    await trio.sleep(0.1)
    assert (await statuses(setting))["mine"] == "completed"


async def test_a_stop_that_waits_for_open_offers_is_forgotten_with_them(setting, nursery, autojump_clock):
    scheduler, _ = await being_admitted(setting, nursery)
    await scheduler.stop_run("another", LATER)
    await wait_all_tasks_blocked()
    assert len(setting.actor._stops) == 1
    await trio.sleep(COMMIT_S)
    assert setting.actor._stops == []


# --- late, and many ---------------------------------------------------------------------------------------------


async def test_messages_to_a_supervisor_that_has_ended_are_of_no_use_and_no_harm(
    setting, nursery, autojump_clock
):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    ready = setting.pool.stand_by()
    await scheduler.start(command)
    await wait_all_tasks_blocked()
    (live,) = setting.actor._live.values()
    await ready.serve()
    await trio.sleep(0.1)
    assert live.handle.is_over
    live.handle.stop()
    await scheduler.stop_run("mine", LATER)
    await trio.sleep(0.1)
    assert (await statuses(setting))["mine"] == "completed"


async def test_more_stops_than_fit_end_a_runner_all_the_same(setting, nursery, autojump_clock):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    setting.pool.takes_s = 1.0
    await scheduler.start(command)
    await trio.sleep(0.5)
    await setting.store.write(cancel, Control(run_id="mine"))
    for _ in range(3 * WISHES_MAX):  # while its process is made, nobody reads them
        await hand_over(setting, StopRun(name="mine", revision=LATER))
    await trio.sleep(1)
    assert await setting.pool.made[0].told() == b""
    assert (await statuses(setting))["mine"] == "cancelled"


# --- before it runs, and after ----------------------------------------------------------------------------------


async def test_a_scheduler_that_admits_nothing_from_the_start_serves_its_inbox(
    setting, nursery, autojump_clock
):
    run_id = setting.start(linear(1))
    command = setting.command(linear(1), run_id="mine")
    setting.why_stopped = "it died three times"
    scheduler = await setting.begin(nursery)
    await scheduler.start(command)
    await trio.sleep(60)
    assert {run_id: "queued", "mine": "queued"} == await statuses(setting)
    assert scheduler.load().stopped == "it died three times"
    with trio.fail_after(1):
        await scheduler.drain(10.0)


async def test_a_scheduler_that_has_ended_refuses_and_starts_are_still_stored(
    setting, nursery, autojump_clock
):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    setting.life.cancel()
    await wait_all_tasks_blocked()
    with pytest.raises(Unavailable):
        await scheduler.stop_run("mine", LATER)
    await scheduler.start(command)
    assert (await statuses(setting))["mine"] == "queued"


# --- what supervisors publish ---------------------------------------------------------------------------------


async def test_the_end_of_a_supervisor_whose_wake_ups_find_no_room_is_seen_at_the_next_turn(
    setting, nursery, autojump_clock, monkeypatch
):
    command = setting.command(linear(1), run_id="mine")
    scheduler = await begin(setting, nursery)
    ready = setting.pool.stand_by()
    await scheduler.start(command)
    put_now = Mailbox.put_now
    no_room = lambda inbox, item: not isinstance(item, Look) and put_now(inbox, item)  # noqa: E731
    monkeypatch.setattr(Mailbox, "put_now", no_room)
    await ready.serve()
    await trio.sleep(1)
    assert (await statuses(setting))["mine"] == "completed"
    await scheduler.stop_run("another", LATER)
    await wait_all_tasks_blocked()
    assert scheduler.free == scheduler.capacity
    assert scheduler.live_leases() == ()


async def test_a_turn_reads_what_those_publish_that_have_changed_and_nobody_else(
    setting, nursery, autojump_clock, monkeypatch
):
    setting.config = Config(max_runners=32)
    scheduler = await begin(setting, nursery)
    for number in range(30):
        setting.pool.stand_by()
        await scheduler.start(setting.command(linear(1), run_id=f"run{number}"))
    await trio.sleep(1)
    assert len(scheduler.live_leases()) == 30
    read: list[Any] = []
    published = SupervisorHandle.is_gone
    looks = property(lambda handle: (read.append(handle), published.fget(handle))[1])
    monkeypatch.setattr(SupervisorHandle, "is_gone", looks)
    await hand_over(setting, Look())
    await wait_all_tasks_blocked()
    assert read == []
    setting.actor._woken.wake(scheduler.live_leases()[0][:2])
    await wait_all_tasks_blocked()
    assert len(read) == 1
