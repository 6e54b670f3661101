"""A repeat of a command gets its first answer, whatever has become of what it was about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

from pwf.actors.base.store_actor import StoreActor
from pwf.actors.operations.caller import Caller
from pwf.actors.operations.dispatch import Operations
from pwf.config import Config
from pwf.protocol.frames import Request, Response
from pwf.store.retention import PruneTree, prune_tree
from tests.store.inline_executor import InlineExecutor
from tests.store.world import World, linear

pytestmark = pytest.mark.trio

FAR_MS = 2**52


class Setting:
    """The operations on a store; what they need besides does nothing."""

    def __init__(self, world: World, store: Any) -> None:
        async def nothing(*_: object) -> None: ...

        scheduler = SimpleNamespace(stop_run=nothing, wake=lambda: None, load=lambda: None)
        life = SimpleNamespace(state="serving", why_degraded=None)
        services: Any = SimpleNamespace(
            store=store, scheduler=scheduler, life=life, user="ann", config=Config()
        )
        self.world = world
        self._operations = Operations(services)
        self._caller = Caller(1, nothing)

    async def ask(self, operation: str, run_id: str, key: str = "k") -> Response:
        payload = msgspec.Raw(b"{}")
        request = Request(
            request_id="1",
            client_id="c",
            operation=operation,
            run_id=run_id,
            idempotency_key=key,
            payload=payload,
        )
        return await self._operations.handle(request, self._caller)

    def prune(self) -> None:
        self.world.do(prune_tree, PruneTree(before_ms=FAR_MS))


@pytest.fixture
async def setting(tmp_path, nursery):
    world = World(tmp_path)
    store = await nursery.start(StoreActor(InlineExecutor(world.spec)).run)
    yield Setting(world, store)
    world.close()


def told(response: Response) -> Any:
    return None if response.result is None else msgspec.json.decode(response.result)


async def test_a_repeat_whose_run_was_pruned_gets_its_first_answer(setting):
    run_id = setting.world.start(linear(1))
    first = await setting.ask("run.cancel", run_id)
    setting.prune()
    again = await setting.ask("run.cancel", run_id)
    assert (first.outcome, again.outcome, told(again)) == ("accepted", "adopted", told(first))
    assert (await setting.ask("run.cancel", run_id, key="another")).outcome == "not_found"


async def test_a_repeat_whose_run_was_pruned_gets_its_first_refusal(setting):
    run_id = setting.world.start(linear(1))
    setting.world.cancel(run_id)
    first = await setting.ask("run.pause", run_id)
    setting.prune()
    again = await setting.ask("run.pause", run_id)
    assert first.error is not None
    assert (first.outcome, again.outcome, again.error) == ("rejected", "rejected", first.error)


async def test_a_repeat_whose_short_name_means_several_runs_by_now_gets_its_first_answer(setting):
    run_id = setting.world.start(linear(1), run_id="abc-1")
    first = await setting.ask("run.pause", "abc")
    setting.world.start(linear(1), run_id="abc-2")
    again = await setting.ask("run.pause", "abc")
    assert (again.outcome, told(again), told(first)["run_id"]) == ("adopted", told(first), run_id)


async def test_a_command_about_no_run_is_refused_again_though_there_is_such_a_run_by_then(setting):
    first = await setting.ask("run.cancel", "late")
    setting.world.start(linear(1), run_id="late")
    again = await setting.ask("run.cancel", "late")
    assert first.error is not None
    assert (first.outcome, again.outcome, again.error) == ("not_found", "not_found", first.error)
    assert (await setting.ask("run.cancel", "late", key="another")).outcome == "accepted"


async def test_a_key_that_was_used_for_another_command_is_refused_as_before(setting):
    run_id = setting.world.start(linear(1))
    await setting.ask("run.pause", run_id)
    assert (await setting.ask("run.cancel", run_id)).outcome == "conflict"
    assert (await setting.ask("run.cancel", "gone")).outcome == "conflict"
    await trio.lowlevel.checkpoint()
