"""The lab itself: the examples pass, real homes never see a stand-in, and it leaves nothing behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from pwf.cli import exits
from pwf.cli.main import main
from pwf.config import parse_config
from pwf.crashlab.drive import with_scratch
from pwf.crashlab.experiments import Path as LabPath
from pwf.crashlab.experiments import Seen, Traced, crashes, paths
from pwf.crashlab.home import _toml
from pwf.crashlab.observe import LabRun
from pwf.crashlab.report import Findings
from pwf.protocol.crashlab import LAB_VARIABLE, PART_PHASES, LabFolder, LabPlan, encode_plan
from pwf.protocol.graph import Case, EffectSpec, NodeSpec, Way, WorkflowGraph
from pwf.protocol.runner import MARKER_VARIABLE, Launch, Value
from pwf.runner.lab.lab import lab_of
from tests.crashlab.conftest import Lab

GIVEN = """
from pwf import *
flow = Workflow("flow")

@flow.compute
def add(ctx):
    return 1

@flow.action(effect=idempotent("send"))
def send(ctx):
    return 1

@flow.checkpoint
def ask(ctx):
    return "?"

flow.graph(add >> send >> ask)
"""

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"


def processes_of(word: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if word in " ".join(process.environ().values()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.rest
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hello.py", ("--set", "name=Ada")),
        pytest.param("release.py", ("--set", "version=v1"), marks=pytest.mark.rest),
        pytest.param("repository_report.py", (), marks=pytest.mark.rest),
    ],
)
def test_the_examples_pass(
    name: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = main(["crashlab", str(EXAMPLES / name), *words, "--crashes", "12", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["findings"] == []
    assert code == exits.OK
    assert {path["status"] for path in report["paths"]} == {"completed"}
    assert min(report["runner_crashes"], report["daemon_crashes"]) > 0
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--answer", "nobody=1"), "has no node 'nobody'"),
        (("--output", "add=1"), "gives 'add' nothing: its kind is compute"),
        (("--effects", "real", "--output", "send=1"), "gives 'send' nothing: its kind is action"),
    ],
)
def test_what_is_given_to_a_node_that_takes_nothing_is_refused_with_those_that_do(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "flow.py"
    path.write_text(GIVEN)
    assert main(["crashlab", str(path), *words]) == exits.USAGE
    errors = capsys.readouterr().err
    assert said in errors
    assert "here: ask" in errors


@pytest.mark.rest
def test_without_an_input_the_smallest_one_is_made_from_its_type(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = lab(
        """
import msgspec

class Order(msgspec.Struct):
    item: str
    count: int
    kind: Literal["new", "old"]
    note: str = ""

flow = Workflow("flow", input=Order)

@flow.action(effect=manual("order", observe=lambda ctx: unknown()))
def order(ctx) -> int:
    raise AssertionError("never")
""",
        "--crashes",
        "2",
    )
    assert found.code == exits.OK
    assert found.report["input"] == {"item": "", "count": 0, "kind": "new"}
    assert processes_of(f"{tmp_path}/pwf-crashlab.") == []


@pytest.mark.rest
def test_loops_timers_answers_and_chosen_outputs_go_through_every_crash(lab: Lab) -> None:
    found = lab(
        """
flow = Workflow("flow")

@flow.wait
def nap(ctx):
    return days(30)

@flow.action(effect=manual("x", observe=lambda ctx: unknown()), retry=Retry(1, backoff=seconds(0.01)))
def work(ctx) -> Literal["more", "enough"]:
    raise AssertionError("never")

@flow.checkpoint(returns=bool)
def ask(ctx):
    return "once more?"

@flow.compute
def end(ctx):
    return ctx[work]

flow.graph(nap >> work, work.switch(more=ask, enough=end), ask.switch(cases={True: work, False: end}))
""",
        "--crashes",
        "40",
        "--output",
        'work="more"',
        "--output",
        'work="enough"',
        "--answer",
        "ask=true",
    )
    assert found.report["findings"] == []
    assert found.code == exits.OK
    assert found.report["paths"] == [
        {"status": "completed", "nodes": ["nap", "work", "ask", "end"], "answers": ["ask: true"]}
    ]
    assert {(step["node"], step["visit"]) for step in found.report["steps"]} >= {("work", 1), ("work", 2)}


@pytest.mark.rest
def test_an_agent_has_a_stand_in_that_submits_what_fits_in_every_crash(lab: Lab) -> None:
    found = lab(
        """
flow = Workflow("flow")

@flow.agent(returns=Literal["fix", "ship"], validate=lambda ctx, value: None)
def review(ctx):
    return f"Review it, for the {ctx.visit}. time."

@flow.compute
def end(ctx):
    return ctx[review]

flow.graph(review.switch(fix=review, ship=end))
""",
    )
    assert found.code == exits.OK, found.report
    answers = [path["answers"] for path in found.report["paths"]]
    assert sorted(answers) == [['review: "fix"', 'review: "ship"'], ['review: "ship"']]
    assert found.report["findings"] == []


@pytest.mark.rest
def test_a_runs_own_agent_has_a_stand_in_in_the_runner_which_is_killed_within_its_step(lab: Lab) -> None:
    found = lab(
        """
flow = Workflow("flow")

def judged(ctx, value):
    return None if value in ("fix", "ship") else "say which"

@flow.agent(returns=Literal["fix", "ship"], validate=judged)
def review(ctx):
    return f"Review it, for the {ctx.visit}. time."

@flow.agent(returns=assistant_message())
def tell(ctx):
    return "Tell it."

flow.graph(review.switch(fix=review, ship=tell))
""",
        "--headless",
        "--crashes",
        "40",
    )
    assert found.code == exits.OK, found.report
    assert found.report["findings"] == []
    assert [path["answers"] for path in found.report["paths"]] == [[], []]  # nobody was asked
    assert found.step("review")["crashes"] > 0
    assert found.report["runner_crashes"] > 5


@pytest.mark.rest
def test_a_decision_is_made_for_you_in_every_way_and_in_every_crash(lab: Lab) -> None:
    found = lab(
        """
flow = Workflow("flow")

@flow.decision(
    audience="operator",
    choices=[Choice("ship", "Ship it"), Choice("fix", "Fix first", text=Text("What must change?"))],
    timeout=None,
)
def approve(ctx):
    return ctx.present(f"Ship it, for the {ctx.visit}. time?")

@flow.compute
def end(ctx):
    return ctx[approve].choice

flow.graph(approve.switch(ship=end, fix=approve))
""",
    )
    assert found.code == exits.OK, found.report
    assert len(found.report["paths"]) == 2
    assert found.report["findings"] == []


# --- without processes ---


def launch(run_id: str) -> Launch:
    graph = WorkflowGraph(name="w", start="a", nodes=())
    return Launch(run_id=run_id, generation=1, graph=graph, input=Value(), node="a", visit=1, attempt=1)


def test_only_a_plan_that_names_the_runners_own_home_makes_a_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LabFolder(tmp_path)
    (tmp_path / "plans").mkdir()
    folder.plan("r1").write_bytes(encode_plan(LabPlan(home_id="scratchhome")))
    monkeypatch.setenv(MARKER_VARIABLE, "scratchhome:r1:1")
    monkeypatch.delenv(LAB_VARIABLE, raising=False)
    assert lab_of(launch("r1")) is None
    monkeypatch.setenv(LAB_VARIABLE, str(tmp_path))
    assert lab_of(launch("r1")) is not None
    assert lab_of(launch("r2")) is None
    monkeypatch.setenv(MARKER_VARIABLE, "realhome:r1:1")
    assert lab_of(launch("r1")) is None
    folder.plan("r1").write_bytes(b"{")
    assert lab_of(launch("r1")) is None


def node(id: str, kind: str, **facts: object) -> NodeSpec:
    return msgspec.convert({"id": id, "kind": kind, **facts}, NodeSpec, from_attributes=True)


ASK = node(
    "ask",
    "checkpoint",
    ways=(Way(outcome="completed", cases=(Case(value="a", target="do"), Case(value="b", target="do"))),),
)
DO = node("do", "action", effect=EffectSpec(mode="manual", type="x"))
GRAPH = WorkflowGraph(name="w", start="ask", nodes=(ASK, DO))


def test_each_case_is_a_path_and_choices_take_turns() -> None:
    found = paths(GRAPH, stand_ins=True, given={}, most=10)
    assert found.left_out == 0
    assert [[path.value("ask", visit) for visit in (1, 2, 3)] for path in found.tried] == [
        ["a", "b", "a"],
        ["b", "a", "b"],
    ]
    assert paths(GRAPH, stand_ins=True, given={}, most=1).left_out == 1


def test_what_the_user_gives_is_not_varied() -> None:
    found = paths(GRAPH, stand_ins=True, given={"ask": ("b", "a")}, most=10)
    assert len(found.tried) == 1
    assert [found.tried[0].value("ask", visit) for visit in (1, 2)] == ["b", "a"]


def test_a_path_does_not_repeat_the_crashes_of_an_earlier_one() -> None:
    seen = Seen()
    trace = [Traced("ask", 1, "checkpoint"), Traced("do", 1, "action")]
    first = list(crashes(LabPath(0, {}), trace, seen))
    other = [*trace, Traced("end", 1, "compute")]
    second = list(crashes(LabPath(1, {}), other, seen))
    assert len(first) == (6 + 2) + 6 + 2
    assert {point.node for crash in second if len(crash.points) == 1 for point in crash.points} == {"end"}


def test_there_are_crashes_around_each_effect_of_a_step_that_makes_several() -> None:
    trace = [Traced("do", 1, "action", parts=("one", "two"))]
    points = [crash.points[0] for crash in crashes(LabPath(0, {}), trace, Seen()) if len(crash.points) == 1]
    around = [(point.part, point.phase) for point in points if point.part]
    assert sorted(set(around)) == [(part, phase) for part in ("one", "two") for phase in sorted(PART_PHASES)]
    assert len(around) == 2 * len(set(around))  # of the runner, and of the daemon
    assert len({point.file_name for point in points}) == len(set(points))


ORDERS = """
flow = Workflow("orders", input=str)

@flow.action(effect=parts("order"))
def order(ctx) -> list[str]:
    shop = Path(ctx.input)

    def place(wanted, key):
        with open(shop / wanted, "a") as file:
            file.write(key + "\\n")
        return "placed " + wanted

    def look(wanted, key):
        return {look}

    return [ctx.effect(item, item, apply=place, observe=look) for item in ("tea", "milk")]
"""
TRUTH = 'applied("placed " + wanted) if (shop / wanted).exists() else not_applied()'


@pytest.mark.rest
def test_several_effects_of_a_step_happen_once_each_whatever_is_killed_around_them(lab: Lab) -> None:
    text = ORDERS.replace("{look}", TRUTH)
    given = 'order={"tea": "placed tea", "milk": "placed milk"}'
    for words in (
        ("--effects", "real", "--input", '"{scratch}"'),
        ("--input", '"/nowhere"', "--output", given),
    ):
        found = lab(text, *words, "--crashes", "40")
        assert (found.report["verdict"], found.findings) == ("passed", {})
        assert found.step("order")["crashes"] == 8 + 2 * 2 * 3


@pytest.mark.rest
def test_an_observer_of_one_of_several_effects_that_lies_is_named(lab: Lab) -> None:
    text = ORDERS.replace("{look}", "not_applied()")
    found = lab(text, "--effects", "real", "--input", '"{scratch}"', "--crashes", "40")
    assert "('tea')" in found.findings["effect_repeated", "order"]["message"]


def test_what_a_run_is_called_outside_differs_between_no_two_runs_of_the_lab() -> None:
    crash: Any = None
    texts = []
    for run_id, outside_name in (("lab-1", "lab-1.0123456789ab"), ("lab-20", "lab-20.zyxwvtsrqpnm")):
        run = LabRun(run_id, crash, Path("/scratch") / run_id)
        texts.append(run.plain(f"{outside_name}:pay:1 {run_id} {run.scratch}/x"))
    assert texts == ["RUN:pay:1 RUN /scratch/RUN/x"] * 2


def test_scratch_is_put_into_every_text_of_the_input() -> None:
    given = {"a": "{scratch}/x", "b": ["{scratch}", 1, None]}
    assert with_scratch(given, "/s") == {"a": "/s/x", "b": ["/s", 1, None]}


def test_the_same_finding_after_several_crashes_is_one() -> None:
    findings = Findings()
    for number in range(6):
        findings.add("person", "needs_person", "pay", "it waits", after=f"crash {number}")
    findings.add("fault", "varies", "draw", "it varies")
    assert [(one.code, one.crashes, len(one.after)) for one in findings.all()] == [
        ("varies", 0, 0),
        ("needs_person", 6, 4),
    ]
    assert findings.verdict == "faults"


@pytest.mark.rest
def test_where_stand_ins_took_over_the_verdict_says_what_was_not_run_and_what_real_effects_would_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".pwf").mkdir()
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "flow.py"
    path.write_text(
        """
from pwf import *
flow = Workflow("flow")

@flow.action(effect=idempotent("send"))
def send(ctx):
    return 1

@flow.action(effect=manual("pay", observe=lambda ctx: unknown()))
def pay(ctx):
    return 1

flow.graph(send >> pay)
"""
    )
    assert main(["crashlab", str(path), "--crashes", "2"]) == exits.OK
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == [
        "not run: stand-ins took over   send, pay; and observe of pay",
        "--effects real would show      whether what is declared idempotent is, and whether observe tells the truth",
        "passed, as far as was run: nothing is lost, and nothing is repeated blindly",
    ]
    assert main(["crashlab", str(path), "--crashes", "2", "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["stood_in"] == [
        {"node": "send", "mode": "idempotent", "observe": False},
        {"node": "pay", "mode": "manual", "observe": True},
    ]


READY_MADE = """
import subprocess
from pwf.effects.command import RunCommand
from pwf.effects.files import WriteFile
from pwf.effects.git import GitCommit

flow = Workflow("flow")

@flow.action(effect=idempotent("init"))
def init(ctx):
    subprocess.run(["git", "init", "--quiet", ctx.input], check=True)
    for name in ("name", "email"):
        subprocess.run(["git", "-C", ctx.input, "config", f"user.{name}", "a@example.org"], check=True)

@WriteFile.prepared("write")
def written(ctx):
    return WriteFile(path=Path(ctx.input) / "file", data="1")

@GitCommit.prepared("commit")
def change(ctx):
    return GitCommit(paths=["file"], message="one", repository=ctx.input)

write = flow.action(effect=written.effect, id="write")(lambda ctx: written.apply(ctx))
commit = flow.action(effect=change.effect, id="commit")(lambda ctx: change.apply(ctx))
flow.graph(init >> write >> commit)
"""


@pytest.mark.rest
def test_ready_made_effects_pass_with_real_effects(lab: Lab) -> None:
    found = lab(READY_MADE, "--effects", "real", "--input", '"{scratch}"', "--crashes", "16")
    told = {code: one for (code, _), one in found.findings.items() if code != "outside_differs"}
    assert not told, "a commit has its time in it, so that what is outside differs; nothing else does"


@pytest.mark.rest
def test_what_the_lab_notes_of_effects_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, file = tmp_path / "home", tmp_path / "flow.py"
    (home / "secrets").mkdir(parents=True)
    home.chmod(0o700)
    (home / "secrets" / "TOKEN").write_text("canary-0123456789")
    (home / "secrets" / "TOKEN").chmod(0o600)
    file.write_text(
        "from pwf import *\nflow = Workflow('lab', secrets=['TOKEN'])\n"
        "@flow.action(effect=idempotent('x'))\ndef a(ctx):\n    return ctx.secret('TOKEN')\n"
    )
    monkeypatch.setenv("PWF_HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert main(["crashlab", str(file), "--effects", "real", "--keep", "--crashes", "1"]) == 0
    (ledger,) = tmp_path.rglob("ledger.jsonl")
    assert b"***" in ledger.read_bytes()
    assert b"canary" not in ledger.read_bytes()


def test_the_scratch_home_finds_the_secrets_that_the_users_home_finds() -> None:
    text = (
        b'[secrets.A]\nfile = "~/a b"\n[secrets."B.1"]\ncommand = ["pass", "show \\"x\\""]\n'
        b'[secrets.C]\nkeyring = "k"\n[secrets.D]\nenvironment = "E"\n'
    )
    config = parse_config(text, "c")
    assert parse_config(_toml(config, 2).encode(), "scratch").secrets == config.secrets


THREE_LEVELS = """
inner = Workflow("inner")

@inner.action(effect=idempotent("turn"))
def turn(ctx) -> Literal["more", "enough"]:
    return "enough"

@inner.compute
def count(ctx) -> int:
    return ctx.results[turn].visit

inner.graph(turn.switch(more=turn, enough=count))
middle = Workflow("middle")
deep = middle.include(inner, id="deep")

@middle.decision(audience="a", choices=[Choice("ship", "Ship"), Choice("fix", "Fix")], timeout=None)
def ask(ctx):
    return ctx.present(f"{ctx[deep]} rounds?")

@middle.compute
def ready(ctx) -> list[int]:
    return [ctx[deep], ctx.results[ask].visit]

@middle.compute
def broken(ctx) -> int:
    return ctx[deep]

middle.graph(deep >> ask, ask.switch(ship=ready, fix=broken))
flow = Workflow("flow")
part = flow.include(middle)

@flow.compute
def end(ctx) -> list[int]:
    return [*ctx[part], ctx.results[part].visit]

flow.graph(part.switch(ready=end, broken=part))
"""


@pytest.mark.rest
def test_three_levels_with_a_loop_and_a_decision_end_as_undisturbed_wherever_they_are_killed(
    lab: Lab,
) -> None:
    turns = [word for turn in ("more", "enough") * 2 for word in ("--output", f'middle.deep.turn="{turn}"')]
    answers = [
        word for choice in ("fix", "ship") for word in ("--answer", f'middle.ask={{"choice":"{choice}"}}')
    ]
    found = lab(THREE_LEVELS, *turns, *answers, "--paths", "1", "--crashes", "400")
    assert found.code == exits.OK
    assert found.report["findings"] == []
    (path,) = found.report["paths"]
    assert path["status"] == "completed"
    assert max(one["visit"] for one in found.report["steps"] if one["node"] == "middle.deep.turn") == 4
    assert min(found.report["runner_crashes"], found.report["daemon_crashes"]) > 20
