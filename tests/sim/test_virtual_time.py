"""The clock of a simulated world."""

from __future__ import annotations

import trio

from tests.sim.virtual_time import VirtualTime, sleep


def in_virtual_time(main):
    return trio.run(main, clock=VirtualTime())


def test_sleepers_wake_in_the_order_of_their_times_among_those_of_trio():
    order = []

    async def note(name, how, seconds):
        await how(seconds)
        order.append((name, trio.current_time()))

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note, "c", sleep, 3.0)
            nursery.start_soon(note, "b", trio.sleep, 2.0)
            nursery.start_soon(note, "a", sleep, 1.0)

    in_virtual_time(main)
    assert order == [("a", 1.0), ("b", 2.0), ("c", 3.0)]


def test_a_sleeper_that_was_cancelled_is_not_woken():
    async def main():
        with trio.move_on_after(1.0) as scope:
            await sleep(5.0)
        assert scope.cancelled_caught
        assert trio.current_time() == 1.0
        await sleep(10.0)
        assert trio.current_time() == 11.0

    in_virtual_time(main)


def test_a_jump_while_a_task_runs_ends_the_sleep_of_those_whose_time_has_come():
    woken = []

    async def main():
        async def other():
            await sleep(5.0)
            woken.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await sleep(1.0)
            trio.lowlevel.current_clock().jump(60.0)
        assert woken == [61.0]

    in_virtual_time(main)
