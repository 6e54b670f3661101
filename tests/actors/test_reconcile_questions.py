"""What a reconciling process asks of the daemon, when the reconcile ends in the middle of a question."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
import trio
from trio.testing import memory_stream_pair

from pwf.actors.code.schemas import Schemas
from pwf.actors.resources.questions import Questions
from pwf.actors.runs.settings_changes import Wanted
from pwf.protocol.reconcile import CancelRun, ChangeChild, ChildAnswer
from pwf.protocol.runner import encode_line
from pwf.protocol.settings import SettingsChanged
from pwf.store.children import Cancelled, StopOf
from pwf.store.once import Done
from pwf.store.runners import Fence

pytestmark = pytest.mark.trio

COMMIT_S = 3.0


class SlowStore:
    """A store that takes its time, and commits what it was given even if nobody waits for it any more.

    `stops`: of runs whose processes were to be ended.
    """

    def __init__(self) -> None:
        self.stops: list[StopOf] = []

    async def write(self, *_: Any, **__: Any) -> Cancelled:
        await trio.sleep(COMMIT_S)
        return Cancelled(child=None, stop=StopOf("child", 7))

    async def stop_run(self, run_id: str, revision: int) -> None:
        self.stops.append(StopOf(run_id, revision))


async def test_a_child_that_was_cancelled_is_told_to_stop_although_the_reconcile_ends_meanwhile(
    autojump_clock: object,
) -> None:
    ours, theirs = memory_stream_pair()
    questions = Questions(cast(Any, None), Schemas(), cast(Any, None))
    world = SlowStore()
    fence = Fence(run_id="u", entity_no=1, generation=1, token="t")
    await theirs.send_all(encode_line([CancelRun(request_key="k")]))
    with trio.move_on_after(COMMIT_S / 2) as scope:
        nobody = cast(Any, None)
        await questions.serve(ours, fence, cast(Any, world), nobody, deleting=False, secrets=nobody)
    assert scope.cancelled_caught
    assert world.stops == [StopOf("child", 7)]


class Answered:
    """A store with a child, and with what a change under its key was answered before. `store`: itself."""

    def __init__(self, before: SettingsChanged | None) -> None:
        self.before = before
        self.store = self

    async def write(self, *_: Any, **__: Any) -> str:
        return "child-run"

    async def read(self, *_: Any) -> Done[SettingsChanged] | None:
        return None if self.before is None else Done(result=self.before, adopted=True)


class Changes:
    """Makes each change that is wanted, as number 7."""

    def __init__(self) -> None:
        self.wanted: list[Wanted] = []

    async def make(self, _world: Any, wanted: Wanted, _commit: Any) -> Done[SettingsChanged]:
        self.wanted.append(wanted)
        return Done(result=SettingsChanged(run_id=wanted.run_id, change=7, revision=1))


async def asked_for_change(before: SettingsChanged | None) -> tuple[int | None, list[Wanted]]:
    """The number that a manager gets, and what was made."""
    ours, theirs = memory_stream_pair()
    changes, nobody = Changes(), cast(Any, None)
    questions = Questions(nobody, Schemas(), cast(Any, changes))
    fence = Fence(run_id="u", entity_no=1, generation=1, token="t")
    word = ChangeChild(request_key="k", key="once", patch=msgspec.Raw(b"[]"))
    await theirs.send_all(encode_line([word]))
    await theirs.send_eof()
    world = cast(Any, Answered(before))
    await questions.serve(ours, fence, world, nobody, deleting=False, secrets=nobody)
    answer = msgspec.json.decode(bytes(await theirs.receive_some()), type=ChildAnswer)
    return answer.change, changes.wanted


async def test_a_manager_changes_settings_as_a_manager_and_once_under_its_key() -> None:
    number, (wanted,) = await asked_for_change(None)
    assert (number, wanted.run_id, wanted.kind, wanted.who) == (7, "child-run", "manager", "resource:u")
    assert wanted.receipt is not None
    assert wanted.receipt.scope_key == "resource:u/child-run/settings.change/once"


async def test_a_change_that_was_made_before_is_answered_so_whatever_the_settings_are_by_now() -> None:
    before = SettingsChanged(run_id="child-run", change=3, revision=1)
    assert await asked_for_change(before) == (3, [])
