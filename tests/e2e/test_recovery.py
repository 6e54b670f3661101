"""Runners and daemons that die under a run, with real processes and SIGKILL (R3, R5, R6, R7)."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from pwf.protocol.views import EventView
from tests.e2e.home import ended, gone, wait_for
from tests.e2e.world import PATIENCE_S, World, kill, lines, serving

# Each step notes that it begins, and dies right there when it was told to: at once, or after the commit of the step
# before, which for pure steps takes a moment.
FOUR = """
import os, signal, time
from pathlib import Path

flow = Workflow("{name}")

def step(ctx):
    folder = Path(ctx.input)
    with open(folder / "journal", "a") as file:
        file.write(ctx.node + "\\n")
    try:
        (folder / ("kill-" + ctx.node)).unlink()
    except FileNotFoundError:
        return ctx.node
    if (folder / "wait").exists():
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)

s1, s2, s3, s4 = (flow.{kind}(id="s%d" % number)(step) for number in (1, 2, 3, 4))
flow.graph(s1 >> s2 >> s3 >> s4)
"""
KINDS = {"action": 'action(effect=idempotent("s"), ', "compute": "compute("}
NODES = ["s1", "s2", "s3", "s4"]

# Notes its process, then waits for a file; from the second attempt on it returns at once.
GATE = """
import os, time
from pathlib import Path

flow = Workflow("{name}")

@flow.action(effect=idempotent("gate"))
def gate(ctx):
    folder = Path(ctx.input)
    with open(folder / "pids", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    while ctx.attempt == 1 and not (folder / "open").exists():
        time.sleep(0.005)
    return ctx.attempt
"""

QUICK = """
flow = Workflow("quick")

@flow.compute
def quick(ctx):
    return 1
"""


@pytest.fixture(scope="module")
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(tmp_path_factory.mktemp("one"), "max_runners = 1\n") as world:
        world.home.workflow("gate", GATE.format(name="gate"))
        world.home.workflow("quick", QUICK)
        yield world


@pytest.fixture
def narrow(one_at_a_time: World) -> Iterator[World]:
    """A world with capacity 1."""
    yield one_at_a_time
    one_at_a_time.check()


def _four(world: World, kind: str) -> str:
    name = f"four_{kind}"
    world.home.workflow(name, FOUR.format(name=name, kind="KIND").replace("KIND(", KINDS[kind]))
    return name


@pytest.mark.parametrize("kind", ["action", "compute"])
@pytest.mark.parametrize("committed", [0, 1, 2, 3])
def test_a_runner_killed_after_the_commit_of_a_step_goes_on_with_the_next_within_a_second(
    world: World, committed: int, kind: str
) -> None:
    folder = world.folder(f"four-{kind}-{committed}")
    victim = NODES[committed]
    (folder / f"kill-{victim}").touch()
    (folder / "wait").touch()

    run_id = world.start(_four(world, kind), str(folder))
    world.finish(run_id)

    statuses = world.steps(run_id)
    assert [node for node, status in statuses if status == "completed"] == NODES
    assert Counter(lines(folder / "journal")) == Counter([*NODES, victim])
    seen = next(event.at_ms for event in world.events(run_id) if _is_failed_try(event))
    again = next(
        event.at_ms for event in world.events(run_id) if event.kind == "launched" and event.at_ms >= seen
    )
    assert again - seen < 1_000


def _is_failed_try(event: EventView) -> bool:
    facts = msgspec.json.decode(event.payload)
    return event.kind == "step_finished" and facts["outcome"] == "failed"


def test_pure_steps_that_ended_moments_before_their_runner_was_killed_may_run_again_and_are_committed_once(
    world: World,
) -> None:
    folder = world.folder("four-at-once")
    for node in NODES:
        (folder / f"kill-{node}").touch()

    run_id = world.start(_four(world, "compute"), str(folder))
    world.finish(run_id)

    statuses = world.steps(run_id)
    assert [node for node, status in statuses if status == "completed"] == NODES
    assert sum(1 for _, status in statuses if status == "failed") == len(NODES)
    journal = Counter(lines(folder / "journal"))
    assert all(2 <= journal[node] <= 1 + len(NODES) for node in NODES)


def test_a_runner_killed_at_every_step_still_commits_each_step_once(world: World) -> None:
    folder = world.folder("four-each")
    for node in NODES:
        (folder / f"kill-{node}").touch()

    run_id = world.start(_four(world, "action"), str(folder))
    world.finish(run_id)

    assert world.steps(run_id) == [(node, status) for node in NODES for status in ("failed", "completed")]
    assert all(effect.status == "applied" for effect in world.view(run_id).effects)


@pytest.mark.rest
def test_a_daemon_killed_at_every_step_still_commits_each_step_once(world: World) -> None:
    world.home.workflow(
        "steady",
        """
import os, time
from pathlib import Path

flow = Workflow("steady")

def step(ctx):
    with open(Path(ctx.input) / ctx.node, "a") as file:
        file.write("x\\n")
    while not (Path(ctx.input) / ("go-" + ctx.node)).exists():
        time.sleep(0.005)

s1, s2, s3, s4 = (flow.action(effect=idempotent("s"), id="s%d" % n)(step) for n in (1, 2, 3, 4))
flow.graph(s1 >> s2 >> s3 >> s4)
""",
    )
    folder = world.folder("steady")
    run_id = world.start("steady", str(folder))
    for node in NODES:
        wait_for(lambda node=node: lines(folder / node), PATIENCE_S)  # type: ignore[misc]
        world.kill_daemon()
        (folder / f"go-{node}").touch()
        world.client.call("daemon.status")
        wait_for(lambda node=node: (node, "completed") in world.steps(run_id), PATIENCE_S)  # type: ignore[misc]
    world.finish(run_id)

    statuses = world.steps(run_id)
    assert [node for node, status in statuses if status == "completed"] == NODES
    assert {status for _, status in statuses} == {"completed", "interrupted"}
    assert all(len(lines(folder / node)) == 2 for node in NODES)


def test_when_the_only_runner_is_killed_the_next_run_starts_at_once(narrow: World) -> None:
    folder = narrow.folder("holder")
    holder = narrow.start("gate", str(folder))
    pid = int(wait_for(lambda: lines(folder / "pids"), PATIENCE_S)[0])
    waiting = narrow.start("quick")
    assert narrow.why(waiting) == "capacity"

    at_ms = kill(pid)
    narrow.finish(waiting)

    started_ms = narrow.view(waiting).summary.started_ms
    assert started_ms is not None
    assert started_ms - at_ms < 1_000
    assert narrow.output(holder) == 2


def test_a_run_in_retry_back_off_holds_no_capacity_and_no_process(narrow: World) -> None:
    narrow.home.workflow(
        "stubborn",
        """
flow = Workflow("stubborn")

@flow.action(effect=idempotent("x"), retry=Retry(1, backoff=hours(1)))
def fails(ctx):
    raise RuntimeError("not yet")
""",
    )
    backing_off = narrow.start("stubborn")
    narrow.until(backing_off, "retry_later")
    wait_for(lambda: not narrow.runners(backing_off), PATIENCE_S)

    narrow.finish(narrow.start("quick"))

    assert narrow.why(backing_off) == "retry_later"
    wait_for(lambda: narrow.client.call("daemon.status").runners == 0, PATIENCE_S)


def test_a_run_parked_at_a_question_or_a_timer_holds_no_capacity_and_no_process(narrow: World) -> None:
    narrow.home.workflow(
        "parks",
        """
flow = Workflow("parks")

@flow.checkpoint
def ask(ctx):
    return "go on?"

@flow.wait
def nap(ctx):
    return hours(1)

flow.graph(ask >> nap)
""",
    )
    parked = narrow.start("parks")
    narrow.question(parked)
    wait_for(lambda: not narrow.runners(parked), PATIENCE_S)
    narrow.finish(narrow.start("quick"))
    narrow.answer(parked, None)
    narrow.until(parked, "due_later")
    wait_for(lambda: not narrow.runners(parked), PATIENCE_S)
    narrow.finish(narrow.start("quick"))


def test_a_stopped_runner_that_comes_back_after_its_cancel_changes_nothing(world: World) -> None:
    world.home.workflow("late", GATE.format(name="late"))
    folder = world.folder("late")
    run_id = world.start("late", str(folder))
    pid = int(wait_for(lambda: lines(folder / "pids"), PATIENCE_S)[0])
    runner = psutil.Process(pid)
    kill(pid, signal.SIGSTOP)
    (folder / "open").touch()

    world.cancel(run_id)
    before = world.view(run_id)
    kill(pid, signal.SIGCONT)
    gone(runner, PATIENCE_S)
    wait_for(lambda: not world.runners(run_id), PATIENCE_S)

    after = world.view(run_id)
    assert before.summary.status == after.summary.status == "cancelled"
    assert after.output is None
    assert [step.status for step in after.steps] == ["cancelled"]
    assert [effect.status for effect in after.effects] == ["failed"]  # it may have happened


def test_a_finish_and_a_cancel_that_arrive_together_have_one_winner(world: World) -> None:
    world.home.workflow("together", GATE.format(name="together"))
    folder = world.folder("together")
    run_id = world.start("together", str(folder))
    wait_for(lambda: lines(folder / "pids"), PATIENCE_S)
    daemon = world.daemon
    daemon.suspend()
    try:
        cancel = world.home.spawn("cancel", run_id)
        (folder / "open").touch()
        pid = int(lines(folder / "pids")[0])
        wait_for(lambda: _has_spoken(pid), PATIENCE_S)
    finally:
        daemon.resume()
    _, errors = cancel.communicate(timeout=PATIENCE_S)

    status = wait_for(lambda: world.view(run_id).summary.status in ("completed", "cancelled"), PATIENCE_S)
    assert status
    summary = world.view(run_id).summary
    if summary.status == "completed":
        assert cancel.returncode == 4
        assert b"completed" in errors
    else:
        assert cancel.returncode == 0
    assert len(world.steps(run_id)) == 1


def _has_spoken(pid: int) -> bool:
    """Whether a runner waits for the daemon, or has left with its last word."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_SLEEPING)
    except psutil.NoSuchProcess:
        return True


# The child proves by a kernel lock that no other child of its step lives, notes its start, and refuses to go.
CHILD = """
import fcntl, os, signal, sys, time

folder = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = open(folder + "/lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(folder + "/overlap", "a").write("x")
first = not os.path.exists(folder + "/starts")
with open(folder + "/starts", "a") as file:
    file.write(f"{os.getpid()}\\n")
while first:
    time.sleep(1)
"""

KEEPS_A_CHILD = """
import subprocess, sys

flow = Workflow("{name}")

@flow.{decorator}
def work(ctx):
    {body}
"""
SHELL = 'return [sys.executable, ctx.input + "/child.py", ctx.input]'
OWN_SESSION = """subprocess.run(
        [sys.executable, ctx.input + "/child.py", ctx.input], start_new_session=True, check=True)"""


def _stubborn_child(world: World, name: str, decorator: str, body: str) -> Path:
    world.home.workflow(name, KEEPS_A_CHILD.format(name=name, decorator=decorator, body=body))
    folder = world.folder(name)
    (folder / "child.py").write_text(CHILD)
    return folder


def _one_after_the_other(folder: Path, starts: int) -> None:
    assert len(lines(folder / "starts")) == starts
    assert not (folder / "overlap").exists()
    assert all(not psutil.pid_exists(int(pid)) for pid in lines(folder / "starts"))


@pytest.mark.parametrize(
    ("kind", "decorator", "body"),
    [
        ("shell", 'shell(effect=idempotent("w"))', SHELL),
        ("action", 'action(effect=idempotent("w"))', OWN_SESSION),
    ],
)
@pytest.mark.parametrize("runner", ["awake", "stopped"])
def test_after_the_daemons_death_a_step_runs_again_only_when_its_old_child_is_dead(
    world: World, kind: str, decorator: str, body: str, runner: str
) -> None:
    name = f"{kind}_{runner}"
    folder = _stubborn_child(world, name, decorator, body)
    run_id = world.start(name, str(folder))
    child = psutil.Process(int(wait_for(lambda: lines(folder / "starts"), PATIENCE_S)[0]))
    if runner == "stopped":  # it can't act on the closed socket: only the next daemon can end its child
        for pid in world.runners(run_id):
            if pid != child.pid:
                kill(pid, signal.SIGSTOP)

    world.kill_daemon()
    world.finish(run_id)

    assert ended(child)
    _one_after_the_other(folder, 2)
    assert world.steps(run_id) == [("work", "interrupted"), ("work", "completed")]


@pytest.mark.parametrize(
    ("kind", "decorator", "body"),
    [
        ("shell", "shell", SHELL),
        ("action", "action", OWN_SESSION),
    ],
)
def test_after_a_timeout_a_step_is_tried_again_only_when_its_old_child_is_dead(
    world: World, kind: str, decorator: str, body: str
) -> None:
    name = f"slow_{kind}"
    options = '(effect=idempotent("w"), timeout=seconds(1), retry=Retry(1, backoff=seconds(0)))'
    folder = _stubborn_child(world, name, decorator + options, body)
    run_id = world.start(name, str(folder))
    world.finish(run_id)
    _one_after_the_other(folder, 2)
    assert world.steps(run_id) == [("work", "timed_out"), ("work", "completed")]
