"""A step can not give a person's word, whichever way it takes to the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.home import Home
from tests.e2e.world import World

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

STEP = """
import os, subprocess, sys, time
from pathlib import Path

flow = Workflow("word_types")

def typed(words, home, way):
    environment = {**os.environ, "PWF_HOME": home}
    if way == "with a clean environment":
        environment.pop("PWF_RUN_MARKER")
    command = [sys.executable, "-m", "pwf.cli.main", *words]
    if way != "when its parent has died":
        done = subprocess.run(command, env=environment, capture_output=True, text=True, start_new_session=True)
        return [done.returncode, done.stderr]
    said = Path(home) / "said"
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            said.with_suffix(".new").write_text(f"{done.returncode} {done.stderr}")
            said.with_suffix(".new").rename(said)
        os._exit(0)
    os.waitpid(child, 0)
    while not said.exists():
        time.sleep(0.01)
    code, _, words = said.read_text().partition(" ")
    said.unlink()
    return [int(code), words]

@flow.action(effect=idempotent("types"))
def types(ctx):
    return typed(ctx.input["words"], ctx.input["home"], ctx.input["way"])
"""

GATE = """
flow = Workflow("word_gate")

@flow.checkpoint
def gate(ctx):
    return "good?"
"""

PAYS = """
import os, signal

flow = Workflow("word_pays")

@flow.action(effect=manual("pay"))
def pay(ctx):
    os.kill(os.getpid(), signal.SIGKILL)
"""

WAYS = ["plainly", "with a clean environment", "when its parent has died"]


def typed_by_a_step(world: World, way: str, *words: str) -> tuple[str, int, str]:
    """Run a step that types a command; its run, and exit code and stderr of the command."""
    given: dict[str, Any] = {"words": words, "home": str(world.home.home), "way": way}
    run_id = world.start("word_types", given)
    code, said = world.output(run_id)
    return run_id, code, said


FLOWS = {"word_types": STEP, "word_gate": GATE, "word_pays": PAYS}


@pytest.fixture
def world(world: World) -> World:
    for name, text in FLOWS.items():
        world.home.workflow(name, text)
    return world


@pytest.mark.parametrize("way", WAYS)
def test_a_step_answers_no_checkpoint_and_is_told_why(world: World, way: str) -> None:
    waiting = world.start("word_gate")
    question = world.question(waiting)

    step, code, said = typed_by_a_step(world, way, "answer", question.request_id, "1")

    assert code == 4, said
    assert f"a step of run {step}" in said
    assert "steps_may_answer" in said
    assert world.view(waiting).summary.status == "waiting"
    world.home.run("answer", question.request_id, "2")
    answered = world.view(waiting).request
    assert answered is not None
    assert (answered.answered_by or "").startswith("client:")


@pytest.mark.parametrize("way", WAYS)
def test_a_step_settles_no_effect_and_is_told_why(world: World, way: str) -> None:
    held = world.start("word_pays")
    world.parked(held, "ambiguous")

    step, code, said = typed_by_a_step(world, way, "recover", held, "happened", "--output", "null")

    assert code == 4, said
    assert f"a step of run {step}" in said
    assert world.view(held).summary.status == "ambiguous"
    world.home.run("recover", held, "happened", "--output", "null")
    world.finish(held)


def test_where_steps_may_answer_the_history_and_the_view_name_the_run(home: Home) -> None:
    home.config("[people]\nsteps_may_answer = true\n")
    for name in ("word_gate", "word_types"):
        home.workflow(name, FLOWS[name])
    waiting = home.start("word_gate")
    home.wait_status(waiting, "waiting")
    given = json.dumps({"words": ["answer", f"run:{waiting}", "1"], "home": str(home.home), "way": "plainly"})

    step = home.start("word_types", "--input", given)
    home.wait_status(step, "completed")

    assert home.json("show", waiting)["request"]["answered_by"] == f"run:{step}"
    events = home.run("events", waiting, "--json").stdout
    assert f'"actor":"run:{step}"' in events.replace(": ", ":")


def test_what_a_file_types_while_it_is_loaded_is_no_persons_word(world: World) -> None:
    waiting = world.start("word_gate")
    question = world.question(waiting)
    said = Path(world.home.home) / "loaded"
    world.home.workflow(
        "loads",
        f"""
import os, subprocess, sys
environment = {{**os.environ, "PWF_HOME": {str(world.home.home)!r}}}
done = subprocess.run(
    [{sys.executable!r}, "-m", "pwf.cli.main", "answer", {question.request_id!r}, "1"],
    env=environment, capture_output=True, text=True,
)
with open({str(said)!r}, "w") as file:
    file.write(done.stderr)

flow = Workflow("loads")

@flow.compute
def nothing(ctx):
    return None
""",
    )
    world.finish(world.start("loads"))
    assert "code of a workflow" in said.read_text()
    assert world.view(waiting).summary.status == "waiting"
