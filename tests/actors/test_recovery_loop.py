"""Recovery is a loop: what fails in one pass is done by a later one, without a restart (R1, R8)."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
import trio

from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.processes.custody import PROOF_TIMEOUT_S
from pwf.actors.runs.recovery import REREAD_S
from pwf.config import Config
from pwf.errors import ClaimLost, Unavailable
from pwf.store.batch import HeldClaim
from pwf.store.custody import standing_stretch
from pwf.store.daemon import ClaimEpoch, claim
from tests.actors.test_scheduler import Setting
from tests.store.world import MANUAL, World, graph, linear, node

pytestmark = pytest.mark.trio

RUNS = 50


@pytest.fixture
def setting(tmp_path):
    found = Setting(tmp_path)
    found.config = Config(max_runners=64)
    return found


def interrupted(setting: Setting, flow: Any) -> str:
    """A run whose runner and daemon are gone."""
    run_id = setting.start(flow)
    setting.world.launch(run_id)
    return run_id


@pytest.mark.parametrize("first_fails", [True, False])
@pytest.mark.parametrize("what", ["read", "write"])
async def test_fifty_interrupted_runs_resume_or_end_though_every_second_use_of_a_command_fails_once(
    setting, nursery, autojump_clock, monkeypatch, what, first_fails
):
    resuming = [interrupted(setting, linear(2)) for _ in range(RUNS // 2)]
    uncertain = [interrupted(setting, graph(node("send", "action", effect=MANUAL))) for _ in range(RUNS // 2)]
    plain = getattr(StoreHandle, what)
    calls: dict[Any, itertools.count[int]] = defaultdict(lambda: itertools.count(int(first_fails)))
    failed = []

    async def fails(self: StoreHandle, handler: Any, command: Any, *more: Any, **options: Any) -> Any:
        if next(calls[handler]) % 2:
            failed.append(handler.__name__)
            raise Unavailable("the store could not be used just now")
        return await plain(self, handler, command, *more, **options)

    monkeypatch.setattr(StoreHandle, what, fails)
    await setting.begin(nursery)
    await trio.sleep(12 * REREAD_S)
    monkeypatch.undo()

    assert len(failed) >= 3, failed
    views = [await setting.view(run_id) for run_id in (*resuming, *uncertain)]
    assert Counter(view.summary.status for view in views) == {"running": RUNS // 2, "ambiguous": RUNS // 2}
    again = [step for view in views[: RUNS // 2] for step in view.steps if step.status == "active"]
    assert [step.attempt for step in again] == [2] * (RUNS // 2)
    assert await setting.violations() == ()


async def test_a_daemon_that_was_taken_over_from_signals_no_process_of_its_successor(
    setting, autojump_clock, tmp_path
):
    setting.world.spec = replace(setting.world.spec, guarded=True)
    with trio.fail_after(60), pytest.RaisesGroup(ClaimLost, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await setting.begin(nursery)
            await setting.store.hold_claim(HeldClaim(setting.epoch, "t"))
            await trio.sleep(REREAD_S)
            successor = World(tmp_path, setting.world.clock)
            successor.do(claim, ClaimEpoch(token="u", lease_ms=1_000, pid=2, version="x"))
            runner = successor.run(linear(1))
            assert successor.do(standing_stretch, 0).found[0].name == runner.run_id
            successor.close()
            await trio.sleep_forever()  # until its recovery looks again
    assert setting.pool.custody.given == [], "no proof was begun, so nothing was signalled"


async def test_a_runner_that_can_not_be_proved_dead_keeps_no_other_waiting(
    setting, nursery, autojump_clock, monkeypatch
):
    hangs, dies, gone = runs = [interrupted(setting, linear(2)) for _ in range(3)]

    async def left_nothing(sought: Any) -> list[bool]:
        return [gone in one.marker for one in sought]

    async def prove_dead(identity: Any, marker: str, *, timeout_s: float) -> bool:
        await trio.sleep(timeout_s if hangs in marker else 0)
        return hangs not in marker

    monkeypatch.setattr(setting.pool, "left_nothing", left_nothing)
    monkeypatch.setattr(setting.pool, "prove_dead", prove_dead)
    await setting.begin(nursery)
    await trio.sleep(PROOF_TIMEOUT_S / 2)
    views = {run_id: await setting.view(run_id) for run_id in runs}
    assert {run_id: view.steps[-1].attempt for run_id, view in views.items()} == {hangs: 1, dies: 2, gone: 2}
    assert await setting.violations() == ()


async def test_more_runners_than_are_read_at_once_are_all_settled(
    setting, nursery, autojump_clock, monkeypatch
):
    monkeypatch.setattr("pwf.store.custody.STRETCH_MAX", 3)
    runs = [interrupted(setting, linear(2)) for _ in range(7)]
    await setting.begin(nursery)
    await trio.sleep(1)
    views = [await setting.view(run_id) for run_id in runs]
    assert [(view.summary.status, view.steps[-1].attempt) for view in views] == [("running", 2)] * len(runs)
    assert await setting.violations() == ()
