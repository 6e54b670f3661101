"""What steps print: kept for each attempt, bounded, shown while it goes on, and nowhere else."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.home import Home, wait_for
from tests.e2e.world import World, serving

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

LIMIT = 65_536

LOUD = """
import ctypes, os, subprocess, sys, time

print("while it loads")
subprocess.run("echo a child while it loads", shell=True)
flow = Workflow("loud")

@flow.compute
def says(ctx):
    print("one")
    subprocess.run("echo two; echo three >&2", shell=True)
    print("four")

@flow.compute
def quiet(ctx):
    pass

@flow.action(effect=idempotent("flood"))
def floods(ctx):
    subprocess.run(["sh", "-c", "yes | head -c 30000000"])

@flow.shell(effect=idempotent("shell"))
def shell(ctx):
    return ["sh", "-c", "echo from the shell; echo and its stderr >&2"]

@flow.action(effect=idempotent("async"))
async def in_a_loop(ctx):
    print("in a loop")

@flow.compute
def dies(ctx):
    print("last words")
    subprocess.Popen(["sleep", "9999"], start_new_session=True)
    os.write(2, b"fatal")
    os._exit(3)

@flow.compute(timeout=seconds(0.3))
def hangs(ctx):
    print("before it hangs")
    time.sleep(60)

@flow.compute
def holds_the_interpreter(ctx):
    ctypes.PyDLL(None).write(1, b"h" * 200_000, 200_000)

flow.graph(
    says >> quiet >> floods >> shell >> in_a_loop >> dies,
    dies.on("failed") >> hangs, hangs.on("timed_out") >> holds_the_interpreter,
)
"""

BROKEN = """
print("printed before it broke")
raise ValueError("broken")
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory):
    """A home that keeps little, with one run that prints in every way."""
    with serving(tmp_path_factory.mktemp("printed"), f"max_output_bytes = {LIMIT}\n") as world:
        world.home.workflow("loud", LOUD)
        world.finish(world.start("loud", run_id="loud"))
        yield world
        world.check()


def printed(world: World, node: str) -> dict[str, bytes]:
    """The files of a node's newest attempt, by stream."""
    attempt = [step.attempt for step in world.attempts("loud") if step.node == node][-1]
    folder = world.places.output / "loud"
    return {path.suffix[1:]: path.read_bytes() for path in sorted(folder.glob(f"{attempt}.*"))}


def test_a_step_its_children_and_its_loop_are_kept_in_their_order_by_stream(small: World) -> None:
    assert printed(small, "says") == {"out": b"one\ntwo\nfour\n", "err": b"three\n"}
    assert printed(small, "in_a_loop") == {"out": b"in a loop\n"}
    assert printed(small, "shell") == {"out": b"from the shell\n", "err": b"and its stderr\n"}
    assert printed(small, "quiet") == {}


def test_a_child_that_floods_is_bounded_and_the_file_says_so(small: World) -> None:
    data = printed(small, "floods")["out"]
    assert len(data) <= LIMIT
    assert b"more bytes came, and are not kept: the limit is 65,536 bytes" in data[-128:]


def test_the_last_words_of_a_step_that_took_its_process_with_it_or_was_ended_are_kept(small: World) -> None:
    assert printed(small, "dies") == {"out": b"last words\n", "err": b"fatal"}
    assert printed(small, "hangs") == {"out": b"before it hangs\n"}


def test_what_outlives_a_step_that_took_its_process_with_it_is_ended_and_listed(small: World) -> None:
    died = [step for step in small.attempts("loud") if step.node == "dies"]
    assert [[one.command for one in step.survivors] for step in died] == [["sleep 9999"]] * 3
    pids = [one.pid for step in died for one in step.survivors]
    assert not any(map(psutil.pid_exists, pids))
    assert f"which was ended: sleep 9999 (pid {pids[0]})" in small.home.run("show", "loud").stdout


def test_a_step_that_holds_the_interpreter_while_it_prints_is_not_stuck(small: World) -> None:
    assert printed(small, "holds_the_interpreter")["out"].startswith(b"h" * (LIMIT - 128))


def test_every_attempt_says_how_much_is_kept_and_a_failed_one_is_pointed_to(small: World) -> None:
    sizes = {step.node: step.printed_bytes for step in small.attempts("loud")}
    assert {
        node: size for node, size in sizes.items() if node not in ("floods", "holds_the_interpreter")
    } == {
        "says": 19,
        "quiet": 0,
        "shell": 30,
        "in_a_loop": 10,
        "dies": 16,
        "hangs": 16,
    }
    newest = [step.attempt for step in small.attempts("loud") if step.node == "hangs"][-1]
    assert f"pwf logs loud --attempt {newest}" in small.home.run("show", "loud").stdout


def test_logs_shows_them_and_names_what_a_run_has_not(small: World) -> None:
    shown = small.home.run("logs", "loud", "says").stdout
    assert shown == "── says, attempt 1: stdout\none\ntwo\nfour\n── says, attempt 1: stderr\nthree\n"
    refused = small.home.run("logs", "loud", "nope", code=3)
    assert "has no node 'nope'" in refused.stderr
    assert "its nodes are: says, quiet" in refused.stderr


def test_the_daemons_log_holds_its_own_records_alone(small: World) -> None:
    for line in (small.home.home / "daemon.log").read_text().splitlines():
        assert json.loads(line)["event"]


def test_what_is_printed_while_a_file_loads_goes_with_its_error(small: World) -> None:
    small.home.workflow("broken", BROKEN)
    refused = small.home.run("run", "broken", code=8)
    assert "ValueError: broken" in refused.stderr
    assert "before that it printed:\nprinted before it broke" in refused.stderr


def test_files_go_with_their_run_and_those_that_have_none_are_swept(small: World) -> None:
    output = small.places.output
    (output / "nobody").mkdir()
    (output / "nobody" / "1.out").write_text("x")
    small.home.workflow("short", 'flow = Workflow("short")\n@flow.compute\ndef a(ctx):\n    print("x")\n')
    small.finish(small.start("short", run_id="short"))
    assert (output / "short" / "1.out").exists()
    small.home.run("state", "prune", "--before", "0s")
    assert [path.name for path in output.iterdir() if not path.name.startswith(".")] == []


def test_a_home_that_another_life_left_shows_none_of_its_output(home: Home, tmp_path: Path) -> None:
    home.workflow("short", 'flow = Workflow("short")\n@flow.compute\ndef a(ctx):\n    print("x")\n')
    home.run("run", "short", "--id", "short")
    assert home.run("logs", "short").stdout.endswith("x\n")
    made = tmp_path / "backup.db"
    home.run("state", "backup", str(made))
    home.run("stop")
    for path in home.home.glob("pwf.db*"):
        path.unlink()
    home.run("state", "restore", str(made))
    refused = home.run("logs", "short", code=3)
    assert "2 bytes that its steps printed are not here any more" in refused.stderr
    wait_for(lambda: not list((home.home / "output").glob("short")), 10)


def test_what_a_daemons_process_says_when_it_crashes_is_a_record_of_the_next_ones_log(home: Home) -> None:
    home.run("start")
    os.kill(home.pid, signal.SIGABRT)
    wait_for(lambda: "Fatal Python error" in (home.home / "daemon.err").read_text(), 10)
    home.run("start")
    (said,) = [line for line in home.log() if line["event"] == "daemon.last_words"]
    assert "Fatal Python error: Aborted" in said["text"]
    assert (home.home / "daemon.err").read_text() == ""
    assert all(json.loads(line) for line in (home.home / "daemon.log").read_text().splitlines())


def test_output_is_shown_while_its_step_runs(world: World) -> None:
    go = world.folder("printed") / "go"
    world.home.workflow(
        "waits",
        f"""
import os, time
flow = Workflow("waits")
@flow.compute
def a(ctx):
    print("so far", flush=True)
    while not os.path.exists({str(go)!r}):
        time.sleep(0.01)
    print("done")
""",
    )
    run_id = world.start("waits")
    wait_for(lambda: "so far" in world.home.run("logs", run_id).stdout, 20)
    go.touch()
    world.finish(run_id)
    assert world.home.run("logs", run_id, "--follow").stdout.endswith("so far\ndone\n")
