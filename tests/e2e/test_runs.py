"""Whole runs with real processes: kills, cancel, edited code, wrong input (R3, R5, O1, C1, P6)."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.home import Home, wait_for

CHAIN = """
import os, time
flow = Workflow("chain")

def mark(ctx, name):
    with open(os.path.join({folder!r}, "marks"), "a") as file:
        file.write(name + "\\n")
    # Long enough to be killed in, and only the first time.
    if name == {victim!r} and not os.path.exists(os.path.join({folder!r}, "killed")):
        time.sleep(60)
    return name

@flow.action(effect=idempotent("mark"))
def a(ctx):
    return mark(ctx, "a")

@flow.action(effect=idempotent("mark"))
def b(ctx):
    return mark(ctx, "b")

@flow.action(effect=idempotent("mark"))
def c(ctx):
    return mark(ctx, "c")

@flow.compute
def end(ctx):
    return [ctx[a], ctx[b], ctx[c]]

flow.graph(a >> b, b >> c, c >> end)
"""

ASK = """
flow = Workflow("ask")
yes_or_no = {{"type": "object", "properties": {{"ok": {{"type": "boolean"}}}}, "required": ["ok"]}}

@flow.checkpoint(returns=yes_or_no)
def gate(ctx):
    return "Go on?"

@flow.compute
def after(ctx):
    return {{"version": {version}, "answer": ctx[gate]}}

flow.graph(gate >> after)
"""

SHELLS = """
flow = Workflow("shells")

@flow.shell(effect=idempotent("sleep"))
def work(ctx):
    return ["sh", "-c", "sh -c 'setsid sleep 9999 & sleep 9999'"]
"""

TYPED = """
import msgspec

class Release(msgspec.Struct):
    version: str
    parts: list[int] = []

flow = Workflow("typed", input=Release)

@flow.compute
def show(ctx):
    return ctx.input.version
"""


@pytest.mark.serial
@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_runner_that_is_killed_costs_only_the_step_it_was_in(
    home: Home, tmp_path: Path, victim: str
) -> None:
    home.workflow("chain", CHAIN.format(folder=str(tmp_path), victim=victim))
    marks = tmp_path / "marks"
    run_id = home.start("chain")
    wait_for(lambda: marks.exists() and marks.read_text().split()[-1:] == [victim], 20)
    (runner,) = home.runners(run_id)

    (tmp_path / "killed").touch()
    os.kill(runner, signal.SIGKILL)
    killed = time.monotonic()
    home.wait_status(run_id, "completed")

    assert time.monotonic() - killed < 3
    names = ["a", "b", "c"]
    at = names.index(victim)
    assert marks.read_text().split() == [*names[: at + 1], *names[at:]]
    wanted = [(name, "completed") for name in [*names, "end"]]
    wanted.insert(at, (victim, "interrupted"))
    assert home.steps(run_id) == wanted


def test_capacity_of_a_killed_runner_is_free_at_once(home: Home) -> None:
    home.config("max_runners = 1\n")
    home.workflow("shells", SHELLS)
    home.workflow("typed", TYPED)
    held = home.start("shells")
    home.wait_status(held, "running")
    waiting = home.start("typed", "--set", "version=a")
    assert home.status(waiting) == "queued"
    assert "capacity" in home.run("explain", waiting).stdout

    home.run("cancel", held)

    home.wait_status(waiting, "completed", seconds=5)


@pytest.mark.parametrize("how", ["cancel", "daemon killed, then cancel"])
def test_what_a_step_started_through_two_shells_is_dead_after_cancel(home: Home, how: str) -> None:
    home.workflow("shells", SHELLS)
    run_id = home.start("shells")
    wait_for(lambda: len(_sleepers(home, run_id)) >= 2, 20)
    sleepers = _sleepers(home, run_id)

    if how != "cancel":
        home.kill_daemon()
    home.run("cancel", run_id)

    wait_for(lambda: not any(psutil.pid_exists(pid) and _executes(pid) for pid in sleepers), 10)
    assert home.status(run_id) == "cancelled"


def _sleepers(home: Home, run_id: str) -> list[int]:
    found = []
    for pid in home.runners(run_id):
        try:
            if psutil.Process(pid).cmdline()[:1] == ["sleep"]:
                found.append(pid)
        except psutil.Error:
            continue
    return found


def _executes(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def test_an_answer_goes_on_with_the_code_that_the_run_started_with(home: Home) -> None:
    home.workflow("ask", ASK.format(version=1))
    home.workflow("other", TYPED)
    run_id = home.start("ask")
    home.wait_status(run_id, "waiting")
    home.workflow("other", TYPED + "\n# edited\n")
    home.workflow("ask", ASK.format(version=2))
    home.run("stop")
    home.run("start")

    assert home.json("show", run_id)["newer_code"] is True
    (request,) = home.json("requests")["requests"]
    home.run("answer", request["request_id"], '{"ok": true}')
    home.wait_status(run_id, "completed")

    assert json.loads(home.run("show", run_id, "--output").stdout) == {"version": 1, "answer": {"ok": True}}
    restarted = home.json("restart", run_id)["run_id"]
    home.wait_status(restarted, "waiting")
    assert home.json("restart", run_id)["run_id"] == restarted
    home.run("cancel", restarted)
    refused = home.run("restart", run_id, code=4)
    assert f"was restarted as {restarted}, which has ended (cancelled" in refused.stderr
    assert f"pwf restart {restarted}" in refused.stderr


def test_a_wrong_answer_says_where_and_leaves_the_question_open(home: Home) -> None:
    home.workflow("ask", ASK.format(version=1))
    run_id = home.start("ask")
    home.wait_status(run_id, "waiting")

    refused = home.run("answer", f"run:{run_id}", '{"ok": "perhaps"}', code=2)

    assert "at $.ok" in refused.stderr
    assert home.status(run_id) == "waiting"
    home.run("answer", f"run:{run_id}", '{"ok": false}')
    home.wait_status(run_id, "completed")
    assert home.run("answer", f"run:{run_id}", '{"ok": false}', code=3).stderr


def test_two_different_answers_have_one_winner_and_the_other_learns_it(home: Home) -> None:
    home.workflow("ask", ASK.format(version=1))
    run_id = home.start("ask")
    home.wait_status(run_id, "waiting")
    (request,) = home.json("requests")["requests"]
    answers = [
        home.spawn("answer", request["request_id"], json.dumps({"ok": choice})) for choice in (True, False)
    ]
    outputs = [answer.communicate(timeout=60) for answer in answers]
    assert sorted(answer.returncode for answer in answers) == [0, 4], outputs
    assert any(b"was answered by" in err for _, err in outputs)
    home.wait_status(run_id, "completed")


@pytest.mark.parametrize(
    ("words", "text", "code", "told"),
    [
        (["typed", "--input", '{"version": 3}'], TYPED, 2, "at $.version"),
        (["typed", "--input", '{"version": "1", "parts": [1, "x"]}'], TYPED, 2, "at $.parts[1]"),
        (["typed", "--input", "{}"], TYPED, 2, "version"),
        (["typed", "--input", '{"version": NaN}'], TYPED, 2, ""),
        (["typed"], "def broken(:\n", 8, "typed.py:2"),
        (["typed"], "import no_such_module\n", 8, "no_such_module"),
        (["typed"], "1 / 0\n", 8, "typed.py:2"),
        (["typed"], 'flow = Workflow("x")\n', 8, ""),
        (["nowhere"], TYPED, 3, "nowhere"),
        (["typed", "--id", "not an id", "--set", "version=1"], TYPED, 2, "not an id"),
    ],
)
def test_wrong_input_gets_one_clear_error_and_leaves_no_trace(
    home: Home, words: list[str], text: str, code: int, told: str
) -> None:
    home.workflow("typed", text)

    refused = home.run("run", *words, "--detach", code=code)

    assert told in refused.stderr
    assert "Traceback" not in refused.stderr
    assert home.json("ls")["runs"] == []
    assert home.json("state", "status")["rows"]["runs_ever"] == 0


def test_an_id_that_exists_adopts_the_same_run_and_refuses_another(home: Home) -> None:
    home.workflow("typed", TYPED)
    home.run("run", "typed", "--id", "mine", "--set", "version=a")
    again = home.json("run", "typed", "--id", "mine", "--set", "version=a", "--detach")
    assert again["run_id"] == "mine"
    refused = home.run("run", "typed", "--id", "mine", "--set", "version=b", "--detach", code=4)
    assert "input" in refused.stderr
    assert len(home.json("ls")["runs"]) == 1


def test_a_key_starts_one_run_however_often_it_is_sent_even_when_the_file_is_broken_by_then(
    home: Home,
) -> None:
    home.workflow("typed", TYPED)
    first = home.start("typed", "--key", "k", "--set", "version=a")
    home.wait_status(first, "completed")
    assert home.start("typed", "--key", "k", "--set", "version=a") == first
    home.workflow("typed", "def broken(:\n")
    assert home.start("typed", "--key", "k", "--set", "version=a") == first
    home.workflow("typed", TYPED)
    home.run("run", "typed", "--key", "k", "--set", "version=b", "--detach", code=4)


def test_a_reference_to_no_run_or_to_several_is_told(home: Home) -> None:
    home.workflow("typed", TYPED)
    for name in ("same-1", "same-2"):
        home.run("run", "typed", "--id", name, "--set", "version=a")
    assert "same-1" in home.run("show", "same", code=3).stderr
    assert home.run("show", "nothing", code=3).stderr
    assert home.json("show", "@last")["summary"]["run_id"] == "same-2"
    home.run("show", "@last-failed", code=3)
