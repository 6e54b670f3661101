"""The end of a runner, as its supervisor sees it: its last word, its leaving, its exit, and the capacity it held."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pwf.config import Config
from pwf.protocol.runner import Finish, Leaving
from pwf.store.custody import standing_runners
from tests.actors import test_scheduler
from tests.actors.test_offers import Commits
from tests.actors.test_scheduler import LATER, Process, Setting
from tests.store.world import MANUAL, graph, linear, node, value

pytestmark = pytest.mark.trio

COMMIT_S = 5.0
PROOF_S = 3.0


@pytest.fixture
def setting(tmp_path):
    found = Setting(tmp_path)
    found.config = Config(max_runners=1)
    found.pause = Commits()
    return found


async def launched(
    setting: Setting, nursery: trio.Nursery, flow: Any = None, **more: Any
) -> tuple[str, Process, Finish]:
    """A run whose runner has begun, with its last word, which it has not said yet; another run waits for capacity."""
    run_id = setting.start(flow or linear(1), **more)
    setting.start(linear(1))
    await setting.begin(nursery)
    await trio.sleep(0.1)
    (process,) = setting.pool.made
    process.proof_s = PROOF_S
    launch = await process.launched()
    assert (launch.run_id, setting.scheduler.used) == (run_id, 1)
    last = Finish(seq=1, attempt=launch.attempt, outcome="completed", output=value("done"))
    return run_id, process, last


async def status(setting: Setting, run_id: str) -> str:
    return str((await setting.view(run_id)).summary.status)


async def next_begins(setting: Setting, within_s: float) -> None:
    """The other run gets a runner."""
    with trio.fail_after(within_s):
        while len(setting.pool.made) < 2:  # noqa: ASYNC110 - nobody says when
            await trio.sleep(0.01)


# --- the capacity ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["its leaving", "its exit"])
async def test_capacity_is_free_when_a_runner_has_left_though_its_last_word_is_not_committed(
    setting, nursery, autojump_clock, first
):
    run_id, process, last = await launched(setting, nursery)
    setting.pause.seconds = {"executed": COMMIT_S}
    if first == "its exit":
        process.leave()
    await process.say(last, Leaving(childless=True))
    await trio.sleep(0.1)
    if first == "its leaving":
        assert setting.scheduler.used == 1
        process.leave()
    await wait_all_tasks_blocked()
    assert setting.scheduler.used == 0
    assert await status(setting, run_id) == "running"
    setting.pause.seconds = {}
    await next_begins(setting, COMMIT_S + 0.1)
    assert await status(setting, run_id) == "completed"
    assert await setting.violations() == ()


async def test_capacity_is_not_free_before_a_runner_is_proved_dead_that_had_to_be_killed(
    setting, nursery, autojump_clock
):
    run_id, process, last = await launched(setting, nursery)
    await process.say(last, Leaving(childless=True))  # and it stays
    await trio.sleep(0.1)
    assert process.asked_childless == [True]
    assert process.on_exit is not None
    process.on_exit()  # by our hand: it has not left
    await trio.sleep(PROOF_S / 2)
    assert (setting.scheduler.used, len(setting.pool.made)) == (1, 1)
    assert await status(setting, run_id) == "completed"
    await next_begins(setting, PROOF_S)


@pytest.mark.parametrize("leaving", [Leaving(childless=False), None], ids=["with children", "without a word"])
async def test_capacity_is_not_free_before_the_proof_where_a_runner_may_have_left_something(
    setting, nursery, autojump_clock, leaving
):
    _, process, last = await launched(setting, nursery)
    await process.say(last, *([] if leaving is None else [leaving]))
    process.leave()
    await process.theirs.aclose()
    await trio.sleep(PROOF_S / 2)
    assert (setting.scheduler.used, len(setting.pool.made)) == (1, 1)
    assert process.asked_childless == [False]
    await next_begins(setting, PROOF_S)


async def test_a_runner_that_left_is_not_counted_while_the_store_takes_nothing(
    setting, nursery, autojump_clock
):
    """Its last word waits for the store, and is not lost."""
    run_id, process, last = await launched(setting, nursery)
    setting.pause.seconds = {"taken": 60.0}
    await process.say(last, Leaving(childless=True))
    process.leave()
    await trio.sleep(30)
    assert (setting.scheduler.used, await status(setting, run_id)) == (0, "running")
    setting.pause.seconds = {}
    await trio.sleep(60)
    assert await status(setting, run_id) == "completed"
    assert len(await setting.store.read(standing_runners, None)) == 1, "the other run's"


# --- the last word --------------------------------------------------------------------------------------------


async def test_a_last_word_that_comes_with_the_leaving_is_not_answered(setting, nursery, autojump_clock):
    run_id, process, last = await launched(setting, nursery)
    await process.say(last, Leaving(childless=True))
    process.leave()
    assert await process.told() == b""
    await trio.sleep(0.1)
    assert await status(setting, run_id) == "completed"


async def test_a_last_word_counts_though_its_time_is_over_before_the_commit(setting, nursery, autojump_clock):
    run_id, process, last = await launched(setting, nursery, graph(node("a", timeout_ms=1_000)))
    setting.pause.seconds = {"executed": COMMIT_S}
    await trio.sleep(0.8)
    await process.say(last, Leaving(childless=True))
    process.leave()
    await trio.sleep(2 * COMMIT_S)
    assert [step.status for step in (await setting.view(run_id)).steps] == ["completed"]


async def test_a_last_word_counts_though_its_runner_is_stopped_before_the_commit(
    setting, nursery, autojump_clock
):
    run_id, process, last = await launched(setting, nursery)
    setting.pause.seconds = {"executed": COMMIT_S}
    await process.say(last, Leaving(childless=True))
    process.leave()
    await trio.sleep(0.1)
    await setting.scheduler.stop_run(run_id, LATER)
    setting.pause.seconds = {}
    await trio.sleep(2 * COMMIT_S)
    assert process.asked_childless == [False], "who is stopped is not believed"
    assert await status(setting, run_id) == "completed"
    assert await setting.violations() == ()


async def test_a_run_whose_runner_left_without_its_last_word_goes_on(setting, nursery, autojump_clock):
    run_id, process, _ = await launched(setting, nursery)
    await process.say(Leaving(childless=True))
    process.leave()
    await trio.sleep(0.1)
    view = await setting.view(run_id)
    assert [(step.status, step.error.code) for step in view.steps if step.error] == [
        ("interrupted", "runner_crashed")
    ]
    assert view.summary.status in ("queued", "running")
    assert await setting.violations() == ()


# --- a death in the middle of a step --------------------------------------------------------------------------


async def tries(setting: Setting, run_id: str) -> list[tuple[str, str]]:
    """Status and error of every attempt that has ended."""
    steps = sorted((await setting.view(run_id)).steps, key=lambda step: step.attempt)
    return [
        (step.status, step.error.message if step.error else "") for step in steps if step.status != "active"
    ]


async def hang_up(process: Process, died_of: str = "SIGKILL") -> None:
    process.died_of = died_of
    process.leave()
    await process.theirs.aclose()
    await trio.sleep(PROOF_S + 0.1)


async def test_a_runner_that_ends_in_the_middle_of_a_step_is_a_failed_try_that_names_the_signal(
    setting, nursery, autojump_clock
):
    run_id, process, _ = await launched(setting, nursery)
    await hang_up(process, "SIGSEGV")
    assert await tries(setting, run_id) == [
        ("failed", "its runner ended in the middle of the step (SIGSEGV)")
    ]


async def test_a_runner_that_ends_while_the_daemon_stops_is_no_failed_try(setting, nursery, autojump_clock):
    """Who ends the machine, or a session, ends runners and daemon together."""
    run_id, process, _ = await launched(setting, nursery)
    nursery.start_soon(setting.scheduler.drain, 30.0)
    await hang_up(process, "SIGTERM")
    assert await tries(setting, run_id) == [("interrupted", "")]


async def test_a_runner_that_could_not_become_its_runs_is_no_failed_try(setting, nursery, autojump_clock):
    run_id, process, _ = await launched(setting, nursery)
    process.was_unfit = True
    await hang_up(process)
    assert [status for status, _ in await tries(setting, run_id)] == ["interrupted"]


class Stuck(Process):
    """It is stopped, and takes nothing that it is told."""

    def __init__(self, number: int) -> None:
        super().__init__(number)

        async def send_all(_data: bytes) -> None:
            await trio.sleep_forever()

        self.stream.send_all = send_all  # type: ignore[method-assign]


async def test_a_runner_that_takes_no_launch_and_is_ended_for_it_is_no_failed_try(
    setting, nursery, autojump_clock, monkeypatch
):
    monkeypatch.setattr(test_scheduler, "Process", Stuck)
    run_id = setting.start(linear(1))
    await setting.begin(nursery)
    await trio.sleep(setting.config.lease_s + 0.5)
    assert [status for status, _ in await tries(setting, run_id)] == ["interrupted"]


async def test_a_runner_counts_as_told_before_the_first_byte_of_its_launch_has_left(
    setting, nursery, autojump_clock, monkeypatch
):
    """Nobody knows how much of it arrived: a manual effect may have happened."""
    monkeypatch.setattr(test_scheduler, "Process", Stuck)
    run_id = setting.start(graph(node("send", "action", effect=MANUAL)))
    await setting.begin(nursery)
    await trio.sleep(setting.config.lease_s + 0.5)
    assert setting.said("supervisor.failed") == 0
    assert await status(setting, run_id) == "ambiguous"
    assert [effect.status for effect in (await setting.view(run_id)).effects] == ["ambiguous"]


# --- what no runner says --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forged",
    [
        b'{"type":"finish","seq":1,"attempt":1,"outcome":"completed","output":{"json":1},"active_ms":%d}\n'
        % 2**63,
        b'{"type":"put_chunk","seq":1,"digest":"zz","index":0,"data":"","last":true}\n',
    ],
    ids=["a number too large", "a digest that is none"],
)
async def test_a_forged_message_is_a_protocol_error_of_that_runner_and_no_fault_of_ours(
    setting, nursery, autojump_clock, forged
):
    run_id, process, _ = await launched(setting, nursery)
    await process.theirs.send_all(forged)
    await trio.sleep(PROOF_S + 0.1)
    ((status_of_try, why),) = await tries(setting, run_id)
    assert status_of_try == "interrupted"
    assert "not a runner's message" in why
    assert (setting.said("runner.protocol"), setting.said("supervisor.failed")) == (1, 0)
