"""Processes that have several runs, through the daemon: what they may share, and that nothing of a run lives on."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from pwf import host
from tests.e2e.home import ended, wait_for
from tests.e2e.world import PATIENCE_S, World

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

KEPT = """
import os, sys, time

flow = Workflow("{name}", isolate="keep")
found = []

@flow.compute
def work(ctx):
    {body}
    return [os.getpid(), os.environ["PWF_RUN_MARKER"].split(":")[1]]
"""

#: It hides a process from the look: the runner gives up its descendants for a moment.
HIDE = """
    import ctypes
    libc = ctypes.CDLL(None)
    libc.prctl(36, 0, 0, 0, 0)
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.setsid()
            os.closerange(0, 100)
            with open(ctx.input, "w") as file:
                file.write(str(os.getpid()))
            os.rename(ctx.input, ctx.input + ".pid")
            time.sleep(1000)
        os._exit(0)
    os.waitpid(child, 0)
    libc.prctl(36, 1, 0, 0, 0)
"""


def _write(world: World, name: str, body: str = "pass") -> None:
    world.home.workflow(name, KEPT.format(name=name, body=body))


def _kept(world: World, name: str) -> dict[str, object]:
    (found,) = world.home.json("check", str(world.home.workflows / f"{name}.py"))["files"]
    kept: dict[str, object] = found["kept"]
    return kept


def test_runs_share_a_process_one_after_the_other_and_each_bears_its_own_name(world: World) -> None:
    _write(world, "shared", "len(ctx.input)")
    runs = []
    for _ in range(4):
        runs.append(world.start("shared", "x" * 10_000))  # which is read by its digest
        world.finish(runs[-1])
    outputs = [world.output(run_id) for run_id in runs]
    assert len({pid for pid, _ in outputs}) < len(runs)
    assert [name for _, name in outputs] == runs
    assert world.runners() == [], "between two runs it has none"


def test_a_run_that_leaves_something_ends_its_process_and_check_says_what(world: World) -> None:
    _write(world, "leaves", "found.append(1)")
    pids = []
    for _ in range(3):
        run_id = world.start("leaves")
        pids.append(world.output(run_id)[0])
    assert len(set(pids)) == 3
    kept = wait_for(lambda: _kept(world, "leaves"), PATIENCE_S)
    assert kept["stayed"] == 0
    assert kept["last_reason"] == "not as before: leaves.found"


@pytest.mark.parametrize("end", ["the daemon is killed", "the daemon is stopped"])
def test_what_hides_from_the_look_does_not_outlive_the_process_that_was_kept(world: World, end: str) -> None:
    name = f"hides_{end.split()[-1]}"
    _write(world, name, HIDE.strip())
    path = world.folder(name) / "hidden"
    pid, _ = world.output(world.start(name, str(path)))
    hidden = psutil.Process(int(wait_for(lambda: _text(f"{path}.pid"), PATIENCE_S)))
    waiting = psutil.Process(pid)
    own = host.read_variable(hidden.pid, "PWF_RUN_MARKER")
    wait_for(
        lambda: host.read_variable(pid, "PWF_RUN_MARKER") != own, PATIENCE_S
    )  # the output is told before it stays
    if end == "the daemon is killed":
        world.kill_daemon()
    else:
        world.stop_daemon()
    wait_for(lambda: ended(hidden) and ended(waiting), PATIENCE_S)


def test_a_cancel_ends_the_process_and_never_only_the_run(world: World) -> None:
    _write(world, "cancelled", "time.sleep(0 if ctx.input is None else 1000)")
    first, _ = world.output(world.start("cancelled"))
    run_id = world.start("cancelled", 1)
    (pid,) = wait_for(lambda: world.runners(run_id), PATIENCE_S)
    process = psutil.Process(pid)
    world.cancel(run_id)
    wait_for(lambda: ended(process), PATIENCE_S)
    again, _ = world.output(world.start("cancelled"))
    assert again != pid
    assert first is not None


def _text(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""
