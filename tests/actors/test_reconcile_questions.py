"""What a reconciling process asks of the daemon, when the reconcile ends in the middle of a question."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import memory_stream_pair

from pwf.actors.code.schemas import Schemas
from pwf.actors.resources.questions import Questions
from pwf.protocol.reconcile import CancelRun
from pwf.protocol.runner import encode_line
from pwf.store.children import Cancelled, StopOf
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
