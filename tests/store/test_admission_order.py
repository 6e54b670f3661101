"""Admission order: what goes on comes before what is new, and new starts don't starve."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pwf.store.queue import GOING_ON_MAX, Admit, StartAdmitted, admit, start_admitted
from tests.store.test_queue import DAY_MS, add_backlog
from tests.store.world import World, graph, linear, node, retry

PARKED = graph(node("nap", "wait", to="after"), node("after"))


def parked(world, *, priority=0):
    """A run whose timer will be due in a minute; `admitted` lets it pass."""
    runner = world.run(PARKED, priority=priority)
    assert runner.wait(delay_ms=60_000) == "park"
    runner.leave()
    return runner.run_id


def admitted(world, limit, going_on=0):
    world.clock.forward(60_000)
    command = Admit(limit=limit, epoch=1, owner="daemon:1", lease_ms=30_000, going_on=going_on)
    return [admission.run_id for admission in world.do(admit, command).runs]


def test_a_run_that_goes_on_is_admitted_before_one_that_was_due_earlier_and_is_new(world):
    older = parked(world)
    new = world.start(linear(1))

    assert world.row(new)["due_wall_ms"] < world.row(older)["due_wall_ms"]
    assert admitted(world, 2) == [older, new]


@pytest.mark.parametrize("how", ["answered", "interrupted", "handed off", "resumed", "retried", "timer"])
def test_whatever_goes_on_comes_before_ten_thousand_new_starts(world, how):
    run_id = ONGOING[how](world)
    definition_id = world.define(linear(1))
    world.checked = False
    add_backlog(world, definition_id, "ready", 1, 10_000, 0)
    if how == "resumed":
        world.resume(run_id)

    assert admitted(world, 1) == [run_id]


def answered(world):
    runner = world.run(graph(node("ask", "checkpoint", to="after"), node("after")))
    assert runner.ask() == "park"
    runner.leave()
    world.answer(runner.run_id, "yes")
    return runner.run_id


def interrupted(world):
    runner = world.run(linear(2))
    runner.gone()
    return runner.run_id


def handed_off(world):
    runner = world.run(linear(2))
    runner.drain = True
    runner.finish(to="b")
    runner.leave()
    return runner.run_id


def paused_in_the_middle(world):
    run_id = handed_off(world)
    world.pause(run_id)
    return run_id


def retried(world):
    runner = world.run(graph(node("a", retry=retry(2))))
    runner.fail()
    runner.leave()
    return runner.run_id


ONGOING = {
    "answered": answered,
    "interrupted": interrupted,
    "handed off": handed_off,
    "resumed": paused_in_the_middle,
    "retried": retried,
    "timer": parked,
}


def test_a_run_that_was_paused_before_its_first_launch_is_still_new(world):
    older = parked(world)
    new = world.start(linear(1))
    world.pause(new)
    world.resume(new)

    assert admitted(world, 2) == [older, new]


def test_every_eighth_admission_takes_the_oldest_new_start(world):
    older = [parked(world) for _ in range(20)]
    new = [world.start(linear(1)) for _ in range(3)]

    order = admitted(world, 20)

    assert [order.index(run_id) for run_id in new[:2]] == [GOING_ON_MAX, 2 * GOING_ON_MAX + 1]
    assert [run_id for run_id in order if run_id in older] == older[:18]


def test_the_eighth_is_counted_across_transactions(world):
    older = [parked(world) for _ in range(5)]
    new = world.start(linear(1))

    assert admitted(world, 3, going_on=5) == [older[0], older[1], new]


def test_a_higher_priority_comes_first_whatever_its_kind(world):
    low = parked(world, priority=0)
    high = world.start(linear(1), priority=5)

    assert admitted(world, 2) == [high, low]


def test_a_start_that_carries_an_offer_gives_it_to_what_goes_on(world):
    older = parked(world)
    world.clock.forward(60_000)
    offer = Admit(limit=1, epoch=1, owner="daemon:1", lease_ms=30_000)

    _, taken = world.do(start_admitted, StartAdmitted(start=world.start_command(linear(1)), admit=offer))

    assert [admission.run_id for admission in taken.runs] == [older]


def test_new_starts_that_are_due_later_stay_new_when_their_time_comes(world):
    new = world.start(linear(1), at_ms=world.clock.wall_ms + DAY_MS)
    older = parked(world)
    world.clock.forward(2 * DAY_MS)

    assert admitted(world, 2) == [older, new]


runs = st.lists(st.tuples(st.booleans(), st.integers(0, 1)), max_size=14)


@settings(max_examples=40, deadline=None)
@given(made=runs, batches=st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_any_mix_is_admitted_in_the_order_of_the_model(tmp_path_factory, made, batches):
    world = World(tmp_path_factory.mktemp("order"))
    try:
        older = [(parked(world, priority=priority), priority) for goes_on, priority in made if goes_on]
        newer = [
            (world.start(linear(1), priority=priority), priority) for goes_on, priority in made if not goes_on
        ]
        compare(world, older, newer, batches)
    finally:
        world.close()


def compare(world, older, newer, batches):
    """Admit in batches, and hold what comes against the model."""
    expected = in_model_order(older, newer)

    found, count = [], 0
    for limit in batches:
        for run_id in admitted(world, limit, going_on=count):
            found.append(run_id)
            count = 0 if any(run_id == new for new, _ in newer) else count + 1

    assert found == expected[: len(found)]
    assert len(found) == min(len(expected), sum(batches))


def in_model_order(older, newer):
    """One at a time, by the words of the design."""
    older, newer = (sorted(these, key=lambda one: -one[1]) for these in (older, newer))
    order, count = [], 0
    while older or newer:
        best = max(priority for these in (older, newer) for _, priority in these[:1])
        can_go_on = bool(older) and older[0][1] == best
        can_start = bool(newer) and newer[0][1] == best
        if can_start and (not can_go_on or count >= 7):
            order.append(newer.pop(0)[0])
            count = 0
        else:
            order.append(older.pop(0)[0])
            count += 1
    return order


@pytest.mark.parametrize("time", [{"wall_ms": 60_000}, {"delay_ms": 60_000}], ids=["absolute", "rebooted"])
def test_a_timer_comes_before_any_number_of_starts_that_fell_due_while_nobody_looked(world, time):
    runner = world.run(PARKED)
    now = world.clock.wall_ms
    runner.wait(**{name: ms + (now if name == "wall_ms" else 0) for name, ms in time.items()})
    runner.leave()
    world.checked = False
    world.sql("UPDATE run_queue SET due_boot_id = NULL, due_elapsed_ms = NULL")  # as after a reboot
    add_backlog(world, world.define(linear(1)), "later", 1, 10_000, now)

    assert admitted(world, 1) == [runner.run_id]
