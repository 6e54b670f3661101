"""Included workflows from the command line to the end of the run: by name, killed inside, shown, and gone on with."""

from __future__ import annotations

import json

import pytest

from tests.e2e.world import World, lines

CHILD = """
import os, signal
from pathlib import Path

flow = Workflow("child")

@flow.compute
def turn(ctx) -> bool:
    mark = Path(ctx.input["folder"]) / f"killed-{ctx.visit}"
    if ctx.visit == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.visit < ctx.input["rounds"]

@flow.action(effect=idempotent("note"))
def note(ctx):
    with open(Path(ctx.input["folder"]) / "log", "a") as file:
        file.write(ctx.effect_key.partition(":")[2] + "\\n")
    return {"rounds": ctx.results[turn].visit, "input": ctx.input["rounds"]}

flow.graph(turn.switch(cases={True: turn, False: note}))
flow.exit("noted", note)
"""
PARENT = """
flow = Workflow("parent")
part = flow.include("child", input=lambda ctx: {"folder": ctx.input, "rounds": ctx.visit + 1}, id="part")

@flow.compute
def again(ctx) -> bool:
    return ctx.results[part].visit < 2

@flow.compute
def end(ctx):
    if ctx.visit == 1 and ctx.tries < 9 and TELL:
        raise ValueError("not yet")
    return [ctx[part], ctx.results[part].exit]

flow.graph(part.exit("noted") >> again, again.switch(cases={True: part, False: end}))
"""


@pytest.mark.rest
def test_a_run_is_killed_in_what_it_includes_shown_and_gone_on_with(world: World) -> None:
    world.home.workflow("child", CHILD)
    world.home.workflow("parent", PARENT.replace("TELL", "True"))
    folder = world.home.project / "include"
    folder.mkdir()
    old = world.start("parent", str(folder))
    world.finish(old, "failed")
    done = [step.node for step in world.view(old).steps if step.status == "completed"]
    first = ["part", "part.turn", "part.turn", "part.note", "again"]
    assert done == [*first, "part", *["part.turn"] * 3, "part.note", "again"]
    assert lines(folder / "log") == ["part.note:1", "part.note:2"]
    assert json.loads(world.home.run("output", old, "part").stdout) == {"rounds": 3, "input": 3}
    shown = world.home.run("show", old).stdout  # pure steps leave together: it may be told of the one before
    assert "SIGKILL" in shown

    world.home.workflow("parent", PARENT.replace("TELL", "False"))
    new = world.client.retry(old).run_id
    assert world.output(new) == [{"rounds": 3, "input": 3}, "noted"]
    fork = world.home.json("fork", old, "--from", "part.turn#4", "--repeat-effects")["run_id"]
    assert world.output(fork) == [{"rounds": 3, "input": 3}, "noted"], "it counts on from its own entry"
    world.home.run("state", "verify")
