"""Processes that die or misbehave in unusual places, and commands that come at unusual moments."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator

import psutil
import pytest

from pwf.errors import Conflict
from tests.e2e.home import ended, gone, wait_for
from tests.e2e.world import PATIENCE_S, World, kill, lines, serving

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

GATE = """
import os, time
from pathlib import Path

flow = Workflow("{name}")

@flow.action(effect=idempotent("gate"))
def gate(ctx):
    with open(Path(ctx.input) / "pids", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    while not (Path(ctx.input) / "open").exists():
        time.sleep(0.005)
    return ctx.attempt

@flow.compute
def after(ctx):
    return ctx[gate]

flow.graph(gate >> after)
"""


def _spawners(world: World) -> list[psutil.Process]:
    """The zygotes and templates of the daemon, parents first."""
    return [
        process
        for process in world.daemon.children(recursive=True)
        if "pwf.runner.spawn.zygote" in process.cmdline() and process.pid not in world.runners()
    ]


@pytest.mark.parametrize("victims", ["zygote", "templates", "all"])
def test_killed_spawners_cost_at_most_a_repeated_step_and_new_runs_start(world: World, victims: str) -> None:
    name = f"spawned_{victims}"
    world.home.workflow(name, GATE.format(name=name))
    folder = world.folder(name)
    run_id = world.start(name, str(folder))
    wait_for(lambda: lines(folder / "pids"), PATIENCE_S)
    spawners = _spawners(world)
    zygotes = [process for process in spawners if process.ppid() == world.home.pid]
    assert zygotes
    templates = [process for process in spawners if process not in zygotes]

    for process in {"zygote": zygotes, "templates": templates, "all": spawners}[victims]:
        kill(process.pid)
    (folder / "open").touch()

    world.finish(run_id)
    assert [node for node, status in world.steps(run_id) if status == "completed"] == ["gate", "after"]
    again = world.start(name, str(folder))
    world.finish(again)


def _kill_whoever_serves(world: World) -> None:
    def serving() -> int:
        pid = world.home.record.pid
        return pid if pid and psutil.pid_exists(pid) and not ended(psutil.Process(pid)) else 0

    daemon = psutil.Process(wait_for(serving, PATIENCE_S))
    kill(daemon.pid)
    gone(daemon, PATIENCE_S)
    world.hang_up()


@pytest.mark.rest
def test_starts_sent_while_the_daemon_is_killed_again_and_again_make_one_run_each(world: World) -> None:
    world.home.workflow(
        "counted", "flow = Workflow('counted')\n@flow.compute\ndef one(ctx):\n    return ctx.input\n"
    )
    before = world.count()
    started = []
    for number in range(8):
        command = world.home.spawn("run", "counted", "--input", str(number), "--json")
        if number % 2:
            _kill_whoever_serves(world)
        started.append(command)
    outputs = [command.communicate(timeout=PATIENCE_S) for command in started]
    assert [command.returncode for command in started] == [0] * 8, outputs
    assert world.count() == before + 8


def test_never_more_runs_execute_at_once_than_there_is_capacity(world: World) -> None:
    world.home.workflow(
        "crowd",
        """
import os, time
from pathlib import Path

flow = Workflow("crowd")

@flow.action(effect=idempotent("x"))
def work(ctx):
    folder = Path(ctx.input)
    mine = folder / f"in-{ctx.run_id}"
    mine.touch()
    inside = len(list(folder.glob("in-*")))
    time.sleep(0.02)
    mine.unlink()
    return inside
""",
    )
    folder = world.folder("crowd")
    runs = [world.start("crowd", str(folder)) for _ in range(25)]
    inside = [world.output(run_id) for run_id in runs]
    assert 1 < max(inside) <= 4


def test_two_answers_at_the_same_moment_have_one_winner_and_the_other_learns_it(world: World) -> None:
    world.home.workflow("race", "flow = Workflow('race')\n@flow.checkpoint\ndef ask(ctx):\n    return '?'\n")
    run_id = world.start("race")
    question = world.question(run_id)
    answers = [world.home.spawn("answer", question.request_id, str(number)) for number in range(3)]
    outputs = [command.communicate(timeout=PATIENCE_S) for command in answers]
    codes = [command.returncode for command in answers]
    assert sorted(codes) == [0, 4, 4], outputs
    winner = codes.index(0)
    assert world.output(run_id) == winner
    assert all(b"answered" in errors for code, (_, errors) in zip(codes, outputs, strict=True) if code)
    with pytest.raises(Conflict):
        world.client.answer(question.request_id, "late")


def test_a_run_whose_project_is_gone_is_held_and_goes_on_when_it_is_back(world: World) -> None:
    project = world.home.project.parent / "moved"
    workflows = project / ".pwf" / "workflows"
    workflows.mkdir(parents=True)
    text = """from pwf import *
import os

flow = Workflow("moved")

@flow.checkpoint
def ask(ctx):
    return "?"

@flow.action(effect=idempotent("x"))
def where(ctx):
    return os.getcwd()

flow.graph(ask >> where)
"""
    (workflows / "moved.py").write_text(text)
    run_id = world.start("moved", cwd=project)
    world.question(run_id)
    shutil.move(project, project.parent / "away")
    world.answer(run_id, None)
    assert world.parked(run_id, "held").summary.hold == "environment_missing"
    assert str(project) in world.home.json("explain", run_id)["explanation"]["reason"]
    shutil.move(project.parent / "away", project)
    world.home.run("resume", run_id)
    assert world.output(run_id) == str(project)


MISBEHAVES = {
    "exits silently": "os._exit(0)",
    "closes every descriptor": "os.closerange(0, 1000)",
    "crashes the interpreter": "import ctypes; ctypes.string_at(0)",
}


@pytest.mark.parametrize("deed", MISBEHAVES)
def test_a_step_that_ends_its_runner_three_times_fails_with_the_reason(world: World, deed: str) -> None:
    name = deed.replace(" ", "_")
    world.home.workflow(
        name,
        f"""
import os

flow = Workflow("{name}")

@flow.action(effect=idempotent("x"))
def work(ctx):
    {MISBEHAVES[deed]}
    return 1
""",
    )
    run_id = world.start(name)
    assert "its runner ended in the middle of the step" in (
        world.finish(run_id, "failed").summary.reason or ""
    )
    assert [status for _, status in world.steps(run_id)] == ["failed"] * 3


RETURNS = {
    "sys.exit": ("import sys; sys.exit(3)", "SystemExit"),
    "a deep recursion": ("f = lambda: f(); f()", "RecursionError"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "an exception that can't be shown": (
        "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()",
        "Odd",
    ),
    "not a value": ("return object()", "object"),
    "NaN": ("return float('nan')", "nan"),
    "a surrogate": ("return '\\ud800'", "surrogate"),
}


@pytest.mark.parametrize("deed", RETURNS)
def test_a_step_that_raises_or_returns_something_odd_fails_its_run_and_says_what(
    world: World, deed: str
) -> None:
    body, word = RETURNS[deed]
    name = f"odd_{list(RETURNS).index(deed)}"
    text = f"flow = Workflow('{name}')\n@flow.compute\ndef odd(ctx):\n    {body}\n"
    world.home.workflow(name, text)
    run_id = world.start(name)
    world.finish(run_id, "failed")
    error = world.view(run_id).error
    assert error is not None
    assert error.node == "odd"
    assert word.lower() in (error.message + str(error)).lower()
    assert world.home.run("show", run_id).returncode == 0


def test_a_forked_copy_of_a_step_does_not_speak_for_it(world: World) -> None:
    world.home.workflow(
        "forks",
        """
import os

flow = Workflow("forks")

@flow.action(effect=idempotent("x"))
def work(ctx):
    return "child" if os.fork() == 0 else "parent"

@flow.compute
def after(ctx):
    return ctx[work]

flow.graph(work >> after)
""",
    )
    run_id = world.start("forks")
    assert world.output(run_id) == "parent"
    assert world.steps(run_id) == [("work", "completed"), ("after", "completed")]


def test_a_step_that_stops_itself_is_ended_by_its_timeout(world: World) -> None:
    world.home.workflow(
        "stops_itself",
        """
import os, signal

flow = Workflow("stops_itself")

@flow.action(effect=idempotent("x"), timeout=seconds(1))
def work(ctx):
    os.kill(os.getpid(), signal.SIGSTOP)
""",
    )
    run_id = world.start("stops_itself")
    world.finish(run_id, "timed_out")
    assert world.steps(run_id) == [("work", "timed_out")]


def test_an_async_step_is_timed_out_with_its_clean_up_done(world: World) -> None:
    world.home.workflow(
        "async_slow",
        """
import trio
from pathlib import Path

flow = Workflow("async_slow")

@flow.action(effect=idempotent("x"), timeout=seconds(0.5))
async def work(ctx):
    try:
        await trio.sleep(1000)
    finally:
        (Path(ctx.input) / "cleaned").touch()
""",
    )
    folder = world.folder("async_slow")
    world.finish(world.start("async_slow", str(folder)), "timed_out")
    assert (folder / "cleaned").exists()


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(tmp_path_factory.mktemp("cold")) as world:
        yield world
        world.check()


@pytest.mark.parametrize("act", ["cancel", "pause", "pause and resume"])
def test_acts_during_a_launch_have_their_effect(cold: World, act: str) -> None:
    """Loading takes its time here, so that the act comes while the runner is being launched."""
    name = f"loads_slowly_{act.replace(' ', '_')}"
    cold.home.workflow(
        name,
        f"""
import time
time.sleep(0.5)
flow = Workflow("{name}")

@flow.compute
def one(ctx):
    return 1
""",
    )
    run_id = cold.start(name)
    cold.until(run_id, "launching")
    cold.client.call(f"run.{act.split()[0]}", run_id=run_id)
    if act == "cancel":
        cold.finish(run_id, "cancelled")
        assert cold.steps(run_id) == []
    elif act == "pause":
        cold.parked(run_id, "paused")
        wait_for(lambda: not cold.runners(run_id), PATIENCE_S)
        cold.client.call("run.resume", run_id=run_id)
        assert cold.output(run_id) == 1
    else:
        cold.client.call("run.resume", run_id=run_id)
        assert cold.output(run_id) == 1


def test_a_pause_between_steps_keeps_what_is_done_and_resume_goes_on(world: World) -> None:
    world.home.workflow("halves", GATE.format(name="halves"))
    folder = world.folder("halves")
    run_id = world.start("halves", str(folder))
    wait_for(lambda: lines(folder / "pids"), PATIENCE_S)
    world.home.run("pause", run_id)
    (folder / "open").touch()
    world.parked(run_id, "paused")
    assert world.steps(run_id) == [("gate", "completed")]
    world.kill_daemon()
    assert world.why(run_id) == "paused"
    world.home.run("resume", run_id)
    assert world.output(run_id) == 1
    assert world.steps(run_id) == [("gate", "completed"), ("after", "completed")]


def test_a_frozen_daemon_is_waited_for_by_a_command_and_answers_when_it_wakes(world: World) -> None:
    world.home.workflow("halves", GATE.format(name="halves"))
    world.client.call("daemon.status")
    daemon = world.daemon
    kill(daemon.pid, signal.SIGSTOP)
    try:
        command = world.home.spawn("ls", "--json")
        with pytest.raises(Exception, match="timed out"):
            command.communicate(timeout=0.7)
    finally:
        kill(daemon.pid, signal.SIGCONT)
    output, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, errors
    assert b"runs" in output
    assert world.home.pid == daemon.pid
