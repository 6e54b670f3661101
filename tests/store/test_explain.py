"""Why a run is where it is: exactly one reason in every state, when that changes, and what can be typed."""

import re

import pytest

from pwf.cli import main
from pwf.protocol.views import ENDED
from pwf.store.control import HoldRun, hold_run
from pwf.store.explain import _HOLDS
from tests.store.test_control import STATES
from tests.store.world import MANUAL, graph, linear, node, retry

SECOND_MS = 1_000


PARSER = main.build_parser()


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_every_state_has_one_reason_and_something_to_type(world, state):
    run_id = state(world)
    why = world.why(run_id)
    assert why.code
    assert why.reason
    assert why.changes_when
    assert why.commands
    for command in why.commands:
        program, *words = command.split()
        assert program == "pwf"
        PARSER.parse_args(words)  # raises where there is no such command


@pytest.mark.parametrize("hold", sorted(_HOLDS))
def test_every_hold_names_the_act_that_lifts_it(world, hold):
    run_id = world.start(linear(1))
    (admission,) = world.admit()
    command = HoldRun(run_id=run_id, generation=admission.generation, hold=hold, detail="the detail")
    world.do(hold_run, command)
    why = world.why(run_id)
    assert why.code == hold
    assert "the detail" in why.reason
    lifts = "pwf recover" if hold == "effect_ambiguous" else "pwf resume"
    assert any(text.startswith(f"{lifts} {run_id}") for text in why.commands)
    assert f"pwf cancel {run_id}" in why.commands


def test_every_hold_that_a_row_may_have_is_explained(world):
    ((sql,),) = world.sql("SELECT sql FROM sqlite_schema WHERE name = 'runs'")
    holds = re.search(r"hold IN \((.*?)\)", sql, re.S)[1]
    assert set(re.findall(r"'(\w+)'", holds)) == set(_HOLDS)


@pytest.mark.parametrize("status", sorted(ENDED))
def test_an_ended_run_says_how_and_never_changes(world, status):
    runner = world.run(linear(1))
    if status == "cancelled":
        world.cancel(runner.run_id, reason="enough")
    else:
        runner.finish(outcome=status)
    why = world.why(runner.run_id)
    assert (why.code, why.changes_when) == ("ended", "never: it has ended")
    assert (f"pwf restart {runner.run_id}" in why.commands) is (status != "completed")


# --- queued -----------------------------------------------------------------------------------------------------


def test_a_start_at_a_time_says_when(world):
    run_id = world.start(linear(1), at_ms=world.clock.wall_ms + 90 * SECOND_MS)
    why = world.why(run_id)
    assert (why.code, why.changes_at_ms) == ("due_later", world.clock.wall_ms + 90 * SECOND_MS)
    assert why.changes_when == "in 1.5 min"


def test_a_timer_names_its_node_and_goes_by_the_clock_that_decides(world):
    runner = world.run(graph(node("nap", "wait")))
    runner.wait(delay_ms=60 * SECOND_MS)
    runner.leave()
    world.clock.wall_ms -= 3_600_000
    why = world.why(runner.run_id)
    assert (why.code, why.changes_when) == ("due_later", "in 1.0 min")
    assert "node 'nap' waits for its time" in why.reason
    assert why.changes_at_ms == world.clock.wall_ms + 60 * SECOND_MS


def test_a_timer_whose_time_has_come_waits_for_no_capacity(world):
    runner = world.run(graph(node("nap", "wait")))
    runner.wait(delay_ms=10)
    runner.leave()
    world.clock.forward(10)
    why = world.why(runner.run_id, used=4, capacity=4, stopped="the daemon is stopping")
    assert (why.code, why.reason) == ("due_later", "the time of node 'nap' has come")


def test_a_retry_says_how_often_it_failed(world):
    runner = world.run(graph(node("a", retry=retry(3, 5 * SECOND_MS))))
    runner.fail()
    runner.leave()
    why = world.why(runner.run_id)
    assert (why.code, why.changes_when) == ("retry_later", "in 5.0 s")
    assert "node 'a' failed once" in why.reason


@pytest.mark.parametrize(
    ("load", "code"),
    [
        ({}, "behind_in_queue"),
        ({"used": 1, "capacity": 4}, "behind_in_queue"),
        ({"used": 4, "capacity": 4}, "capacity"),
        ({"used": 4, "capacity": 4, "stopped": "the disk is full"}, "daemon_degraded"),
    ],
)
def test_a_due_run_waits_for_what_the_scheduler_waits_for(world, load, code):
    run_id = world.start(linear(1))
    why = world.why(run_id, **load)
    assert why.code == code
    if "stopped" in load:
        assert "the disk is full" in why.reason


def test_a_run_whose_old_processes_live_says_so(world):
    runner = world.run(linear(2))
    runner.drain = True
    runner.finish(1, to="b")
    assert world.why(runner.run_id).code == "reaping"


# --- running and waiting ------------------------------------------------------------------------------------------


def test_a_launch_is_no_execution_yet(world):
    run_id = world.start(linear(1))
    world.admit()
    assert world.why(run_id).code == "launching"
    world.pause(run_id)
    assert "it pauses then" in world.why(run_id).reason


def test_an_executing_step_says_since_when_and_until_when(world):
    runner = world.run(linear(1, timeout_ms=600 * SECOND_MS))
    started_ms = world.clock.wall_ms
    world.clock.forward(120 * SECOND_MS)
    why = world.why(runner.run_id)
    assert (why.code, why.changes_at_ms) == ("executing", started_ms + 600 * SECOND_MS)
    assert "node 'a' is executing since 2.0 min" in why.reason
    assert "time limit of 10.0 min" in why.changes_when
    world.pause(runner.run_id)
    assert "pauses after this step" in world.why(runner.run_id).reason


def test_a_step_without_a_limit_says_so(world):
    runner = world.run(linear(1, timeout_ms=None))
    why = world.why(runner.run_id)
    assert "no time limit" in why.changes_when
    assert why.changes_at_ms is None


def test_an_open_request_names_the_answer_and_that_it_waits_for_ever(world):
    runner = world.run(graph(node("gate", "checkpoint")))
    runner.ask()
    runner.leave()
    why = world.why(runner.run_id)
    assert why.code == "request_open"
    assert "waits for ever" in why.changes_when
    assert why.commands[0] == f"pwf answer {world.request_of(runner.run_id)}"
    world.pause(runner.run_id)
    paused = world.why(runner.run_id)
    assert paused.code == "paused"
    assert world.request_of(runner.run_id) in paused.reason


def test_an_ended_run_names_the_effect_that_nobody_knows_about_and_how_to_say_it(world):
    runner = world.run(graph(node("send", "action", effect=MANUAL)))
    runner.gone()
    world.cancel(runner.run_id)
    why = world.why(runner.run_id)
    key = f"{runner.run_id}:send:1"
    assert why.code == "ended"
    assert f"nobody knows whether its effect {key} happened" in why.reason
    assert f"pwf effects resolve {key} happened" in why.commands
    for command in why.commands:
        PARSER.parse_args(command.split()[1:])
