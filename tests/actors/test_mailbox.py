"""A bounded inbox."""

import pytest
import trio
import trio.testing

from pwf.actors.base.mailbox import Mailbox
from pwf.errors import Unavailable

pytestmark = pytest.mark.trio


async def test_everything_that_waits_is_taken_in_order_up_to_a_bound():
    box = Mailbox[int](10, "the box")
    for number in range(5):
        await box.put(number)
    assert await box.take(3) == [0, 1, 2]
    assert not box.empty
    assert await box.take(3) == [3, 4]
    assert box.empty


async def test_who_gathers_takes_what_was_put_in_within_a_turn_of_the_loop():
    box, taken = Mailbox[int](10, "the box"), []

    async def take(gathers):
        taken.append(await box.take(10, gathers=gathers))

    async def put():
        box.put_now(1)
        await trio.lowlevel.checkpoint()
        box.put_now(2)

    for gathers in (True, False):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, gathers)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(put)
        box.take_now()
    assert taken[0] == [1, 2]
    assert taken[1][0] == 1


async def test_a_sender_waits_while_the_inbox_is_full(autojump_clock):
    box = Mailbox[int](1, "the box")
    await box.put(1)
    with trio.move_on_after(1) as scope:
        await box.put(2)
    assert scope.cancelled_caught
    assert await box.take(5) == [1]


async def test_a_closed_inbox_refuses_senders_and_gives_back_what_was_never_taken():
    box = Mailbox[int](2, "the box")
    await box.put(1)
    await box.put(2)
    refused = []

    async def late():
        try:
            await box.put(3)
        except Unavailable as error:
            refused.append(error.message)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(late)
        await trio.testing.wait_all_tasks_blocked()
        # a sender that waits is taken too: it has handed over by the time that it learns
        assert box.close() == [1, 2, 3]
    with pytest.raises(Unavailable, match="the box has stopped"):
        await box.put(4)
    assert refused == []


async def test_senders_that_wait_are_let_in_in_order_and_before_who_comes_later():
    box = Mailbox[int](2, "the box")
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(box.put, number)
            await trio.testing.wait_all_tasks_blocked()
        assert await box.take(2) == [0, 1]
        assert not box.put_now(9)
        assert await box.take(2) == [2, 3]
        assert box.put_now(5)
        assert await box.take(2) == [4, 5]


async def test_an_item_is_not_lost_with_a_receiver_that_is_cancelled_as_it_comes():
    box = Mailbox[int](2, "the box")
    with trio.CancelScope() as scope:

        async def send():
            await trio.testing.wait_all_tasks_blocked()
            box.put_now(1)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            taken = await box.take(2)
            await box.put(taken[0])
    assert box.take_now() == [1]


async def test_an_item_that_must_be_learned_of_is_handed_over_by_a_cancelled_sender():
    box = Mailbox[int](1, "the box")
    await box.put(1)
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.cancel()
        nursery.start_soon(box.put_surely, 2)
        nursery.start_soon(box.put, 3)
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
            assert await box.take(5) == [1]
            await trio.testing.wait_all_tasks_blocked()
            assert box.take_now() == [2]
