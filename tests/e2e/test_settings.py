"""Settings of a run that goes on, from the command line: who may change what, and what the workflow says to it."""

from __future__ import annotations

import json

import pytest

from tests.e2e.world import World

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

PACED = """
import msgspec

class Pace(msgspec.Struct):
    workers: int = 2
    note: str = ""

def few(value):
    return "too many" if value.workers > 9 else None

flow = Workflow("paced")
flow.settings(
    Pace, Pace(), check=few,
    paths={"": {"human": ["read"]}, "/workers": {"human": ["read", "replace"], "session": ["replace"]}},
)

@flow.checkpoint
def ask(ctx):
    return "go on?"

@flow.settings_route
def route(ctx) -> int:
    return ctx.settings.workers

flow.graph(ask >> route)
"""


def test_settings_are_changed_while_a_run_waits(world: World) -> None:
    world.home.workflow("paced", PACED)
    run_id = world.start("paced", None)
    world.parked(run_id, "waiting")

    def settings(*words: str, fails: bool = False) -> str:
        done = world.home.run("settings", words[0], run_id, *words[1:], code=None)
        assert (done.returncode != 0) == fails, done
        return done.stderr if fails else done.stdout

    assert json.loads(settings("get", "--json"))["value"] == {"note": "", "workers": 2}
    assert "change 1" in settings("change", "workers=4", "--expect", "0")
    assert "too many" in settings("change", "workers=10", fails=True)
    assert "not of type" in settings("change", "workers=x", fails=True)
    assert "a person may not replace '/note'" in settings("change", "note=x", fails=True)
    assert "you expected 0" in settings("change", "workers=5", "--expect", "0", fails=True)
    assert "they were so already" in settings("change", "workers=4")
    patch = '[{"op":"test","path":"/workers","value":4},{"op":"replace","path":"/workers","value":6}]'
    assert "change 2" in settings("change", "--patch", patch)
    assert "has another value" in settings("change", "--patch", patch, fails=True)
    assert settings("get", "/workers").strip() == "6"
    world.answer(run_id, "yes")
    assert world.output(run_id) == 6
    assert "has ended" in settings("change", "workers=1", fails=True)
    assert "settings" in world.home.run("show", run_id).stdout


INNER = """
def few(value):
    return "too many" if value > 9 else None

flow = Workflow("inner")
flow.settings(int, 2, check=few, paths={"": {"human": ["read", "replace"]}})

@flow.checkpoint
def ask(ctx):
    return "go on?"

@flow.compute
def seen(ctx) -> int:
    return ctx.settings

flow.graph(ask >> seen)
"""

OUTER = """
flow = Workflow("outer")
part = flow.include("inner", id="part")

@flow.compute
def again(ctx) -> bool:
    return ctx.visit < 2

@flow.compute
def end(ctx) -> int:
    return ctx[part]

flow.graph(part >> again, again.switch(cases={True: part, False: end}))
"""


def test_an_included_workflow_has_settings_for_each_entry(world: World) -> None:
    world.home.workflow("inner", INNER)
    world.home.workflow("outer", OUTER)
    run_id = world.start("outer")
    world.parked(run_id, "waiting")

    def settings(*words: str, code: int = 0) -> str:
        done = world.home.run("settings", words[0], run_id, *words[1:], "--scope", "part", code=code)
        return done.stdout + done.stderr

    patch = ["--patch", '[{"op": "replace", "path": "", "value": 7}]']
    assert "change 1" in settings("change", *patch)
    assert "too many" in settings("change", "--patch", patch[1].replace("7", "10"), code=4)
    assert settings("get").startswith("7")
    refused = world.home.run("settings", "get", run_id, code=None)
    assert "--scope part" in refused.stderr
    world.answer(run_id, 1)
    world.parked(run_id, "waiting")
    assert settings("get").startswith("2")
    world.answer(run_id, 1)
    assert world.output(run_id) == 2
    outputs = [
        bytes(step.output.json) for step in world.attempts(run_id) if step.node == "part.seen" and step.output
    ]
    assert outputs == [b"7", b"2"]
