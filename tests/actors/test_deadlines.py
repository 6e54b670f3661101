"""Whoever is watched is woken when its time is over, and not before, however often that changes."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pwf.actors.runs.deadlines import Deadlines

pytestmark = pytest.mark.trio


class Step:
    """Says when it was woken."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.woken: list[float] = []

    def wake(self) -> None:
        """Remember it."""
        self.woken.append(trio.current_time())


@pytest.fixture
def deadlines(autojump_clock: trio.testing.MockClock, nursery: trio.Nursery) -> Deadlines:
    found = Deadlines()
    nursery.start_soon(found.run)
    return found


async def test_each_is_woken_at_its_own_time(
    autojump_clock: trio.testing.MockClock, deadlines: Deadlines
) -> None:
    began = trio.current_time()
    steps = [Step(began + seconds) for seconds in (3, 1, 2)]
    for step in steps:
        deadlines.watch(step)
    await trio.sleep(5)
    assert [[at - began for at in step.woken[:1]] for step in steps] == [[3], [1], [2]]


async def test_a_deadline_that_moves_is_the_one_that_holds(
    autojump_clock: trio.testing.MockClock, deadlines: Deadlines
) -> None:
    began = trio.current_time()
    later, sooner = Step(began + 1), Step(began + 60)
    for step in (later, sooner):
        deadlines.watch(step)
    later.deadline, sooner.deadline = began + 4, began + 2
    deadlines.note(later.deadline)
    deadlines.note(sooner.deadline)
    await trio.sleep(10)
    assert (later.woken[0] - began, sooner.woken[0] - began) == (4, 2)


async def test_one_that_was_woken_is_woken_again_at_its_next_deadline(
    autojump_clock: trio.testing.MockClock, deadlines: Deadlines
) -> None:
    began = trio.current_time()
    step = Step(began + 1)
    deadlines.watch(step)
    await trio.sleep(2)
    step.deadline = began + 3
    deadlines.note(step.deadline)
    await trio.sleep(2)
    assert [at - began for at in step.woken] == [1, 3]


async def test_one_that_has_ended_is_left_alone(
    autojump_clock: trio.testing.MockClock, deadlines: Deadlines
) -> None:
    step = Step(trio.current_time() + 1)
    deadlines.watch(step)
    deadlines.forget(step)
    deadlines.forget(step)
    await trio.sleep(2)
    assert step.woken == []
