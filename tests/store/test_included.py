"""Steps of an included workflow in the store: counted from each entry, within both limits, forgotten at the next."""

from __future__ import annotations

import msgspec
import pytest

from pwf.errors import Rejected
from pwf.protocol.graph import MountSpec
from pwf.store.fork import fork_run
from tests.store.test_fork import command, fork, look
from tests.store.world import graph, node


def included(*, child_steps=100, max_steps=100):
    """`m` enters `m.a`, which goes round and leaves by `m.z`; `again` enters `m` again or goes on to `end`."""
    spec = MountSpec(workflow="child", max_steps=child_steps, exits={"out": ("m.z",)})
    entry = msgspec.structs.replace(node("m", to="m.a"), mount=spec)
    return graph(
        entry,
        node("m.a", cases={"round": "m.a", "on": "m.z"}),
        node("m.z", to="again"),
        node("again", cases={"more": "m", "enough": "end"}),
        node("end"),
        max_steps=max_steps,
    )


def twice(world, flow=None):
    """A run that has gone round twice in its first entry, and stands at `m.z` in its second."""
    runner = world.run(flow or included())
    for output, following in (
        ("in", "m.a"),
        ("round", "m.a"),
        ("on", "m.z"),
        ("out", "again"),
        ("more", "m"),
        ("in", "m.a"),
        ("on", "m.z"),
    ):
        runner.finish(output, to=following)
    return runner


def told(world, run_id):
    """(node, visit) of the results that a next runner is told of, and what it counts from."""
    launch = world.launch(run_id).launch
    return [(step.node, step.visit) for step in launch.past], launch.entries


def test_a_child_that_is_entered_again_is_told_of_none_of_its_earlier_steps(world):
    runner = twice(world)
    runner.leave()
    past, entries = told(world, runner.run_id)
    assert past == [("again", 1), ("m", 2), ("m.a", 3)]
    assert entries == {"m": {"m.a": 2, "m.z": 1}}


def test_in_its_first_entry_it_counts_from_nothing(world):
    runner = world.run(included())
    runner.finish("in", to="m.a")
    runner.finish("round", to="m.a")
    runner.leave()
    assert told(world, runner.run_id) == ([("m", 1), ("m.a", 1)], {})


def test_a_child_may_take_its_steps_at_each_entry(world):
    runner = twice(world, included(child_steps=3))
    assert runner.finish("out", to="again") == "go"


@pytest.mark.parametrize("limits", [{"child_steps": 2}, {"max_steps": 3}])
def test_the_nearer_limit_ends_the_run_and_is_named(world, limits):
    runner = world.run(included(**limits))
    runner.finish("in", to="m.a")
    runner.finish("round", to="m.a")
    assert runner.finish("round", to="m.a") == "end"
    assert world.status(runner.run_id) == "failed"
    reason = world.row(runner.run_id)["reason"]
    whose = "'child', included as 'm', took 2 steps" if "child_steps" in limits else "the run took 3 steps"
    assert whose in reason


def test_a_fork_within_an_entry_counts_on_from_it(world):
    runner = twice(world)
    runner.fail()
    runner.leave()
    new = fork(world, runner.run_id).run_id
    past, entries = told(world, new)
    assert past == [("again", 1), ("m", 2), ("m.a", 3)]
    assert entries == {"m": {"m.a": 2, "m.z": 1}}


def test_a_fork_within_an_earlier_entry_counts_from_that_one(world):
    runner = twice(world)
    runner.fail()
    runner.leave()
    new = fork(world, runner.run_id, "m.a", visit=2).run_id
    assert told(world, new) == ([("m", 1), ("m.a", 1)], {})


def test_a_fork_at_the_include_enters_it_anew(world):
    runner = twice(world)
    runner.fail()
    runner.leave()
    new = fork(world, runner.run_id, "m", visit=2).run_id
    entries = told(world, new)[1]
    assert entries == {"m": {"m.a": 2, "m.z": 1}}


def test_a_fork_at_an_include_that_was_not_entered_again_counts_from_all_before_it(world):
    runner = world.run(included(max_steps=4))
    for output, following in (("in", "m.a"), ("on", "m.z"), ("out", "again")):
        runner.finish(output, to=following)
    assert runner.finish("more", to="m") == "end"
    runner.leave()
    asked = command(world, runner.run_id)
    there = msgspec.structs.replace(asked.start.fork, node="m", visit=2)  # where the daemon has it go on
    start = msgspec.structs.replace(asked.start, fork=there, max_steps=50)
    new = world.do(fork_run, msgspec.structs.replace(asked, start=start)).run_id
    past, entries = told(world, new)
    assert past[-1] == ("again", 1)
    assert entries == {"m": {"m.a": 1, "m.z": 1}}


def entering(world, runner, rounds):
    """Enter `m` and go through it, with so many rounds, to `again`."""
    runner.finish("in", to="m.a")
    for _ in range(rounds):
        runner.finish("round", to="m.a")
    runner.finish("on", to="m.z")
    runner.finish("out", to="again")


def test_a_fork_of_a_run_that_stands_at_an_include_not_yet_begun_counts_as_its_entry_did(world):
    runner = twice(world)
    runner.finish("out", to="again")
    world.pause(runner.run_id)
    assert runner.finish("more", to="m") == "park"  # the third entry, of which there is no attempt
    runner.leave()
    new = fork(world, runner.run_id, "m.a", visit=3).run_id
    assert told(world, new)[1] == {"m": {"m.a": 2, "m.z": 1}}


def test_a_fork_of_a_fork_counts_from_the_same_entry(world):
    runner = world.run(included(child_steps=8))
    entering(world, runner, 5)
    runner.finish("more", to="m")
    entering(world, runner, 5)
    runner.finish("enough", to="end")
    runner.finish("end")
    runner.leave()
    first = world.launch(fork(world, runner.run_id, "m.z", visit=2).run_id)
    first.finish("out", to="again")
    first.finish("more", to="m")
    entering(world, first, 0)
    first.finish("enough", to="end")
    first.finish("end")
    first.leave()
    second = world.launch(fork(world, first.run_id, "m.z", visit=2).run_id)
    assert first.launch.entries == second.launch.entries == {"m": {"m.a": 6, "m.z": 1}}
    assert second.finish("out", to="again") == "go"


def test_a_run_whose_child_met_its_limit_goes_on_only_where_the_child_says_a_higher_one(world):
    runner = world.run(included(child_steps=2))
    for output, following in (("in", "m.a"), ("round", "m.a"), ("round", "m.a")):
        runner.finish(output, to=following)
    assert world.status(runner.run_id) == "failed"
    runner.leave()
    assert f"pwf retry {runner.run_id}" in world.why(runner.run_id).commands, "no --max-steps lifts it"
    place = msgspec.structs.replace(look(world, runner.run_id).fork, node="m.a", visit=3)
    with pytest.raises(Rejected, match=r"'child', included as 'm', took 2 steps up to there") as refused:
        fork(world, runner.run_id, flow=included(child_steps=2), start={"fork": place, "max_steps": 500})
    assert "Workflow('child', max_steps=4)" in refused.value.hint
    again = fork(world, runner.run_id, flow=included(child_steps=3), start={"fork": place})
    goes_on = world.launch(again.run_id)
    assert goes_on.finish("round", to="m.a") == "end"
