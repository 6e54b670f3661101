"""Workflows that are wrong each in their own way: the lab says what is wrong, where, and after which crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from pwf.cli import exits
from tests.crashlab.conftest import Lab

pytestmark = pytest.mark.rest  # real processes, a second or more each

COUNTS_IN_A_COMPUTE = """
flow = Workflow("flow")

@flow.compute
def tally(ctx):
    with open(ctx.input["file"], "a") as file:
        file.write("counted\\n")
    return 1
"""


def test_a_compute_that_writes_a_file_is_refused_with_stand_ins(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "tally"
    found = lab(COUNTS_IN_A_COMPUTE, "--set", f"file={file}")
    assert found.code == exits.NO
    assert f"writes {file}" in found.findings["touches_outside", "tally"]["message"]
    assert not file.exists()


@pytest.mark.rest
def test_a_compute_that_writes_a_file_is_caught_by_what_a_crash_leaves_outside(lab: Lab) -> None:
    found = lab(COUNTS_IN_A_COMPUTE, "--effects", "real", "--set", "file={scratch}/tally")
    assert found.code == exits.NO
    differs = found.findings["outside_differs", "tally"]
    assert differs["message"] == "tally has 2 lines instead of 1"
    assert "the runner was killed after 'tally' had run, before anybody knew" in differs["after"]


def test_an_effect_that_is_called_idempotent_and_appends_is_caught(lab: Lab) -> None:
    found = lab(
        """
flow = Workflow("flow")

@flow.action(effect=idempotent("mail"))
def send(ctx):
    folder = Path(ctx.input)
    with open(folder / "sent", "a") as file:
        file.write("mail\\n")
    (folder / f"letter-{os.urandom(4).hex()}").touch()
""",
        "--effects",
        "real",
        "--input",
        '"{scratch}"',
    )
    assert found.code == exits.NO
    messages = [one["message"] for one in found.report["findings"]]
    assert "sent has 2 lines instead of 1" in messages
    assert any("1 more files: letter-" in message for message in messages)


@pytest.mark.rest
def test_a_manual_effect_without_observe_needs_a_person_and_that_is_said(lab: Lab) -> None:
    found = lab(
        """
flow = Workflow("flow")

@flow.action(effect=manual("payment"))
def pay(ctx) -> int:
    raise AssertionError("a stand-in takes its place")
"""
    )
    assert found.code == exits.NEEDS_PERSON
    assert found.report["verdict"] == "needs_person"
    needs = found.findings["needs_person", "pay"]
    assert "declares no observe" in needs["message"]
    assert "observe=" in needs["hint"]
    assert found.step("pay")["needs_person"] > 0
    assert found.step("pay")["effect_again"] == 0


LIAR = """
flow = Workflow("flow")

@flow.action(effect=manual("payment", observe=lambda ctx: {answer}))
def pay(ctx) -> int:
    with open(Path(ctx.input) / "paid", "a") as file:
        file.write("1\\n")
    return 1
"""


def test_an_observe_that_denies_what_happened_lets_it_happen_twice(lab: Lab) -> None:
    words = ("--effects", "real", "--input", '"{scratch}"')
    found = lab(LIAR.format(answer="not_applied()"), *words)
    assert found.code == exits.NO
    assert "would happen 2 times" in found.findings["effect_repeated", "pay"]["message"]
    assert found.findings["outside_differs", "pay"]["message"] == "paid has 2 lines instead of 1"


@pytest.mark.rest
def test_an_observe_that_affirms_what_never_happened_loses_it(lab: Lab) -> None:
    words = ("--effects", "real", "--input", '"{scratch}"')
    found = lab(LIAR.format(answer="applied(1)"), *words)
    assert found.code == exits.NO
    lost = found.findings["effect_lost", "pay"]
    assert "never happened, and counts as applied" in lost["message"]
    assert "the runner was killed before 'pay' ran" in lost["after"]


@pytest.mark.rest
def test_an_answer_that_no_case_takes_is_a_lost_decision(lab: Lab) -> None:
    text = """
flow = Workflow("flow")

@flow.checkpoint{returns}
def ask(ctx):
    return "ship it?"

@flow.compute
def yes(ctx):
    return 1

@flow.compute
def no(ctx):
    return 2

flow.graph(ask.switch(yes=yes, no=no))
"""
    found = lab(text.format(returns=""), "--crashes", "4")
    assert found.code == exits.NO
    lost = found.findings["decision_lost", "ask"]
    assert "is accepted, and ends the run" in lost["message"]
    assert "returns=" in lost["hint"]
    found = lab(text.format(returns='(returns=Literal["yes", "no"])'), "--crashes", "4")
    assert found.code == exits.OK
    assert [path["nodes"] for path in found.report["paths"]] == [["ask", "yes"], ["ask", "no"]]


@pytest.mark.rest
def test_what_a_step_keeps_in_a_module_is_lost_with_its_process(lab: Lab) -> None:
    found = lab(
        """
flow = Workflow("flow")
cache = {}

@flow.compute
def load(ctx):
    cache["price"] = 5
    return "loaded"

@flow.compute
def use(ctx):
    return cache.get("price")

flow.graph(load >> use)
"""
    )
    assert found.code == exits.NO
    differs = found.findings["output_differs", "use"]
    assert "'use' gives null after a crash, and 5 without" in differs["message"]
    assert "ctx[node]" in differs["hint"]


@pytest.mark.rest
def test_a_compute_that_depends_on_more_than_ctx_varies(lab: Lab) -> None:
    found = lab(
        """
import random
flow = Workflow("flow")
calls = []

@flow.compute
def count(ctx):
    calls.append(1)
    return len(calls)

@flow.compute
def draw(ctx):
    return random.random()

flow.graph(count >> draw)
""",
        "--crashes",
        "2",
    )
    assert found.code == exits.NO
    assert "'count' gives 1 and, called again, 2" in found.findings["varies", "count"]["message"]
    assert ("varies", "draw") in found.findings


@pytest.mark.rest
def test_a_run_that_fails_without_any_crash_says_which_output_to_give(lab: Lab) -> None:
    text = """
flow = Workflow("flow")

@flow.shell(effect=idempotent("count"), parse="lines")
def count(ctx):
    return ["wc", "-l"]

@flow.compute
def first(ctx):
    return int(ctx[count].parsed[0])

flow.graph(count >> first)
"""
    found = lab(text, "--crashes", "2")
    assert found.code == exits.NO
    failed = found.findings["failed_without_crash", "first"]
    assert "IndexError" in failed["message"] or "index out of range" in failed["message"]
    assert "--output count=JSON" in failed["hint"]
    found = lab(text, "--crashes", "2", "--output", 'count={"stdout": "3\\n"}')
    assert found.code == exits.OK


APPENDS_TWICE = """
flow = Workflow("flow")

def append(ctx):
    with open(Path(ctx.input) / "log", "a") as file:
        file.write("x\\n")
    return 1

one = flow.action(effect=idempotent("one"), id="one", retry=Retry(1, backoff=seconds(0)))(append)
two = flow.action(effect=idempotent("two"), id="two")(append)
flow.graph(one >> two)
"""


@pytest.mark.rest
def test_one_fault_is_told_once_however_many_crashes_and_steps_show_it(lab: Lab) -> None:
    found = lab(APPENDS_TWICE, "--effects", "real", "--input", '"{scratch}"', "--crashes", "16")
    assert found.code == exits.NO
    (one,) = found.report["findings"]
    assert (one["code"], one["crashes"] > 2) == ("outside_differs", True)
    assert found.report["stood_in"] == []
