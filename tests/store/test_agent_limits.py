"""Usage limits: who waits, until when, who tries for all, and what it costs: no retry, and no capacity."""

from __future__ import annotations

import pytest

from pwf.protocol.agents import AgentCommand, Limited, OnLimit
from pwf.store.agent_limits import (
    APART_MS,
    FAR_MS,
    PROBE_MS,
    UNKNOWN_MAX,
    UNKNOWN_MS,
    UNKNOWN_MS_MAX,
    limits,
)
from pwf.store.budgets import used_today
from pwf.store.launch import LaunchTerms, Parked
from tests.store.world import Runner, World, error, graph, node, retry

TASK = graph(node("review", "agent", retry=retry(1), to="again"), node("again", "agent"))
HOUR = 3_600_000
ACCOUNTS = {"coder": "team"}


def begin(world: World, on_limit: OnLimit = "resume") -> tuple[Runner, object]:
    """The first in the queue, launched, if it may begin."""
    agent = AgentCommand(name="coder", account="team", on_limit=on_limit)
    runner = Runner(world, world.admit(1)[0])
    return runner, runner.begin(LaunchTerms(agents={"coder": agent}))


def begun(world: World) -> Runner:
    runner, launched = begin(world)
    assert not isinstance(launched, Parked)
    return runner


def kept_back(world: World, on_limit: OnLimit = "resume") -> Runner:
    runner, launched = begin(world, on_limit)
    assert isinstance(launched, Parked)
    runner.leave()
    return runner


def limited(runner: Runner, after_ms: int | None = HOUR, on_limit: OnLimit = "resume") -> str:
    until = None if after_ms is None else runner.world.clock.wall_ms + after_ms
    met = Limited(account="team", on_limit=on_limit, until_wall_ms=until)
    verdict = runner.finish(outcome="failed", error=error("429", "limited"), limited=met)
    runner.leave()
    return verdict


def until(world: World) -> int:
    return int(world.read(limits, None)["team"]) - world.clock.wall_ms


def test_a_limited_try_is_due_when_the_limit_ends_and_spends_no_retry(world: World) -> None:
    runner = world.run(TASK, agent="coder")

    assert limited(runner) == "park"

    view = world.view(runner.run_id)
    assert (view.summary.status, view.explanation.code, view.steps[0].status) == (
        "queued",
        "limited",
        "limited",
    )
    assert "agent 'coder' has met a usage limit" in view.explanation.reason
    assert view.summary.due_ms is not None
    assert HOUR <= view.summary.due_ms - world.clock.wall_ms < HOUR + APART_MS
    assert world.admit() == ()
    world.clock.forward(HOUR + APART_MS)
    again = begun(world)
    again.finish(outcome="failed")  # the one retry is still there
    again.leave()
    assert world.view(runner.run_id).explanation.code == "retry_later"


def test_while_an_account_is_limited_no_other_run_asks_and_then_one_does_for_all(world: World) -> None:
    limited(world.run(TASK, agent="coder"))
    others = [world.start(TASK, agent="coder") for _ in range(5)]
    for _ in others:
        kept_back(world)
    views = [world.view(run) for run in others]
    assert {(view.explanation.code, view.steps) for view in views} == {("limited", ())}

    world.clock.forward(HOUR + APART_MS)
    probe = begun(world)
    for _ in others:
        due_ms = world.view(kept_back(world).run_id).summary.due_ms
        assert due_ms is not None
        assert due_ms - world.clock.wall_ms >= PROBE_MS
    probe.apply([probe.finished(1, to="again")], agents={"coder": AgentCommand(name="coder", account="team")})
    assert world.read(limits, None) == {}
    world.clock.forward(PROBE_MS + APART_MS)
    for _ in others:
        begun(world)


def test_one_that_tried_and_ended_otherwise_keeps_nobody_back(world: World) -> None:
    limited(world.run(TASK, agent="coder"))
    world.clock.forward(HOUR + APART_MS)
    probe = begun(world)
    other = world.start(TASK, agent="coder")
    world.cancel(probe.run_id)
    assert begun(world).run_id == other


def test_one_that_tried_and_goes_on_with_something_else_keeps_nobody_back(world: World) -> None:
    flow = graph(node("review", "agent", on={"failed": "mend"}), node("mend"))
    limited(world.run(flow, agent="coder"))
    world.clock.forward(HOUR + APART_MS)
    probe = begun(world)
    other = world.start(TASK, agent="coder")
    agents = {"coder": AgentCommand(name="coder", account="team")}

    reply = probe.apply([probe.finished(outcome="failed", to="mend")], agents=agents).replies[0]

    assert reply.verdict == "go"
    assert begun(world).run_id == other


@pytest.mark.parametrize("policy", ["ask", "stop"])
def test_while_another_run_only_tries_nobody_is_stopped_or_asked(world: World, policy: OnLimit) -> None:
    limited(world.run(TASK, agent="coder"))
    world.clock.forward(HOUR + APART_MS)
    begun(world)
    world.start(TASK, agent="coder")

    waiting = kept_back(world, policy)

    view = world.view(waiting.run_id)
    assert (view.summary.status, view.error) == ("queued", None)
    assert "another run tries" in view.explanation.reason


def test_what_is_called_a_limit_again_and_again_is_a_failure(world: World) -> None:
    run = world.run(TASK, agent="coder")
    for _ in range(UNKNOWN_MAX):
        limited(run, after_ms=None)
        world.clock.forward(UNKNOWN_MS_MAX + APART_MS)
        run = begun(world)

    limited(run, after_ms=None)

    view = world.view(run.run_id)
    assert (view.steps[-1].status, view.explanation.code) == ("failed", "retry_later")


def test_the_minutes_of_a_day_count_tries_that_met_a_limit(world: World) -> None:
    runner = world.run(TASK, agent="coder")
    met = Limited(account="team", on_limit="resume", until_wall_ms=world.clock.wall_ms + HOUR)
    runner.finish(outcome="failed", error=error("429", "limited"), limited=met, active_ms=5_000)
    assert world.read(used_today, "coder").active_ms == 5_000


def test_to_resume_a_run_that_a_person_paused_says_nothing_of_the_limit(world: World) -> None:
    paused = world.start(TASK, agent="coder")
    world.pause(paused)
    limited(world.run(TASK, agent="coder"))
    world.resume(paused, accounts=ACCOUNTS)
    assert "team" in world.read(limits, None)


def test_an_agents_next_step_begins_in_another_process_while_its_account_is_limited(world: World) -> None:
    flow = graph(node("first", to="review"), node("review", "agent"))
    runner = world.run(flow, agent="coder")
    limited(world.run(TASK, agent="coder"))
    agents = {"coder": AgentCommand(name="coder", account="team")}

    assert runner.apply([runner.finished(1, to="review")], agents=agents).replies[0].verdict == "park"
    runner.leave()

    assert kept_back(world).run_id == runner.run_id


@pytest.mark.parametrize(
    ("policy", "status", "way"), [("ask", "paused", "pwf resume"), ("stop", "failed", "pwf restart")]
)
def test_what_on_limit_says_becomes_of_the_run_that_met_it_and_of_the_next(
    world: World, policy: OnLimit, status: str, way: str
) -> None:
    met = world.run(TASK, agent="coder")
    limited(met, on_limit=policy)
    after = world.start(TASK, agent="coder")
    kept_back(world, policy)

    for run in (met.run_id, after):
        view = world.view(run)
        assert view.summary.status == status
        assert any(command.startswith(way) for command in view.explanation.commands)
        assert policy == "stop" or "usage limit" in view.explanation.reason
        assert policy == "ask" or (view.error is not None and view.error.code == "limited")


@pytest.mark.parametrize("policy", ["resume", "ask"])
def test_whoever_resumes_such_a_run_says_to_try_it_now(world: World, policy: OnLimit) -> None:
    met = world.run(TASK, agent="coder")
    limited(met, on_limit=policy)

    world.resume(met.run_id, accounts=ACCOUNTS)

    assert world.read(limits, None) == {}
    assert begun(world).run_id == met.run_id


def test_a_pause_holds_a_limited_run_and_resume_tries_at_once(world: World) -> None:
    met = world.run(TASK, agent="coder")
    world.pause(met.run_id)
    limited(met)
    assert world.status(met.run_id) == "paused"
    world.resume(met.run_id, accounts=ACCOUNTS)
    assert world.read(limits, None) == {}


def test_a_limit_of_unknown_end_is_waited_for_longer_each_time_within_a_bound(world: World) -> None:
    waits = []
    run = world.run(TASK, agent="coder")
    for _ in range(8):
        limited(run, after_ms=None)
        waits.append(until(world))
        world.clock.forward(waits[-1] + APART_MS)
        run = begun(world)
    assert waits[:3] == [UNKNOWN_MS, 2 * UNKNOWN_MS, 4 * UNKNOWN_MS]
    assert waits[-1] == UNKNOWN_MS_MAX


def test_several_that_meet_an_unknown_limit_at_the_same_time_are_one_refusal(world: World) -> None:
    for run in [world.run(TASK, agent="coder") for _ in range(3)]:
        limited(run, after_ms=None)
    assert until(world) == UNKNOWN_MS


@pytest.mark.parametrize("after_ms", [-1, 0, FAR_MS + 1])
def test_a_time_that_can_not_be_is_no_time(world: World, after_ms: int) -> None:
    limited(world.run(TASK, agent="coder"), after_ms=after_ms)
    assert until(world) == UNKNOWN_MS


def test_a_step_that_is_no_agents_meets_no_limit(world: World) -> None:
    runner = world.run(graph(node("a")), agent="coder")
    met = Limited(account="team")
    assert runner.finish(outcome="failed", error=error("429", "limited"), limited=met) == "refused"
