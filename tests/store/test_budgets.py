"""Budgets: no step of an agent begins beyond one, a person alone says more, and what is used is counted once."""

from __future__ import annotations

from typing import Any

import pytest

from pwf.budgets import Budget
from pwf.errors import Rejected
from pwf.protocol.agents import AgentCommand
from pwf.protocol.runner import AgentReport
from pwf.store.budgets import Used, used_by_all
from pwf.store.launch import LaunchTerms, Parked
from pwf.store.updates import PublishUpdates, publish_updates
from tests.store.world import Runner, World, graph, node

TASK = graph(node("review", "agent", to="again"), node("again", "agent", to="last"), node("last", "agent"))


def agents(**limits: Any) -> dict[str, AgentCommand]:
    return {"coder": AgentCommand(name="coder", **limits)}


def launch(world: World, known: dict[str, AgentCommand]) -> Runner | None:
    """The first in the queue; None where it may not begin."""
    runner = Runner(world, world.admit(1)[0])
    if isinstance(runner.begin(LaunchTerms(agents=known)), Parked):
        runner.leave()
        return None
    return runner


def begun(world: World, known: dict[str, AgentCommand], flow: Any = TASK, **more: Any) -> Runner:
    world.start(flow, agent="coder", **more)
    runner = launch(world, known)
    assert runner is not None
    return runner


def use(runner: Runner, known: dict[str, AgentCommand], tokens: int = 0, money: float = 0) -> bool:
    """Report it; whether the step is to be ended."""
    micros = round(money * 1_000_000)
    report = AgentReport(attempt=runner.attempt, agent="coder", input_tokens=tokens, cost_micros=micros)
    told = PublishUpdates.told(runner.fence, (report,), known)
    return bool(runner.world.do(publish_updates, told).is_over)


def finish(runner: Runner, known: dict[str, AgentCommand], **more: Any) -> str:
    verdict = runner.apply([runner.finished(1, **more)], agents=known).replies[0].verdict
    if verdict != "go":
        runner.leave()
    return verdict


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(tokens=100), "100 tokens of 100"),
        (Budget(money=0.5), "$0.5000 of $0.50"),
        (Budget(minutes=2), "2.0 minutes of 2"),
        (Budget(steps=1), "1 steps of 1"),
    ],
)
def test_the_step_after_a_spent_budget_does_not_begin_until_a_person_says_more(
    world: World, budget: Budget, words: str
) -> None:
    known = agents(budget=budget)
    runner = begun(world, known)
    use(runner, known, tokens=100, money=0.5)

    assert finish(runner, known, to="again", active_ms=120_000) == "park"
    assert launch(world, known) is None

    view = world.view(runner.run_id)
    assert (view.summary.hold, view.explanation.code) == ("budget", "budget")
    assert words in view.explanation.reason
    assert any("pwf resume" in command and "--budget" in command for command in view.explanation.commands)
    world.resume(runner.run_id)  # a word without more changes nothing
    assert launch(world, known) is None
    world.resume(runner.run_id, budget=Budget(tokens=10, money=1, minutes=1, steps=1))
    assert launch(world, known) is not None


def test_a_step_that_goes_beyond_is_ended_at_its_report_and_continued_once_there_is_more(
    world: World,
) -> None:
    known = agents(budget=Budget(tokens=100))
    runner = begun(world, known)

    assert not use(runner, known, tokens=100)
    assert use(runner, known, tokens=101)
    runner.gone(stopped=True)

    assert launch(world, known) is None
    world.resume(runner.run_id, budget=Budget(tokens=50))
    again = launch(world, known)
    assert again is not None
    assert not use(again, known, tokens=50)
    assert use(again, known, tokens=51)


def test_a_try_of_the_same_step_is_no_further_step(world: World) -> None:
    known = agents(budget=Budget(steps=1), day_budget=Budget(steps=1))
    runner = begun(world, known, graph(node("review", "agent")))
    runner.gone(stopped=True)
    # The day's has been used up by this very step, which may end all the same.
    assert launch(world, agents(budget=Budget(steps=1))) is not None


def test_what_is_nearest_decides_for_each_kind(world: World) -> None:
    flow = graph(*TASK.nodes, budget=Budget(tokens=50, money=1.0))
    known = agents(budget=Budget(tokens=10, steps=3))
    runner = begun(world, known, flow, budget=Budget(tokens=1_000))
    assert not use(runner, known, tokens=900, money=0.9)
    assert use(runner, known, money=1.1)


def test_a_days_budget_is_that_of_all_runs_and_ends_with_the_day(world: World) -> None:
    known = agents(day_budget=Budget(tokens=100))
    first = begun(world, known)
    use(first, known, tokens=100)
    world.start(TASK, agent="coder")
    assert launch(world, known) is None

    world.clock.forward(86_400_000)
    held = next(run for run in world.sql("SELECT run_id FROM runs WHERE hold = 'budget'"))
    world.resume(held[0])
    assert launch(world, known) is not None


def test_a_run_for_which_a_person_says_more_goes_beyond_the_day(world: World) -> None:
    known = agents(day_budget=Budget(tokens=100))
    use(begun(world, known), known, tokens=100)
    run_id = world.start(TASK, agent="coder")
    assert launch(world, known) is None
    world.resume(run_id, budget=Budget(tokens=10))
    beyond = launch(world, known)
    assert beyond is not None
    assert not use(beyond, known, tokens=10)
    assert use(beyond, known, tokens=11)


def test_a_report_that_comes_again_is_counted_once_on_its_day(world: World) -> None:
    known = agents()
    runner = begun(world, known)
    for _ in range(3):
        use(runner, known, tokens=70, money=0.25)
    use(runner, known, tokens=80)
    finish(runner, known, to="again", active_ms=5)
    assert world.read(used_by_all, ("coder", "other")) == {"coder": Used(80, 250_000, 5, 2), "other": Used()}


def test_a_restart_has_the_budget_that_the_start_had(world: World) -> None:
    known = agents()
    runner = begun(world, known, budget=Budget(tokens=100))
    use(runner, known, tokens=101)
    world.cancel(runner.run_id)
    runner.leave()
    again = begun(world, known, restarted_from=runner.run_id, restart_root=runner.run_id, restart_no=1)
    assert not use(again, known, tokens=100)
    assert use(again, known, tokens=101)


def test_more_is_said_only_of_a_run_that_is_held_for_its_budget(world: World) -> None:
    run_id = world.start(TASK, agent="coder")
    world.pause(run_id)
    with pytest.raises(Rejected, match="not held for its budget"):
        world.resume(run_id, budget=Budget(tokens=1))
