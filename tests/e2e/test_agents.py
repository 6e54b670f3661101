"""An agent node from the command line to its output: asked, looked at, submitted by a person, never by a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.test_whose_word import STEP, typed_by_a_step
from tests.e2e.world import PATIENCE_S, World, lines, wait_for

REVIEW = """
from typing import Literal
import msgspec

flow = Workflow("agent_review")

class Review(msgspec.Struct):
    verdict: Literal["ship", "fix"]
    why: str = ""

@flow.agent(returns=Review)
def review(ctx):
    return f"Review version {ctx.input['version']}."

@flow.compute
def done(ctx) -> str:
    return ctx[review].verdict

flow.graph(review.switch(on="verdict", ship=done, fix=review))
"""


@pytest.fixture
def world(world: World) -> World:
    world.home.workflow("agent_review", REVIEW)
    world.home.workflow("word_types", STEP)
    return world


def test_a_person_submits_what_an_agent_was_asked_for_and_only_what_fits_is_taken(world: World) -> None:
    run_id = world.start("agent_review", {"version": 3}, agent="person")
    request_id = world.question(run_id).request_id

    listed = json.loads(world.home.run("requests", "--json").stdout)["requests"]
    assert [(one["kind"], one["node"]) for one in listed if one["run_id"] == run_id] == [("agent", "review")]
    shown = world.home.run("submit", request_id, code=None)
    assert shown.returncode == 2
    assert "Review version 3." in shown.stdout
    assert f"pwf submit {request_id} verdict=" in shown.stderr
    wrong = world.home.run("submit", request_id, '{"verdict": "later"}', code=None)
    assert wrong.returncode == 2
    assert "the submission does not fit" in wrong.stderr
    again = world.home.run("submit", request_id, "verdict=fix", "why=typo")
    assert "accepted" in again.stdout

    second = world.question(run_id)
    assert second.request_id != request_id
    late = world.home.run("submit", request_id, "verdict=ship", code=None)
    assert late.returncode != 0
    assert "settled by" in late.stderr
    world.home.run("submit", f"run:{run_id}", '{"verdict": "ship"}', "--revision", "1")
    assert world.output(run_id) == "ship"


def test_no_step_submits_for_an_agent_and_it_is_told_why(world: World) -> None:
    waiting = world.start("agent_review", {"version": 1}, agent="person")
    request_id = world.question(waiting).request_id

    step, code, said = typed_by_a_step(world, "plainly", "submit", request_id, "verdict=ship")

    assert code == 4, said
    assert f"a step of run {step}" in said
    assert world.view(waiting).summary.status == "waiting"


JUDGED = """
import os, signal
import msgspec

flow = Workflow("agent_judged")

class Review(msgspec.Struct):
    verdict: str
    why: str = ""

@flow.compute
def tests(ctx) -> int:
    return ctx.input["tests"]

def check(ctx, review):
    if review.verdict == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if review.verdict == "wait":
        with open(ctx.input["begun"], "a") as file:
            file.write("x\\n")
        while not os.path.exists(ctx.input["go"]):
            pass
    if not review.why:
        return f"say why, after {ctx[tests]} tests"

@flow.agent(returns=Review, validate=check)
def review(ctx):
    return "Review it."

@flow.compute
def done(ctx) -> str:
    return ctx[review].verdict

flow.graph(tests >> review >> done)
"""


def test_a_workflow_judges_what_is_submitted_in_a_process_of_its_own(world: World) -> None:
    world.home.workflow("agent_judged", JUDGED)
    run_id = world.start("agent_judged", {"tests": 7}, agent="person")
    request_id = world.question(run_id).request_id

    refused = world.home.run("submit", request_id, "verdict=ship", code=2)
    assert "the submission is rejected: say why, after 7 tests" in refused.stderr
    dead = world.home.run("submit", request_id, "verdict=die", "why=x", code=2)
    assert "ended without a verdict (SIGKILL)" in dead.stderr
    assert "rejected: the process that validated it" in world.home.run("explain", run_id).stdout

    assert "accepted" in world.home.run("submit", request_id, "verdict=ship", "why=x").stdout
    assert world.output(run_id) == "ship"


def test_a_daemon_that_dies_while_something_is_judged_judges_it_anew_and_accepts_it_once(
    world: World, tmp_path: Path
) -> None:
    world.home.workflow("agent_judged", JUDGED)
    begun, go = tmp_path / "begun", tmp_path / "go"
    run_id = world.start("agent_judged", {"tests": 7, "begun": str(begun), "go": str(go)}, agent="person")
    request_id = world.question(run_id).request_id
    submits = world.home.spawn("submit", request_id, "verdict=wait", "why=x")
    wait_for(lambda: lines(begun) == ["x"], PATIENCE_S)
    assert world.why(run_id) == "validating"

    world.kill_daemon()
    wait_for(lambda: lines(begun) == ["x", "x"], PATIENCE_S)
    go.touch()

    said, _ = submits.communicate(timeout=PATIENCE_S)
    assert submits.returncode == 0
    assert b"accepted" in said
    assert world.output(run_id) == "wait"
    assert [status for node, status in world.steps(run_id) if node == "review"] == ["completed"]


def test_a_cancel_ends_the_process_that_judges(world: World, tmp_path: Path) -> None:
    world.home.workflow("agent_judged", JUDGED)
    begun = tmp_path / "begun"
    run_id = world.start(
        "agent_judged", {"tests": 7, "begun": str(begun), "go": str(tmp_path / "never")}, agent="person"
    )
    request_id = world.question(run_id).request_id
    submits = world.home.spawn("submit", request_id, "verdict=wait", "why=x")
    wait_for(lambda: lines(begun) == ["x"], PATIENCE_S)

    world.cancel(run_id)

    _, said = submits.communicate(timeout=PATIENCE_S)
    assert submits.returncode == 2
    assert b"its run has ended" in said
    wait_for(lambda: not world.runners(run_id), PATIENCE_S)
