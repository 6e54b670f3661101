"""Recovery is a loop: what fails in one pass is done by a later one, without a restart (R1, R8)."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import trio

from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.runs.recovery import REREAD_S
from pwf.config import Config
from pwf.errors import Unavailable
from tests.actors.test_scheduler import Setting
from tests.store.world import MANUAL, graph, linear, node

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
async def test_fifty_interrupted_runs_resume_or_end_though_every_second_use_of_the_store_fails_once(
    setting, nursery, autojump_clock, monkeypatch, what, first_fails
):
    resuming = [interrupted(setting, linear(2)) for _ in range(RUNS // 2)]
    uncertain = [interrupted(setting, graph(node("send", "action", effect=MANUAL))) for _ in range(RUNS // 2)]
    plain, calls = getattr(StoreHandle, what), itertools.count(int(first_fails))
    failed = []

    async def fails(self: StoreHandle, handler: Any, command: Any, *more: Any, **options: Any) -> Any:
        if next(calls) % 2:
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
