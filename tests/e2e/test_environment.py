"""Interpreters and variables: a run keeps what it was started with, never what the daemon happens to have."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pwf
from tests.e2e.world import World, serving

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

LOOKS = """
import os, sys
import paint

flow = Workflow("looks")

def now():
    return [sys.prefix, paint.COLOUR, os.getcwd()]

@flow.compute
def before(ctx):
    return now()

@flow.checkpoint
def ask(ctx):
    return "go on?"

@flow.shell(effect=idempotent("python"), parse="lines")
def command(ctx):
    return [sys.executable, "-c", "import sys; print(sys.prefix)"]

@flow.compute
def after(ctx):
    return [ctx[before], now(), ctx[command].parsed]

flow.graph(before >> ask >> command >> after)
"""


def _project(folder: Path, colour: str) -> Path:
    """A project with a .venv in which pwf is installed, beside a package of its own."""
    workflows = folder / ".pwf" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "looks.py").write_text("from pwf import *\n" + LOOKS)
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "paint.py").write_text(f"COLOUR = {colour!r}\n")
    distribution = importlib.metadata.distribution("pwf-workflows")
    installed = Path(str(distribution.locate_file(""))).resolve()
    (info,) = installed.glob("pwf_workflows-*.dist-info")
    (site / info.name).symlink_to(info)
    (site / "pwf").symlink_to(Path(pwf.__file__).parent)
    (site / "rest.pth").write_text(f"{installed}\n")
    return folder


@pytest.fixture(scope="module")
def projects(world_of_projects: World) -> tuple[Path, Path]:
    folder = world_of_projects.home.project.parent
    return _project(folder / "red", "red"), _project(folder / "blue", "blue")


@pytest.fixture(scope="module")
def world_of_projects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    config = '[environment]\npass = ["PAINT_*", "SECRET_OF_CLIENT"]\n'
    with serving(tmp_path_factory.mktemp("projects"), config) as world:
        world.home.environment |= {"PAINT_POT": "of the daemon", "SECRET_OF_DAEMON": "x", "TZ": "Asia/Tokyo"}
        world.home.run("start")
        del world.home.environment["SECRET_OF_DAEMON"], world.home.environment["TZ"]
        yield world


@pytest.fixture
def world(world_of_projects: World) -> Iterator[World]:
    yield world_of_projects
    world_of_projects.check()


def test_two_projects_run_at_once_each_in_its_own_venv(world: World, projects: tuple[Path, Path]) -> None:
    runs = [world.start("looks", cwd=project) for project in projects for _ in range(2)]
    for run_id in runs:
        world.answer(run_id, None)
    for run_id, project, colour in zip(runs, (p for p in projects for _ in range(2)), "rrbb", strict=True):
        before, after, command = world.output(run_id)
        assert before == after == [str(project / ".venv"), {"r": "red", "b": "blue"}[colour], str(project)]
        assert command == [str(project / ".venv")]
        assert world.view(run_id).interpreter == str(project / ".venv" / "bin" / "python")


def test_a_run_whose_interpreter_is_gone_is_held_and_goes_on_when_it_is_back(
    world: World, projects: tuple[Path, Path]
) -> None:
    project = projects[0]
    run_id = world.start("looks", cwd=project)
    world.question(run_id)
    (project / ".venv").rename(project / "away")
    try:
        world.answer(run_id, None)
        assert world.parked(run_id, "held").summary.hold == "environment_missing"
        explained = world.home.json("explain", run_id)["explanation"]
        assert str(project / ".venv" / "bin" / "python") in explained["reason"]
        assert f"pwf resume {run_id}" in explained["commands"]
    finally:
        (project / "away").rename(project / ".venv")
    world.home.run("resume", run_id)
    assert world.output(run_id)[1][1] == "red"


def test_a_start_whose_interpreter_can_not_be_executed_is_refused_without_a_trace(
    world: World, projects: tuple[Path, Path]
) -> None:
    project = projects[1]
    python = project / ".venv" / "bin" / "python"
    before = world.count()
    kept = os.readlink(python)
    python.unlink()
    python.write_text("not a program")
    try:
        world.home.project, home_project = project, world.home.project
        refused = world.home.run("run", "looks", code=8)
    finally:
        world.home.project = home_project
        python.unlink()
        python.symlink_to(kept)
    assert str(python) in refused.stderr
    assert world.count() == before


VARIABLES = """
import os

flow = Workflow("variables")

@flow.checkpoint
def ask(ctx):
    return "go on?"

@flow.compute
def seen(ctx):
    names = ("PAINT_POT", "SECRET_OF_DAEMON", "SECRET_OF_CLIENT", "OTHER", "TZ", "LC_ALL", "PWF_RUN_MARKER")
    return {name: os.environ.get(name) for name in names}

flow.graph(ask >> seen)
"""


def test_a_run_has_the_variables_of_the_client_that_started_it_and_none_of_the_daemons(world: World) -> None:
    home = world.home
    home.workflow("variables", VARIABLES)
    kept = dict(home.environment)
    home.environment |= {"PAINT_POT": "of the client", "SECRET_OF_CLIENT": "s", "OTHER": "o", "LC_ALL": "C"}
    run_id = home.start("variables")
    home.environment = kept | {"PAINT_POT": "of another client", "TZ": "Europe/Paris"}
    world.question(run_id)
    world.kill_daemon()

    home.run("answer", f"run:{run_id}", "null")
    found = world.output(run_id)

    home.environment = kept
    marker = found.pop("PWF_RUN_MARKER")
    assert run_id in marker
    assert found == {
        "PAINT_POT": "of the client",
        "SECRET_OF_CLIENT": "s",
        "SECRET_OF_DAEMON": None,
        "OTHER": None,
        "TZ": None,
        "LC_ALL": "C",
    }


DECLARED = """
import os

flow = Workflow("declared", environment=["PAINT_BRUSH", "HAS_TOKEN", "HAS_NONE"])

@flow.compute
def seen(ctx):
    return {name: os.environ.get(name) for name in ("HAS_TOKEN", "HAS_NONE", "STAGE", "PAINT_POT")}
"""


def test_what_a_workflow_declares_is_passed_on_and_what_is_not_set_is_said(world: World) -> None:
    home = world.home
    home.workflow("declared", DECLARED)
    kept = dict(home.environment)
    home.environment |= {"HAS_TOKEN": "t", "PAINT_POT": "of the client"}
    done = home.run("run", "declared", "--env", "STAGE=test", "--env", "PAINT_POT", "--json")
    refused = home.run("run", "declared", "--env", "HAS_NONE", code=2)
    again = home.json("restart", "@last")
    home.environment = kept
    first, last = (json.loads(line) for line in done.stdout.splitlines())
    (missing_first, missing_second) = first["warnings"]
    assert "PAINT_BRUSH" in missing_first
    assert "--env HAS_NONE=VALUE" in missing_second
    assert last["output"]["json"] == {
        "HAS_TOKEN": "t",
        "HAS_NONE": None,
        "STAGE": "test",
        "PAINT_POT": "of the client",
    }
    assert "--env HAS_NONE=VALUE" in refused.stderr
    assert "only `pwf run` takes variables along" in again["warnings"][0]


def test_a_step_may_start_runs_of_its_own_which_are_not_part_of_it(world: World) -> None:
    world.home.workflow(
        "nested",
        """
import json, os, subprocess, sys

flow = Workflow("nested")

@flow.action(effect=idempotent("start"))
def begin(ctx):
    words = ["run", "inner", "--key", ctx.effect_key, "--detach", "--json"]
    done = subprocess.run([sys.executable, "-m", "pwf.cli.main", *words], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["run_id"]
""",
    )
    world.home.workflow(
        "inner",
        """
import os

flow = Workflow("inner")

@flow.compute
def one(ctx):
    return os.environ["PWF_RUN_MARKER"]
""",
    )
    outer = world.home.start("nested")
    inner = world.output(outer)
    assert inner != outer
    assert f":{inner}:" in world.output(inner)


def test_a_daemon_that_a_step_happens_to_start_bears_no_mark_of_its_run(world: World) -> None:
    world.stop_daemon()
    world.home.environment["PWF_RUN_MARKER"] = (
        f"home{os.getpid()}:run:1"  # no proof of another test is for it
    )
    world.home.run("start")
    del world.home.environment["PWF_RUN_MARKER"]
    assert b"PWF_RUN_MARKER" not in Path(f"/proc/{world.home.pid}/environ").read_bytes()
