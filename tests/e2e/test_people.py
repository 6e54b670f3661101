"""Questions, answers and terminals (P1, P6, `pwf run` in a terminal)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pexpect
import pytest

from pwf.protocol.operations import RequestListPayload
from pwf.protocol.views import EffectView
from tests.e2e.home import wait_for
from tests.e2e.world import PATIENCE_S, World, lines

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

GATE = """
from pathlib import Path

flow = Workflow("gate")

@flow.compute
def plan(ctx):
    return "plan"

@flow.action(effect=manual("deploy"))
def deploy(ctx):
    with open(ctx.input, "a") as file:
        file.write(ctx.effect_key + "\\n")
    return ctx.visit

@flow.checkpoint(returns=Literal["revise", "approve"])
def gate(ctx):
    return f"deployment {ctx[deploy]}: good?"

@flow.compute
def done(ctx):
    return ctx[deploy]

flow.graph(plan >> deploy >> gate, gate.switch(revise=deploy, approve=done))
"""


def test_an_effect_before_a_gate_that_says_revise_three_times_ran_exactly_four_times(world: World) -> None:
    world.home.workflow("gate", "from typing import Literal\n" + GATE)
    journal = world.folder("gate") / "effects"
    run_id = world.start("gate", str(journal))

    for answer in ("revise", "revise", "revise", "approve"):
        question = world.question(run_id)
        said = world.home.run("answer", question.request_id[:8], f'"{answer}"').stdout
        assert "answered" in said
        if answer != "approve":
            wait_for(lambda past=question: _asked_anew(world, run_id, past.request_id), PATIENCE_S)  # type: ignore[misc]

    assert world.output(run_id) == 4
    assert lines(journal) == [f"{run_id}:deploy:{visit}" for visit in (1, 2, 3, 4)]
    statuses = world.steps(run_id)
    assert statuses[0] == ("plan", "completed")
    assert [node for node, _ in statuses].count("plan") == 1
    assert {status for _, status in statuses} == {"completed"}
    assert [(effect.visit, effect.status, effect.attempts) for effect in _by_visit(world, run_id)] == [
        (visit, "applied", 1) for visit in (1, 2, 3, 4)
    ]


def _by_visit(world: World, run_id: str) -> list[EffectView]:
    return sorted(world.view(run_id).effects, key=lambda effect: effect.visit)


def _asked_anew(world: World, run_id: str, past: str) -> bool:
    open_now = world.client.call("request.list", RequestListPayload()).requests
    return any(request.run_id == run_id and request.request_id != past for request in open_now)


def test_an_answer_survives_a_killed_daemon_and_a_second_one_learns_who_won(world: World) -> None:
    world.home.workflow("gate", "from typing import Literal\n" + GATE)
    run_id = world.start("gate", str(world.folder("gate2") / "effects"))
    question = world.question(run_id)
    world.home.run("answer", question.request_id, '"approve"')
    world.kill_daemon()
    assert world.output(run_id) == 1
    repeated = world.home.run("answer", question.request_id, '"approve"')
    assert "already answered" in repeated.stdout
    late = world.home.run("answer", question.request_id, '"revise"', code=4)
    assert "answered" in late.stderr


def test_an_answer_of_the_wrong_type_is_refused_with_its_place_and_the_question_stays_open(
    world: World,
) -> None:
    world.home.workflow("gate", "from typing import Literal\n" + GATE)
    run_id = world.start("gate", str(world.folder("gate3") / "effects"))
    question = world.question(run_id)
    refused = world.home.run("answer", question.request_id, '"perhaps"', code=2)
    assert "perhaps" in refused.stderr
    assert "approve" in refused.stderr
    assert world.question(run_id).request_id == question.request_id


ASKS = """
flow = Workflow("asks")

@flow.checkpoint
def ask(ctx):
    return ctx.input
"""


def test_the_list_of_questions_begins_with_the_oldest_and_says_that_they_wait_for_ever(world: World) -> None:
    world.home.workflow("asks", ASKS)
    runs = []
    for number in range(3):
        runs.append(world.start("asks", f"question {number}"))
        world.question(runs[-1])

    listed = [request for request in world.home.json("requests")["requests"] if request["run_id"] in runs]
    assert [request["run_id"] for request in listed] == runs
    assert all(request.get("deadline_ms") is None for request in listed)
    shown = world.home.run("requests").stdout
    assert shown.index("question 0") < shown.index("question 1") < shown.index("question 2")
    assert shown.count("for ever") >= 3
    status = world.home.json("status")
    assert status["requests_open"] == 3
    assert status["request_oldest_ms"] >= 0
    assert "the oldest for" in world.home.run("status").stdout
    assert "for ever" in world.home.run("explain", runs[0]).stdout


def test_every_other_wait_says_when_it_ends(world: World) -> None:
    world.home.workflow(
        "naps",
        """
flow = Workflow("naps")

@flow.wait
def nap(ctx):
    return hours(2)
""",
    )
    run_id = world.start("naps")
    world.until(run_id, "due_later")
    explained = world.home.json("explain", run_id)["explanation"]
    assert explained["changes_at_ms"] > 0
    assert "in 2h" in world.home.run("ls").stdout or "in 1h" in world.home.run("ls").stdout


def test_a_cancelled_run_leaves_the_list_of_questions(world: World) -> None:
    world.home.workflow("asks", ASKS)
    run_id = world.start("asks", "never mind")
    question = world.question(run_id)
    world.home.run("cancel", run_id, "--reason", "not needed")
    assert run_id not in world.home.run("requests").stdout
    refused = world.home.run("answer", question.request_id, "1", code=4)
    assert "cancelled" in refused.stderr


# --- in a terminal --------------------------------------------------------------------------------------------


@pytest.fixture
def terminal(world: World) -> Iterator[Any]:
    """`terminal("run", "x")` types a command in a terminal of its own."""
    opened: list[pexpect.spawn] = []

    def open_terminal(*words: str) -> pexpect.spawn:
        spawned = pexpect.spawn(
            sys.executable,
            ["-m", "pwf.cli.main", *words],
            cwd=str(world.home.project),
            env={**world.home.environment, "TERM": "xterm-256color"},
            encoding="utf-8",
            timeout=PATIENCE_S,
            dimensions=(40, 120),
        )
        opened.append(spawned)
        return spawned

    yield open_terminal
    for spawned in opened:
        spawned.close(force=True)


NAP = """
import time
from pathlib import Path

flow = Workflow("long")

@flow.action(effect=idempotent("nap"))
def nap(ctx):
    while not Path(ctx.input).exists():
        time.sleep(0.01)
    return "slept"
"""


def test_ctrl_c_leaves_the_run_going_and_says_how_to_come_back(world: World, terminal: Any) -> None:
    world.home.workflow("long", NAP)
    gate = world.folder("long") / "open"
    screen = terminal("run", "long", "--input", f'"{gate}"', "--id", "long-run")
    screen.expect("nap")
    world.until("long-run", "executing")

    screen.sendintr()
    screen.expect("the run goes on")
    screen.expect("pwf watch long-run")
    screen.expect(pexpect.EOF)
    screen.close()

    assert screen.exitstatus == 130
    assert world.why("long-run") == "executing"
    again = terminal("watch", "long-run")
    again.expect("nap")
    gate.touch()
    again.expect("completed")
    again.expect(pexpect.EOF)
    again.close()
    assert again.exitstatus == 0
    assert world.steps("long-run") == [("nap", "completed")]


def test_a_checkpoint_is_asked_on_the_spot_and_a_wrong_answer_is_asked_again(
    world: World, terminal: Any
) -> None:
    world.home.workflow("gate", "from typing import Literal\n" + GATE)
    journal = world.folder("gate4") / "effects"
    screen = terminal("run", "gate", "--input", f'"{journal}"', "--id", "asked")
    screen.expect("deployment 1: good\\?")
    screen.expect("answer> ")
    screen.sendline("perhaps")
    screen.expect("approve")
    screen.expect("answer> ")
    screen.sendline("revise")
    screen.expect("deployment 2: good\\?")
    screen.expect("answer> ")
    screen.sendline("approve")
    screen.expect("completed")
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.exitstatus == 0
    assert world.output("asked") == 2


def test_a_question_that_is_answered_elsewhere_is_let_go_in_the_terminal(world: World, terminal: Any) -> None:
    world.home.workflow("asks", ASKS)
    screen = terminal("run", "asks", "--input", '"who is first?"', "--id", "elsewhere")
    screen.expect("answer> ")
    world.home.run("answer", "run:elsewhere", '"me"')
    screen.expect("settled elsewhere")
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.exitstatus == 0
    assert world.output("elsewhere") == "me"


def test_an_empty_answer_leaves_the_question_open_and_ctrl_c_leaves_the_run_waiting(
    world: World, terminal: Any
) -> None:
    world.home.workflow("asks", ASKS)
    screen = terminal("run", "asks", "--input", '"later?"', "--id", "left-open")
    screen.expect("answer> ")
    screen.sendline("")
    screen.expect("left open")
    screen.sendintr()
    screen.expect("the run goes on")
    screen.expect(pexpect.EOF)
    assert world.why("left-open") == "request_open"


def test_a_terminal_that_watches_sees_a_killed_daemon_as_a_pause(world: World, terminal: Any) -> None:
    world.home.workflow("asks", ASKS)
    screen = terminal("run", "asks", "--input", '"still there?"', "--id", "survivor")
    screen.expect("answer> ")
    world.kill_daemon()
    wait_for(
        lambda: world.home.run("status", code=None).returncode == 0, PATIENCE_S
    )  # the terminal started it
    screen.sendline('"yes"')
    screen.expect("completed")
    screen.expect(pexpect.EOF)
    assert world.output("survivor") == "yes"


def test_a_followed_history_has_each_revision_once_also_over_a_killed_daemon(world: World) -> None:
    world.home.workflow("asks", ASKS)
    run_id = world.start("asks", "followed")
    world.question(run_id)
    followed = world.home.spawn("events", run_id, "--follow", "--json", stderr=subprocess.DEVNULL)
    assert followed.stdout is not None
    first = followed.stdout.readline()  # it follows by now
    world.kill_daemon()
    world.answer(run_id, 1)
    world.finish(run_id)
    rest = followed.stdout.read()
    assert followed.wait(PATIENCE_S) == 0
    seen = [json.loads(line)["revision"] for line in (first + rest).splitlines()]
    assert seen == [event.revision for event in world.events(run_id)]
    assert seen == list(range(1, len(seen) + 1))
    followed.stdout.close()


def test_wait_tells_by_its_exit_code_how_runs_ended(world: World) -> None:
    world.home.workflow("asks", ASKS)
    runs = [world.start("asks", number) for number in range(3)]
    assert world.home.run("wait", runs[0], "--until", "parked", code=7)
    assert world.home.run("wait", runs[0], "--timeout", "100ms", code=9)
    world.answer(runs[0], 1)
    assert world.home.run("wait", runs[0], code=0)
    world.cancel(runs[1])
    assert world.home.run("wait", *runs[:2], code=6)
