"""An agent node from the command line to its output: asked, looked at, submitted by a person, never by a step."""

from __future__ import annotations

import json

import pytest

from tests.e2e.test_whose_word import STEP, typed_by_a_step
from tests.e2e.world import World

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
    run_id = world.start("agent_review", {"version": 3})
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
    waiting = world.start("agent_review", {"version": 1})
    request_id = world.question(waiting).request_id

    step, code, said = typed_by_a_step(world, "plainly", "submit", request_id, "verdict=ship")

    assert code == 4, said
    assert f"a step of run {step}" in said
    assert world.view(waiting).summary.status == "waiting"
