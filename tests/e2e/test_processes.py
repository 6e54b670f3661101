"""What steps start, print and allocate, through the daemon (O1, O2, O3 and the memory limit)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from itertools import count

import psutil
import pytest

from pwf.protocol.runner import MARKER_VARIABLE
from tests.e2e.home import ended, wait_for
from tests.e2e.world import PATIENCE_S, World, processes_with, serving

_numbers = count(90_001)

TWO_SHELLS = 'return ["sh", "-c", "sh -c \'sleep {word}; true\'; true"]'
# Forks twice with a session of its own between, and keeps the pipe to its step open.
LEFT_THE_SESSION = """return [sys.executable, "-c", '''
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{word}"])
    os._exit(0)
time.sleep(1000)
''']"""
# The same without the marker: only the kernel's list of descendants leads to it.
WITHOUT_MARKER = 'return ["sh", "-c", "env -i setsid sleep {word} & sleep {word}"]'

LONG = """
import sys

flow = Workflow("{name}")

@flow.shell(effect=idempotent("sleep"), timeout=minutes(30))
def work(ctx):
    {body}
"""

ESCAPES = [TWO_SHELLS, LEFT_THE_SESSION, WITHOUT_MARKER]
NAMES = ["two_shells", "left_the_session", "without_marker"]


def _asleep(world: World, name: str, body: str) -> tuple[str, list[psutil.Process]]:
    """A run whose step has started `sleep` somewhere below it; all that carry its number."""
    word = str(next(_numbers))
    world.home.workflow(name, LONG.format(name=name, body=body.replace("{word}", word)))
    run_id = world.start(name)

    def all_there() -> list[psutil.Process]:
        found = processes_with(word)
        wanted = 2 if "env -i" in body else 1
        return found if len(found) >= wanted else []

    return run_id, wait_for(all_there, PATIENCE_S)


@pytest.mark.parametrize("body", ESCAPES, ids=NAMES)
def test_after_cancel_nothing_that_a_step_started_is_alive(
    world: World, body: str, request: pytest.FixtureRequest
) -> None:
    run_id, sleepers = _asleep(world, f"cancelled_{request.node.callspec.id}", body)
    world.cancel(run_id)
    wait_for(lambda: all(ended(process) for process in sleepers), PATIENCE_S)
    assert world.view(run_id).summary.status == "cancelled"


@pytest.mark.parametrize("body", ESCAPES, ids=NAMES)
def test_after_the_daemon_was_killed_and_restarted_nothing_that_a_step_started_is_alive(
    world: World, body: str, request: pytest.FixtureRequest
) -> None:
    run_id, sleepers = _asleep(world, f"orphaned_{request.node.callspec.id}", body)
    world.kill_daemon()
    world.cancel(run_id)
    wait_for(lambda: all(ended(process) for process in sleepers), PATIENCE_S)


def test_a_pause_now_stops_the_step_and_resume_runs_it_again(world: World) -> None:
    run_id, sleepers = _asleep(world, "paused_now", TWO_SHELLS)
    world.home.run("pause", run_id, "--now")
    world.parked(run_id, "paused")
    wait_for(lambda: all(ended(process) for process in sleepers), PATIENCE_S)
    world.home.run("resume", run_id)
    world.until(run_id, "executing")
    assert [status for _, status in world.steps(run_id)] == ["interrupted", "active"]


def test_status_says_what_processes_use_and_doctor_names_those_of_no_live_runner(world: World) -> None:
    run_id, sleepers = _asleep(world, "in_use", TWO_SHELLS)
    with world.home.client() as client:
        found = client.call("daemon.status")
    daemon = psutil.Process(found.pid)
    assert abs(found.memory_bytes - daemon.memory_info().rss) < 0.2 * found.memory_bytes
    assert abs(found.open_descriptors - daemon.num_fds()) <= 5
    (live,) = found.live
    assert live.marker.split(":")[1] == run_id
    assert live.pid in {above.pid for above in sleepers[0].parents()}
    assert live.memory_bytes > psutil.Process(live.pid).memory_info().rss / 2

    def leftovers() -> str:
        lines = world.home.run("doctor", code=None).stdout.splitlines()
        return next(line for line in lines if "leftovers" in line)

    assert "belong to live runs" in leftovers()
    marked = {**os.environ, MARKER_VARIABLE: f"{world.home.record.home_id}:ended:1"}
    with subprocess.Popen(["sleep", "1000"], env=marked) as stray:
        told = leftovers()
        stray.kill()
    assert f" {stray.pid}" in told
    assert not {str(process.pid) for process in sleepers} & set(told.replace(",", "").split())
    world.cancel(run_id)


FORKS = """
import multiprocessing, os

flow = Workflow("forks")

def fork():
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    child = multiprocessing.get_context("fork").Process(target=int)
    child.start()
    child.join()
    return child.exitcode

@flow.compute
def plain(ctx):
    return fork()

@flow.compute
async def in_a_loop(ctx):
    import trio
    await trio.to_thread.run_sync(int)
    return fork()

flow.graph(plain >> in_a_loop)
"""


def test_a_step_that_forks_has_no_warning_of_threads_in_the_daemons_log(world: World) -> None:
    # From Python 3.12 on, os.fork warns where there is another thread, as there is in every runner.
    world.home.workflow("forks", FORKS)
    assert world.output(world.start("forks")) == 0
    assert "multi-threaded" not in (world.home.home / "daemon.log").read_text()


PRINTS = """
import sys

flow = Workflow("{name}")

@flow.shell(effect=idempotent("print"){options})
def say(ctx):
    return [sys.executable, "-c", {code!r}]

@flow.compute
def seen(ctx):
    said = ctx[say]
    return {{
        "stdout": said.stdout_bytes[:64].hex(),
        "text": said.stdout[:64],
        "sizes": [len(said.stdout_bytes), len(said.stderr_bytes)],
        "dropped": [said.stdout_dropped, said.stderr_dropped],
    }}

flow.graph(say >> seen)
"""


@pytest.fixture
def said(world: World) -> Callable[..., dict[str, object]]:
    """Runs a step that executes this Python text; what the next step saw of its output."""

    def say(name: str, code: str, options: str = "") -> dict[str, object]:
        world.home.workflow(name, PRINTS.format(name=name, code=code, options=options))
        found: dict[str, object] = world.output(world.start(name))
        return found

    return say


def test_bytes_that_are_not_text_are_kept_exactly_and_shown_with_replacement_marks(
    world: World, said: Callable[..., dict[str, object]]
) -> None:
    code = (
        "import os, time\n"
        "os.write(1, bytes.fromhex('c600fffe') + bytes.fromhex('e282'))\n"
        "time.sleep(0.1)\n"  # the rest of the character comes with another read
        "os.write(1, bytes.fromhex('ac'))\n"
    )
    found = said("not_text", code)
    assert found["stdout"] == "c600fffee282ac"
    assert found["text"] == "\ufffd\x00\ufffd\ufffd€"
    shown = world.home.run("show", world.home.json("ls", "--limit", "1")["runs"][0]["run_id"]).stdout
    assert "completed" in shown


def test_a_line_of_5_mb_is_read(said: Callable[..., dict[str, object]]) -> None:
    found = said("long_line", "print('x' * 5_000_000)", ", max_output=8 * 1024 * 1024")
    # The daemon's own cap is 4 MiB, so the rest is counted.
    assert found["sizes"] == [4 * 1024 * 1024, 0]
    assert found["dropped"] == [5_000_001 - 4 * 1024 * 1024, 0]


def test_10_mb_to_stderr_alone_do_not_hold_up_the_step(said: Callable[..., dict[str, object]]) -> None:
    found = said("stderr_only", "import sys\nsys.stderr.write('e' * 10_000_000)")
    assert found["sizes"] == [0, 4 * 1024 * 1024]
    assert found["dropped"] == [0, 10_000_000 - 4 * 1024 * 1024]


# --- memory ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    config = f"runner_memory_bytes = {256 * 1024 * 1024}\nmax_output_bytes = {16 * 1024 * 1024}\n"
    with serving(tmp_path_factory.mktemp("limited"), config) as world:
        yield world
        world.check()


def test_a_step_that_needs_more_memory_than_the_limit_fails_and_says_so(limited: World) -> None:
    limited.home.workflow(
        "greedy",
        """
flow = Workflow("greedy")

@flow.compute
def greedy(ctx):
    return len(bytearray(1024 * 1024 * 1024))

@flow.compute
def rescue(ctx):
    return ctx.results[greedy].error.message

flow.graph(greedy.on("failed") >> rescue)
""",
    )
    message = limited.output(limited.start("greedy"))
    assert "'greedy'" in message
    assert "268,435,456" in message


def test_a_command_is_under_the_memory_limit_too(limited: World) -> None:
    limited.home.workflow(
        "greedy_command",
        """
import sys

flow = Workflow("greedy_command")

@flow.shell(effect=idempotent("x"), ok_exit_codes=(0, 3))
def greedy(ctx):
    return [sys.executable, "-c", '''
import sys
try:
    bytearray(1024 * 1024 * 1024)
except MemoryError:
    sys.exit(3)
''']

@flow.compute
def seen(ctx):
    return ctx[greedy].exit_code

flow.graph(greedy >> seen)
""",
    )
    assert limited.output(limited.start("greedy_command")) == 3


def test_captured_output_above_4_mib_is_kept_where_the_configuration_allows_it(limited: World) -> None:
    text = PRINTS.format(
        name="whole_line", code="print('x' * 5_000_000)", options=", max_output=8 * 1024 * 1024"
    )
    limited.home.workflow("whole_line", text)
    found = limited.output(limited.start("whole_line"))
    assert found["sizes"] == [5_000_001, 0]
    assert found["dropped"] == [0, 0]
