"""Custody of a process between two runs: its row goes with the last word, and whatever ends a run ends its process."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pwf.actors.runs import run_supervisor
from pwf.actors.runs.recovery import REREAD_S
from pwf.protocol.runner import Finish, Leaving
from pwf.store.control import Control, cancel
from pwf.store.custody import standing_runners
from pwf.values import INLINE_BYTES_MAX
from tests.actors.test_run_supervisor import COMMIT_S, PROOF_S, launched, setting, status
from tests.actors.test_scheduler import LATER, Process, Setting
from tests.store.world import IDEMPOTENT, graph, node

__all__ = ["setting"]
pytestmark = pytest.mark.trio

STAYS = Leaving(childless=True, stays=True)


async def begun(
    setting: Setting, nursery: trio.Nursery, flow: Any = None, **more: Any
) -> tuple[str, Process, Finish]:
    """A run whose process may stay, before its last word; what goes back is kept in `given_back`."""
    run_id, process, last = await launched(setting, nursery, flow, **more)
    process.given_back = []  # type: ignore[attr-defined]
    process.goes_back = process.given_back.append  # type: ignore[attr-defined]
    process.stay = lambda: process.goes_back(process)  # type: ignore[attr-defined]
    return run_id, process, last


def stays(process: Process) -> bool:
    return bool(process.given_back)  # type: ignore[attr-defined]


async def rows(setting: Setting, run_id: str) -> int:
    standing = await setting.store.read(standing_runners, None)
    return sum(one.name == run_id for one in standing)


async def test_a_process_goes_back_when_its_last_word_is_committed_and_its_row_is_gone(
    setting, nursery, autojump_clock
):
    run_id, process, last = await begun(setting, nursery)
    setting.pause.seconds = {"executed": COMMIT_S}
    await process.say(last, STAYS)
    await trio.sleep(COMMIT_S / 2)
    assert not stays(process)
    setting.pause.seconds = {}
    await trio.sleep(COMMIT_S)
    assert stays(process)
    assert (await status(setting, run_id), await rows(setting, run_id)) == ("completed", 0)
    assert process.asked_childless == [], "it is proved by its word, and lives"
    assert await setting.violations() == ()


async def test_the_row_needs_no_command_of_its_own_where_the_last_word_comes_with_the_leaving(
    setting, nursery, autojump_clock, monkeypatch
):
    def refuse(*_: Any) -> None:
        raise AssertionError("a command for the row alone")

    monkeypatch.setattr(run_supervisor, "runner_gone", refuse)
    run_id, process, last = await begun(setting, nursery)
    await process.say(last, STAYS)
    await trio.sleep(0.1)
    assert (await rows(setting, run_id), stays(process)) == (0, True)


async def test_its_capacity_is_the_next_runs(setting, nursery, autojump_clock):
    _, process, last = await begun(setting, nursery)
    await process.say(last, STAYS)
    await trio.sleep(0.1)
    assert len(setting.pool.made) == 2


async def test_a_word_that_came_before_its_leaving_goes_with_a_row_of_its_own(
    setting, nursery, autojump_clock
):
    """The end of an effect leaves at once, and the process is looked at after that."""
    run_id, process, last = await begun(setting, nursery, graph(node("a", effect=IDEMPOTENT)))
    await process.say(last)
    await trio.sleep(0.2)
    assert (await status(setting, run_id), await rows(setting, run_id), stays(process)) == (
        "completed",
        1,
        False,
    )
    await process.say(STAYS)
    await trio.sleep(0.1)
    assert (await rows(setting, run_id), stays(process)) == (0, True)


@pytest.mark.parametrize(
    "why", ["it is stopped", "the daemon drains", "its time is over", "it can not go back", "it has children"]
)
async def test_what_ends_its_run_ends_the_process(setting, nursery, autojump_clock, why):
    run_id, process, last = await begun(setting, nursery, graph(node("a", timeout_ms=1_000)))
    setting.pause.seconds = {"executed": COMMIT_S}
    if why == "the daemon drains":
        nursery.start_soon(setting.scheduler.drain, 30.0)
    elif why == "it can not go back":
        process.goes_back = None
    await trio.sleep(0.1)
    if why == "its time is over":
        await trio.sleep(1.5)
    else:
        await process.say(last, Leaving(childless=why != "it has children", stays=True))
    await trio.sleep(0.1)
    if why == "it is stopped":
        await setting.scheduler.stop_run(run_id, LATER)
    setting.pause.seconds = {}
    await trio.sleep(2 * COMMIT_S + PROOF_S)
    assert not stays(process)
    assert process.asked_childless == [False], "it is not waited for: it would not leave"
    assert await rows(setting, run_id) == 0
    assert await setting.violations() == ()


async def test_a_process_that_was_to_stay_and_is_stopped_and_not_proved_dead_is_found_by_recovery(
    setting, nursery, autojump_clock
):
    async def never(**_: Any) -> bool:
        return False

    run_id, process, last = await begun(setting, nursery)
    process.prove_dead = never  # type: ignore[method-assign]
    setting.pool.custody.dead = False
    setting.pause.seconds = {"executed": COMMIT_S}
    await process.say(last, STAYS)
    await trio.sleep(0.1)
    await setting.scheduler.stop_run(run_id, LATER)
    setting.pause.seconds = {}
    await trio.sleep(2 * COMMIT_S + 1)
    assert (await status(setting, run_id), await rows(setting, run_id), stays(process)) == (
        "completed",
        1,
        False,
    )
    setting.pool.custody.dead = True
    await trio.sleep(3 * REREAD_S)
    assert await rows(setting, run_id) == 0


async def test_a_process_whose_run_was_cancelled_before_its_last_word_does_not_stay(
    setting, nursery, autojump_clock
):
    run_id, process, last = await begun(setting, nursery)
    await setting.store.write(cancel, Control(run_id=run_id))
    await process.say(last, STAYS)
    await trio.sleep(PROOF_S + 1)
    assert await status(setting, run_id) == "cancelled"
    assert not stays(process)
    assert await rows(setting, run_id) == 0


async def test_a_stop_that_comes_while_its_row_is_on_its_way_is_not_the_next_runs(
    setting, nursery, autojump_clock
):
    run_id, process, last = await begun(setting, nursery, graph(node("a", effect=IDEMPOTENT)))
    await process.say(last)
    await trio.sleep(0.2)
    setting.pause.seconds = {"executed": COMMIT_S}
    await process.say(STAYS)
    await trio.sleep(1)
    await setting.scheduler.stop_run(run_id, LATER)
    setting.pause.seconds = {}
    await trio.sleep(2 * COMMIT_S)
    assert stays(process)
    with trio.move_on_after(1) as scope:
        await process.stream.receive_some(1)
    assert scope.cancelled_caught, "its stream can still be waited on"


async def test_a_process_that_leaves_does_not_go_back(setting, nursery, autojump_clock):
    run_id, process, last = await begun(setting, nursery)
    await process.say(last, Leaving(childless=True))
    await trio.sleep(0.1)
    assert not stays(process)
    assert process.asked_childless == [True], "its end is waited for"
    assert await status(setting, run_id) == "completed"


@pytest.mark.parametrize("stops", [False, True])
async def test_a_process_is_counted_as_stayed_when_it_has_gone_back_and_not_before(
    setting, nursery, autojump_clock, stops
):
    run_id, process, last = await begun(setting, nursery)
    setting.pause.seconds = {"executed": COMMIT_S}
    await process.say(last, STAYS)
    await trio.sleep(COMMIT_S / 2)
    assert not setting.pool.kept._known
    if stops:
        await setting.scheduler.stop_run(run_id, LATER)
    setting.pause.seconds = {}
    await trio.sleep(2 * COMMIT_S + PROOF_S)
    assert sum(one.stayed for one in setting.pool.kept._known.values()) == int(not stops)


async def test_the_values_of_a_further_run_can_be_read_from_the_process_that_goes_back(
    setting, nursery, autojump_clock
):
    _, process, last = await begun(setting, nursery, input="x" * 2 * INLINE_BYTES_MAX)
    await process.say(last, STAYS)
    await trio.sleep(0.1)
    assert stays(process)
    with trio.move_on_after(1) as waits:
        await process.theirs_values.receive_some()
    assert waits.cancelled_caught, "the daemon's end is open"


async def test_what_kept_a_process_from_staying_is_counted_with_the_last_reason(
    setting, nursery, autojump_clock
):
    _, process, last = await begun(setting, nursery)
    await process.say(last, Leaving(childless=True, not_kept="not as before: the umask"))
    process.leave()
    await trio.sleep(0.1)
    (known,) = setting.pool.kept._known.values()
    assert (known.stayed, known.ended, known.last_reason) == (0, 1, "not as before: the umask")
