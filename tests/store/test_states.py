"""docs/states.md draws every way from one standing of a run to another, and no other; its tables name what there is.

`World` looks after each command whether what a run did is drawn, so all tests of the store look for an arrow that is
missing. Here each arrow that is drawn is taken, so that none is too many.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pwf.protocol.agents import AgentCommand, Limited
from pwf.store import tx
from pwf.store.control import HoldRun, hold_run
from pwf.store.launch import LaunchTerms
from pwf.store.queue import admit
from tests.store import test_settings
from tests.store.arrows import PAGE, Arrow, drawn
from tests.store.test_launch import offer, standby
from tests.store.world import MANUAL, OBSERVED, Runner, World, graph, linear, node

SCHEMA = (Path(tx.__file__).parent / "schema.sql").read_text(encoding="utf-8")

ASK = graph(node("ask", "checkpoint", to="then"), node("then"))
LAST_ASK = graph(node("ask", "checkpoint"))
SEND = graph(node("send", "action", effect=MANUAL, to="then"), node("then"))
LAST_SEND = graph(node("send", "action", effect=MANUAL))


def asking(world: World, flow=ASK) -> Runner:
    runner = world.run(flow)
    runner.ask()
    return runner


def waiting(world: World, flow=ASK) -> str:
    runner = asking(world, flow)
    runner.leave()
    return runner.run_id


def ambiguous(world: World, flow=SEND) -> str:
    runner = world.run(flow)
    runner.gone()
    return runner.run_id


def garble(world: World) -> None:
    """No row of a run can be read any more."""
    world.sql("UPDATE runs SET visits = CAST('{' AS BLOB)")
    world.checked = False


# --- a scenario for each arrow that leaves the standing ---------------------------------------------------------


def a_run_steps_and_ends(world):
    runner = world.run(linear(2))
    runner.drain = True
    runner.finish(to="b")
    runner.leave()
    world.launch(runner.run_id).finish()


def a_run_finds_a_process_that_stands_by(world):
    flow = linear(1)
    world.start(flow)
    world.do(admit, offer(standby(world, flow)))


def a_queued_run_is_paused_and_resumed(world):
    run_id = world.start(linear(1))
    world.pause(run_id)
    world.resume(run_id)


def a_timer_is_set_and_ends_the_run(world):
    runner = world.run(graph(node("nap", "wait")))
    runner.wait(delay_ms=1_000)
    runner.leave()
    world.clock.forward(1_000)
    world.admit()


def a_timer_is_set_under_a_pause(world):
    runner = world.run(graph(node("nap", "wait")))
    world.pause(runner.run_id)
    runner.wait(delay_ms=1_000)


def a_step_ends_under_a_pause(world):
    runner = world.run(linear(2))
    world.pause(runner.run_id)
    runner.finish(to="b")


def a_runner_ends_before_its_step(world):
    world.run(linear(1)).gone()


def a_runner_ends_under_a_pause(world):
    runner = world.run(linear(1))
    world.pause(runner.run_id)
    runner.gone(stopped=True)


def a_parked_run_s_runner_can_not_be_shown_dead(world):
    runner = world.run(linear(2))
    runner.drain = True
    runner.finish(to="b")
    runner.gone(proved=False)


def a_run_that_was_admitted_can_not_be_launched(world):
    run_id = world.start(linear(1))
    (admission,) = world.admit()
    world.do(
        hold_run, HoldRun(run_id=run_id, generation=admission.generation, hold="load_failed", detail="why")
    )


ROUTED = test_settings.routed()


def a_change_overtakes_a_route(world):
    runner = world.run(ROUTED)
    test_settings.change(world, runner.run_id, 1, on=0)
    runner.finish(to="b")


def a_change_overtakes_a_route_under_a_pause(world):
    runner = world.run(ROUTED)
    test_settings.change(world, runner.run_id, 1, on=0)
    world.pause(runner.run_id)
    runner.finish(to="b")


def an_unknown_effect_is_observed(world):
    world.run(graph(node("send", "action", effect=OBSERVED))).gone()


def an_unknown_effect_happened(world):
    world.recover(ambiguous(world), "happened")


def an_unknown_effect_happened_in_the_last_step(world):
    world.recover(ambiguous(world, LAST_SEND), "happened")


def an_answer_goes_on(world):
    world.answer(waiting(world), 1)


def an_answer_ends_the_run(world):
    world.answer(waiting(world, LAST_ASK), 1)


def a_question_is_paused_and_resumed(world):
    run_id = waiting(world)
    world.pause(run_id)
    world.resume(run_id)


def a_question_is_asked_under_a_pause(world):
    runner = world.run(ASK)
    world.pause(runner.run_id)
    runner.ask()


def a_paused_question_is_answered(world):
    run_id = waiting(world)
    world.pause(run_id)
    world.answer(run_id, 1)


def a_paused_question_is_answered_and_ends_the_run(world):
    run_id = waiting(world, LAST_ASK)
    world.pause(run_id)
    world.answer(run_id, 1)


def a_waiting_run_s_runner_can_not_be_shown_dead(world):
    asking(world).gone(proved=False)


def a_waiting_run_can_not_be_read(world):
    runner = asking(world)
    garble(world)
    runner.gone()


def a_paused_question_can_not_be_read(world):
    runner = asking(world)
    world.pause(runner.run_id)
    garble(world)
    runner.gone()


def a_queued_run_is_cancelled(world):
    world.cancel(world.start(linear(1)))


def a_running_run_is_cancelled(world):
    world.cancel(world.run(linear(1)).run_id)


def a_waiting_run_is_cancelled(world):
    world.cancel(waiting(world))


def a_paused_question_is_cancelled(world):
    run_id = waiting(world)
    world.pause(run_id)
    world.cancel(run_id)


def a_held_run_is_cancelled(world):
    world.cancel(ambiguous(world))


def an_agent_meets_a_limit(world, on_limit="resume"):
    flow = graph(node("review", "agent"))
    runner = world.run(flow, agent="coder")
    met = Limited(account="coder", on_limit=on_limit)
    runner.finish(outcome="failed", limited=met)
    runner.leave()
    world.start(flow, agent="coder")
    terms = LaunchTerms(agents={"coder": AgentCommand(name="coder", on_limit=on_limit)})
    world.do(admit, msgspec.structs.replace(offer(standby(world, flow)), terms=terms))


def an_agent_meets_a_limit_and_asks(world):
    an_agent_meets_a_limit(world, "ask")


def an_agent_meets_a_limit_and_stops(world):
    an_agent_meets_a_limit(world, "stop")


SCENARIOS: list[Callable[[World], None]] = [
    a_run_steps_and_ends, a_run_finds_a_process_that_stands_by, a_queued_run_is_paused_and_resumed,
    a_timer_is_set_and_ends_the_run, a_timer_is_set_under_a_pause, a_step_ends_under_a_pause,
    a_runner_ends_before_its_step, a_runner_ends_under_a_pause, a_parked_run_s_runner_can_not_be_shown_dead,
    a_run_that_was_admitted_can_not_be_launched, an_unknown_effect_is_observed, an_unknown_effect_happened,
    an_unknown_effect_happened_in_the_last_step, an_answer_goes_on, an_answer_ends_the_run,
    a_question_is_paused_and_resumed, a_question_is_asked_under_a_pause, a_paused_question_is_answered,
    a_paused_question_is_answered_and_ends_the_run, a_waiting_run_s_runner_can_not_be_shown_dead,
    a_waiting_run_can_not_be_read, a_paused_question_can_not_be_read, a_queued_run_is_cancelled,
    a_running_run_is_cancelled, a_waiting_run_is_cancelled, a_paused_question_is_cancelled,
    a_held_run_is_cancelled, an_agent_meets_a_limit, an_agent_meets_a_limit_and_asks, an_agent_meets_a_limit_and_stops,
    a_held_run_is_cancelled, a_change_overtakes_a_route, a_change_overtakes_a_route_under_a_pause,
]  # fmt: skip


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> set[Arrow]:
    """Every arrow that a scenario takes."""
    found: set[Arrow] = set()
    for scenario in SCENARIOS:
        world = World(tmp_path_factory.mktemp("world"))
        try:
            scenario(world)
            found |= world.arrows
        finally:
            world.close()
    return found


@pytest.mark.parametrize("arrow", sorted(drawn()), ids=lambda arrow: f"{arrow[0]}-{arrow[1]}-{arrow[2]}")
def test_an_arrow_that_is_drawn_can_be_taken(arrow: Arrow, taken: set[Arrow]) -> None:
    assert arrow in taken, f"no scenario takes {arrow}: add one, or take the arrow out of docs/states.md"


def test_a_move_that_is_not_drawn_is_noticed(world: World) -> None:
    def jump(writing, _):
        number = writing.fence(1)
        writing.run("UPDATE runs SET status = 'queued', ended_wall_ms = NULL")
        writing.event(1, number, "resumed", "client", 0, b"{}")

    world.cancel(world.start(linear(1)))
    world.checked = False
    with pytest.raises(AssertionError, match=r"before='cancelled', after='queued', event='resumed'"):
        world.do(jump)


# --- names ------------------------------------------------------------------------------------------------------


def allowed(table: str, column: str) -> set[str]:
    """What the schema lets a column be."""
    text = SCHEMA.split(f"CREATE TABLE {table}(")[1].split(") STRICT")[0]
    match = re.search(rf"CHECK \({column} IN\s*\(([^)]*)\)", text)
    assert match is not None
    return set(re.findall(r"'(\w+)'", match[1]))


def named(section: str) -> list[str]:
    """What the first column of the section's first table names."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


@pytest.mark.parametrize(
    ("section", "table", "column"),
    [
        ("Stored status", "runs", "status"),
        ("Holds", "runs", "hold"),
        ("Attempts", "attempts", "status"),
        ("Effects", "effects", "status"),
    ],
)
def test_a_table_names_all_that_the_schema_allows_and_nothing_else(
    section: str, table: str, column: str
) -> None:
    names = named(section)
    assert set(names) == allowed(table, column)
    assert len(names) == len(set(names))


def test_every_event_of_the_diagram_is_told_in_words_and_no_other() -> None:
    assert set(named("Diagram")) == {arrow.event for arrow in drawn()}
