"""Going on from where a run failed, from the command line to the end of the new run; a run's title."""

from __future__ import annotations

import json

import pytest

from pwf.errors import Rejected
from pwf.protocol.forks import ForkPayload
from tests.e2e.home import wait_for
from tests.e2e.world import PATIENCE_S, World, lines

BUILD = """
flow = Workflow("{name}", title=lambda ctx: "for " + ctx.input)

@flow.compute
def build(ctx) -> {type}:
    return {value}

@flow.action(effect=manual("publish"))
def publish(ctx):
    with open({log!r}, "a") as file:
        file.write("published\\n")

@flow.compute
def tell(ctx):
    {tell}

flow.graph(build >> publish, publish >> tell)
"""


def written(world: World, name: str, *, tell: str, type: str = "int", value: str = "41") -> str:
    log = str(world.home.project / f"{name}.log")
    world.home.workflow(name, BUILD.format(name=name, type=type, value=value, log=log, tell=tell))
    return log


def test_a_run_goes_on_from_the_step_that_failed_with_the_code_that_was_mended(world: World) -> None:
    log = written(world, "mended", tell="raise ValueError('not yet')")
    old = world.start("mended", "ann")
    world.finish(old, "failed")
    written(world, "mended", tell="return ctx[build] + 1")
    started = json.loads(world.home.run("retry", old, "--json").stdout)
    assert (started["forked_from"], started["node"], started["took_over"]) == (
        old,
        "tell",
        ["build", "publish"],
    )
    assert world.output(started["run_id"]) == 42
    assert lines(world.home.project / "mended.log") == ["published"], log
    view = world.view(started["run_id"])
    assert view.summary.title == "for ann"
    assert [step.adopted for step in view.steps] == [1, 2, None]
    shown = world.home.run("show", started["run_id"]).stdout
    assert "taken over (#1)" in shown
    world.home.run("state", "verify")


def test_outputs_that_the_present_code_has_no_place_for_are_refused_by_name(world: World) -> None:
    written(world, "typed", tell="raise ValueError('not yet')")
    old = world.start("typed", "ann")
    world.finish(old, "failed")
    written(world, "typed", tell="return ctx[build]", type="str", value="'x'")
    said = world.home.run("retry", old, code=4).stderr
    assert "output of build in run" in said
    assert f"pwf fork {old} --from build" in said
    world.home.workflow("typed", "flow = Workflow('typed')\n@flow.compute\ndef tell(ctx):\n    return 1\n")
    said = world.home.run("retry", old, code=4).stderr
    assert "no node 'build', 'publish'" in said
    again = json.loads(world.home.run("retry", old, "--code", "stored", "--json").stdout)
    world.finish(again["run_id"], "failed")
    with pytest.raises(Rejected, match=f"{old}:publish:1"):
        world.client.call("run.fork", ForkPayload(node="build", code="stored"), run_id=old)
    more = ForkPayload(node="build", code="stored", repeat_effects=True)
    repeated = world.client.call("run.fork", more, run_id=old).run_id
    world.finish(repeated, "failed")
    assert lines(world.home.project / "typed.log") == ["published", "published"]


def test_a_refusal_by_the_code_is_kept_with_the_key_of_the_command(world: World) -> None:
    written(world, "renamed", tell="raise ValueError('not yet')")
    old = world.start("renamed", "ann")
    world.finish(old, "failed")
    world.home.workflow(
        "renamed", "flow = Workflow('renamed')\n@flow.compute\ndef tell(ctx):\n    return 1\n"
    )
    with pytest.raises(Rejected, match="no node 'build'") as first:
        world.client.retry(old, key="k1")
    written(world, "renamed", tell="return 1")
    with pytest.raises(Rejected) as again:
        world.client.retry(old, key="k1")
    assert again.value.message == first.value.message
    assert world.output(world.client.retry(old, key="k2").run_id) == 1


LONG = """
flow = Workflow("long", max_steps=3)

@flow.compute
def count(ctx):
    return {"n": ctx.visit, "more": ctx.visit < 5}

@flow.compute
def done(ctx):
    return ctx[count]["n"]

flow.graph(count.switch(on="more", cases={True: count, False: done}))
"""


def test_a_run_that_reached_its_limit_goes_on_under_a_higher_one(world: World) -> None:
    world.home.workflow("long", LONG)
    old = world.start("long")
    world.finish(old, "failed")
    said = world.home.run("retry", old, code=4).stderr
    assert "took 3 steps up to there, and the limit is 3" in said
    assert "--max-steps" in said
    assert "max_steps is 0" in world.home.run("retry", old, "--max-steps", "0", code=2).stderr
    new = json.loads(world.home.run("retry", old, "--max-steps", "10", "--json").stdout)
    assert new["took_over"] == ["count#3"]
    assert world.output(new["run_id"]) == 5
    assert world.view(new["run_id"]).summary.steps == 6


TITLED = """
import time
from pathlib import Path

flow = Workflow("titled", title=lambda ctx: "release " + ctx.input)

@flow.compute
def slow(ctx):
    while not Path({file!r}).exists():
        time.sleep(0.01)

"""


def test_a_run_has_its_title_while_its_first_step_runs(world: World) -> None:
    file = world.home.project / "let-it-end"
    world.home.workflow("titled", TITLED.format(file=str(file)))
    run_id = world.start("titled", "1.4")
    wait_for(lambda: world.view(run_id).summary.title == "release 1.4", PATIENCE_S)
    assert world.view(run_id).summary.status == "running"
    assert "release 1.4" in world.home.run("ls").stdout
    file.touch()
    world.finish(run_id)
