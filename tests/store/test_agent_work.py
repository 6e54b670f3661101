"""What an agent reports: stored at once, counted once, and continued where its work was interrupted."""

from __future__ import annotations

import pytest

from pwf.protocol.runner import AgentReport
from pwf.protocol.views import AgentUsage
from pwf.store.updates import PublishUpdates, publish_updates
from tests.store.world import Runner, World, graph, node, retry

TASK = graph(node("review", "agent", retry=retry(2)))


def report(runner: Runner, **facts: object) -> None:
    said = AgentReport(attempt=runner.attempt, agent="coder", **facts)  # type: ignore[arg-type]
    runner.world.do(publish_updates, PublishUpdates.told(runner.fence, (said,)))


def run(world: World) -> Runner:
    return world.run(TASK, agent="coder")


@pytest.mark.parametrize("how", ["die", "leave"])
def test_a_conversation_is_stored_as_soon_as_it_is_reported_and_is_the_next_attempts(
    world: World, how: str
) -> None:
    runner = run(world)
    report(runner, conversation="c1")

    assert world.view(runner.run_id).steps[0].work.conversation == "c1"
    getattr(runner, how)()
    world.clock.forward(60_000)
    assert world.launch(runner.run_id).launch.conversation == "c1"


def test_an_attempt_that_has_failed_leaves_no_conversation(world: World) -> None:
    runner = run(world)
    report(runner, conversation="c1")
    runner.finish(outcome="failed")
    runner.leave()
    world.clock.forward(60_000)
    assert world.launch(runner.run_id).launch.conversation is None


def test_sums_are_counted_once_whatever_comes_again_or_late(world: World) -> None:
    runner = run(world)
    report(runner, conversation="c1", input_tokens=100, output_tokens=20, cost_micros=7)
    report(runner, input_tokens=300, output_tokens=60, cost_micros=9)
    report(runner, input_tokens=100, output_tokens=20, cost_micros=7)
    runner.leave()
    again = world.launch(runner.run_id)
    late = AgentReport(attempt=1, agent="coder", input_tokens=10**9)
    world.do(publish_updates, PublishUpdates.told(again.fence, (late,)))
    report(again, conversation="c2", afresh="c1 is gone", input_tokens=1, output_tokens=1)
    again.finish({"verdict": "ship"})

    view = world.view(runner.run_id)
    assert view.usage == AgentUsage(input_tokens=301, output_tokens=61, cost_micros=9)
    assert [(step.work.conversation, step.work.afresh) for step in view.steps] == [
        ("c1", None),
        ("c2", "c1 is gone"),
    ]


def test_a_runner_that_lost_its_run_reports_nothing(world: World) -> None:
    runner = run(world)
    runner.gone(stopped=True)
    with pytest.raises(Exception, match="another owner"):
        report(runner, conversation="c1")
    assert world.view(runner.run_id).usage == AgentUsage()


def test_a_conversation_that_goes_on_is_told_what_it_has_cost(world: World) -> None:
    runner = world.run(TASK, agent="coder")
    report(runner, conversation="c1", cost_micros=7)
    runner.leave()
    again = world.launch(runner.run_id)
    assert (again.launch.conversation, again.launch.conversation_micros) == ("c1", 7)
