"""The one answer to one message, under cancellation at every point."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pwf.actors.base.reply import Reply

pytestmark = pytest.mark.trio


async def test_an_answer_or_an_error_that_was_given_before_is_had_at_once() -> None:
    good: Reply[int] = Reply()
    bad: Reply[int] = Reply()
    assert good.give(1)
    assert bad.fail(KeyError("x"))

    assert await good.wait() == 1
    with pytest.raises(KeyError):
        await bad.wait()


async def test_an_asker_that_is_cancelled_before_the_message_was_taken_has_withdrawn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reply: Reply[int] = Reply()
    with trio.move_on_after(1) as scope:
        await reply.wait()

    assert scope.cancelled_caught
    assert reply.withdrawn
    assert not reply.take()
    assert not reply.give(1)


async def test_an_asker_that_is_cancelled_after_the_message_was_taken_learns_the_outcome(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reply: Reply[int] = Reply()
    assert reply.take()

    async def answer_late() -> None:
        await trio.sleep(2)
        assert reply.give(7)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_late)
        with trio.move_on_after(1):
            assert await reply.wait() == 7
    assert trio.current_time() == pytest.approx(2, abs=0.01)


async def test_an_answer_given_in_the_instant_of_the_cancel_reaches_the_asker() -> None:
    reply: Reply[int] = Reply()
    got: list[int] = []

    async def ask(scope: trio.CancelScope) -> None:
        with scope:
            got.append(await reply.wait())

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, scope)
        await trio.testing.wait_all_tasks_blocked()
        assert reply.give(3)
        scope.cancel()

    assert got == [3]
