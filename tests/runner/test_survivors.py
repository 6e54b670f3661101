"""A process that outlives its step is ended and named, in every kind of step."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from pwf import host
from pwf.protocol.survivors import name_all
from pwf.runner.base.survivors import Survivors
from pwf.runner.spawn.reaping import Children
from pwf.workflow.effects import idempotent
from pwf.workflow.workflow import Workflow
from tests.runner.forked import forked
from tests.runner.peer import MemoryRun, memory_run, run_forked

SLEEPER = "exec sleep 9999"


def leave_one(path: Path, how: str = "setsid") -> None:
    """Start a process that nobody waits for, and write down its pid."""
    line = f"echo $$ > {path}.part; mv {path}.part {path}; {SLEEPER}"
    if how == "double fork":
        line = f"sh -c '{line}' & exit 0"
    subprocess.Popen(["sh", "-c", line], start_new_session=True)
    while not path.exists():
        time.sleep(0.002)


def flow_of(kind: str, path: Path) -> Workflow[Any]:
    flow: Workflow[Any] = Workflow("w")

    if kind == "compute":
        flow.compute(id="step")(lambda ctx: leave_one(path))
    elif kind == "action":
        flow.action(effect=idempotent("x"), id="step")(lambda ctx: leave_one(path, "double fork"))
    elif kind == "async":

        async def step(ctx: Any) -> None:
            leave_one(path)

        flow.compute(step)
    elif kind == "shell":
        line = (
            f"setsid sh -c 'echo $$ > {path}; {SLEEPER}' >/dev/null 2>&1 & while [ ! -s {path} ]; do :; done"
        )
        flow.shell(effect=idempotent("x"), id="step")(lambda ctx: ["sh", "-c", line])
    elif kind == "failed":

        def fails(ctx: Any) -> None:
            leave_one(path)
            raise ValueError

        flow.compute(fails)
    elif kind == "wait":

        def until(ctx: Any) -> float:
            leave_one(path)
            return 5.0

        flow.wait(until)
    else:

        def asks(ctx: Any) -> str:
            leave_one(path)
            return "?"

        flow.checkpoint(asks)
    return flow


def left(run: MemoryRun) -> list[tuple[int, str]]:
    (message,) = [message for message in run.received if hasattr(message, "survivors")]
    return [(one.pid, one.command) for one in message.survivors]


@pytest.mark.parametrize("kind", ["compute", "action", "async", "shell", "failed", "wait", "checkpoint"])
def test_a_process_that_outlives_its_step_is_ended_and_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    flow = flow_of(kind, path)
    run = run_forked(flow, memory_run(flow))
    pid = int(path.read_text())
    assert left(run) == [(pid, "sleep 9999")]
    assert host.process_identity(pid) is None
    assert run.leaving is not None
    assert run.leaving.childless


def test_what_ends_soon_by_itself_is_waited_for_and_not_named(tmp_path: Path) -> None:
    flow: Workflow[Any] = Workflow("w")
    done = tmp_path / "done"

    @flow.compute
    def step(ctx: Any) -> None:
        subprocess.Popen(["sh", "-c", f"sleep 0.03; : > {done}"])

    assert left(run_forked(flow, memory_run(flow))) == []
    assert done.exists()


def test_the_next_step_finds_none_of_it(tmp_path: Path) -> None:
    flow: Workflow[Any] = Workflow("w")
    path = tmp_path / "pid"

    @flow.compute
    def one(ctx: Any) -> None:
        leave_one(path)

    @flow.compute
    def two(ctx: Any) -> bool:
        found = host.read_process(int(path.read_text()))
        return found is not None and not found.dead

    flow.graph(one >> two)
    run = run_forked(flow, memory_run(flow))
    assert run.read(run.last.output) is False


def test_what_was_there_before_is_spared_and_what_multiprocessing_keeps_for_all_steps_too() -> None:
    def body() -> list[Any]:
        before = subprocess.Popen(["sleep", "9999"])
        survivors = Survivors()
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()
        first = survivors.end(0.01)
        during = subprocess.Popen(["sleep", "9998"])
        second = survivors.end(0.01)
        alive = [before.poll() is None, resource_tracker._resource_tracker._check_alive()]
        before.kill()
        return [len(first), [one.command for one in second], during.wait() < 0, alive]

    assert forked(body) == [0, ["sleep 9998"], True, [True, True]]


def test_what_takes_its_time_to_die_is_named_once_as_it_was_when_it_lived() -> None:
    """A large process loses its command line long before it is gone, and is found again meanwhile."""

    def body() -> Any:
        host.set_subreaper()
        runner = os.fork()
        if runner == 0:
            ready = os.pipe()
            if os.fork() == 0:
                large = b"x" * 300_000_000
                os.write(ready[1], large[:1])
                time.sleep(60)
            os.read(ready[0], 1)
            os._exit(3)
        children = Children()
        children.add(runner)
        os.waitid(os.P_PID, runner, os.WEXITED | os.WNOWAIT)
        own = name_all(filter(None, [host.process_identity(os.getpid())]))[0].command  # as of any fork of it
        return [
            [one.command == own for one in ended.survivors]
            for ended in children.reap()
            if ended.pid == runner
        ]

    assert forked(body) == [[True]]


def test_a_step_that_leaves_nothing_pays_for_one_question_to_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    survivors = Survivors()
    monkeypatch.setattr("pwf.runner.base.survivors.host.has_children", lambda: False)
    monkeypatch.setattr(
        "pwf.runner.base.survivors.descendants.living", lambda beside: pytest.fail("it looked")
    )
    assert survivors.end() == ()
