"""A decision from the command line to the output: shown, revised, timed out, on the spot, and a person's only."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.e2e.home import wait_for
from tests.e2e.test_people import terminal
from tests.e2e.test_whose_word import STEP, typed_by_a_step
from tests.e2e.world import PATIENCE_S, World

__all__ = ["terminal"]  # the fixture

RELEASE = """
from pwf import *
flow = Workflow("decide_release")

@flow.compute
def draft(ctx):
    asked = ctx.outputs.get(approve)
    return f"text {ctx.visit}" + (f", {asked.text}" if asked else "")

@flow.decision(
    audience="operator",
    choices=[Choice("ship", "Ship it"), Choice("fix", "Fix first", text=Text("What must change?"))],
    timeout=hours(2), default="ship",
)
def approve(ctx):
    return ctx.present("Ship it?", Section("Text"), ctx[draft], subject={"commit": "s3cret-subject"})

@flow.compute
def done(ctx) -> str:
    return f"{ctx[approve].choice} {ctx[draft]}"

flow.graph(draft >> approve, approve.switch(ship=done, fix=draft))
"""

SHORT = """
from pwf import *
flow = Workflow("decide_short")

@flow.decision(
    audience="operator", choices=[Choice("ship", "Ship it"), Choice("hold", "Hold it")],
    timeout=seconds(0.3), default="hold",
)
def approve(ctx):
    return "Ship it?"

@flow.compute
def done(ctx) -> str:
    return ctx[approve].choice

flow.graph(approve.switch(ship=done, hold=done))
"""


@pytest.fixture
def world(world: World) -> World:
    world.home.workflow("decide_release", RELEASE)
    world.home.workflow("decide_short", SHORT)
    world.home.workflow("word_types", STEP)
    return world


def test_a_proposal_is_revised_and_then_shipped_and_nobody_is_shown_its_subject(world: World) -> None:
    run_id = world.start("decide_release")
    first = world.question(run_id).request_id
    printed = world.home.run("decide", first, code=2).stdout
    assert "text 1" in printed
    assert "fix TEXT  Fix first: What must change?" in printed
    assert "needs a text" in world.home.run("decide", first, "fix", code=2).stderr
    assert "decided" in world.home.run("decide", first, "fix", "--text", "shorter").stdout

    wait_for(lambda: world.question(run_id).request_id != first, PATIENCE_S)
    second = world.question(run_id).request_id
    printed = world.home.run("decide", second, code=2).stdout
    for part in ("proposal 2", "after fix: shorter", "-text 1", "+text 2, shorter"):
        assert part in printed
    late = world.home.run("decide", first, "ship", code=4).stderr
    assert "was decided as 'fix' by client:" in late
    said = json.loads(world.home.run("decide", second, "ship", "--json").stdout)
    assert (said["choice"], said["adopted"]) == ("ship", False)
    assert json.loads(world.home.run("decide", second, "ship", "--json").stdout)["adopted"]
    assert world.output(run_id) == "ship text 2, shorter"

    for words in (
        "decisions --all",
        "requests --all",
        f"show {run_id}",
        f"events {run_id}",
        f"decide {second}",
    ):
        assert "s3cret" not in world.home.run(*words.split(), "--json").stdout


def test_nobody_decides_and_the_default_is_made_once_in_time(world: World) -> None:
    began = time.monotonic()
    run_id = world.start("decide_short")
    assert world.output(run_id) == "hold"
    assert time.monotonic() - began < PATIENCE_S
    (found,) = [
        one
        for one in world.home.json("decisions", "--all")["decisions"]
        if one["request"]["run_id"] == run_id
    ]
    assert (found["winner"]["provenance"], found["winner"]["choice"]) == ("timeout", "hold")


def test_no_step_decides_anything(world: World) -> None:
    run_id = world.start("decide_release")
    decision_id = world.question(run_id).request_id
    _, code, said = typed_by_a_step(world, "with a clean environment", "decide", decision_id, "ship")
    assert code != 0
    assert "only a person may decide; this comes from a step of run" in said
    assert world.question(run_id).request_id == decision_id


def test_a_run_in_a_terminal_asks_for_the_decision_on_the_spot(world: World, terminal: Any) -> None:
    typed = terminal("run", "decide_release")
    typed.expect("text 1")
    typed.expect("choice> ")
    typed.sendline("fix")
    typed.expect("needs a text: What must change")
    typed.sendline("fix much shorter")
    typed.expect("text 2, much shorter")
    typed.expect("choice> ")
    typed.sendline("ship")
    typed.expect("completed")


APPROVE = ("run", "approve", "--set", "title=Deploy", "--set", "summary=Deploy 1.4?")
SOON = ("--set", "timeout_minutes=0.005")


def test_the_built_in_approval_is_asked_answered_timed_out_and_a_gate_for_scripts(world: World) -> None:
    home = world.home
    (listed,) = (one for one in home.json("workflows")["workflows"] if one["name"] == "approve")
    assert (listed["scope"], listed["error"]) == ("built-in", None)

    run_id = home.json(*APPROVE, "--detach")["run_id"]
    asked = world.question(run_id).request_id
    assert "stop TEXT    Stop: Why? (may be left out)" in home.run("decide", asked, code=2).stdout
    home.run("decide", asked, "revise", "--text", "smaller steps")
    assert world.output(run_id) == {"exit": "revise", "text": "smaller steps"}
    (source,) = home.json("check", "approve")["files"][0]["sources"]
    assert source == listed["path"]

    auto = home.run(*APPROVE, *SOON, "--set", "mode=auto", "--until", "ended").stdout
    assert '"exit": "go"' in auto
    refused = home.run(*APPROVE, *SOON, "--set", "gate=yes", "--until", "ended", code=1)
    assert "no go: stop" in refused.stdout
