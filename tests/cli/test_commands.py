"""Every command: what it asks the daemon, what it prints, how it exits."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from pwf.cli import exits
from pwf.cli.commands import command_names
from pwf.cli.effects import STATUSES
from pwf.cli.main import FAMILIES, build_parser, main
from pwf.errors import (
    Conflict,
    GraphError,
    InvalidInput,
    LoadFailed,
    NotFound,
    Rejected,
    Unavailable,
)
from pwf.protocol import operations as ops
from pwf.protocol import printed as printed_ops
from pwf.protocol.effects import EffectDetail, Word
from pwf.protocol.graph import ManagerSpec, WorkflowGraph
from pwf.protocol.runner import StepError, Value
from pwf.protocol.views import EffectView, EventView, Violation
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

ROOT = Path(__file__).parents[2]


def leaf_commands() -> list[tuple[str, ...]]:
    """Each command, with its group before it. `effects` is both: it lists, and has commands of its own."""
    found: list[tuple[str, ...]] = []
    parser = build_parser()
    for name in command_names(parser):
        inner = command_names(parser_of(parser, name))
        found += [(name, other) for other in inner] or [(name,)]
    return found


def parser_of(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    choices = next(
        action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    found = choices[name]
    assert isinstance(found, argparse.ArgumentParser)
    return found


# --- the frame ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", leaf_commands(), ids=" ".join)
def test_every_command_has_help_with_an_example_and_json(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert caught.value.code == 0
    assert re.search(r"examples?:\n  pwf " + " ".join(words), shown)
    assert "--json" in shown


def test_a_module_that_declares_commands_has_its_row_with_their_names() -> None:
    for family, names in FAMILIES.items():
        assert tuple(command_names(build_parser(names[0]))) == names, family
    declaring = [
        path.stem for path in (ROOT / "pwf" / "cli").glob("*.py") if "\ndef add(" in path.read_text()
    ]
    assert sorted(declaring) == sorted(FAMILIES)


def test_every_command_of_the_issue_exists() -> None:
    wanted = """run ls show output watch wait explain events pause resume cancel restart retry fork requests
    completion answer submit inbox agents agent-loop mcp sessions decisions decide workflows check graph
    crashlab daemon start stop settings service status state doctor logs effects recover version web resource
    managers channel follow-up"""
    assert set(wanted.split()) == set(command_names(build_parser()))


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["rnu", "x"], "there is no command 'rnu'", "did you mean `pwf run`?"),
        (["zzzzzz"], "there is no command 'zzzzzz'", "pwf --help"),
        (["ls", "--stauts"], "--stauts is not known here", "pwf ls --help"),
        (["ls", "--limit", "x"], "'x' is not a whole number between 1 and 1,000", "pwf ls --help"),
        (["show", ""], "RUN is empty", "name a run: pwf ls lists them"),
        (["watch", ""], "RUN is empty", "name a run: pwf ls lists them"),
        (["wait", "k3", ""], "RUN is empty", "name a run: pwf ls lists them"),
        (
            ["run", "w", "--timeout", "-5m"],
            "--timeout '-5m' is not a length of time",
            "for example --timeout 30s",
        ),
        (["ls", "--status", "dead"], "invalid choice: 'dead'", "pwf ls --help"),
        (["ls", "--limit", "0"], "'0' is not a whole number between 1 and 1,000", "pwf ls --help"),
        (["show"], "the following arguments are required: RUN", "pwf show --help"),
        (["state"], "the following arguments are required", "pwf state --help"),
        (["recover", "x", "observe", "--ref", "1"], "--ref goes only with happened", "pwf recover --help"),
        (
            ["effects", "resolve", "x:y:1", "not-happened", "--output", "1"],
            "--output goes only with happened",
            "pwf effects resolve --help",
        ),
        (["run", "w", "--id", "a b"], "--id 'a b' is not allowed", "letters"),
        (["run", "w", "--key", "a\nb"], "--key", "control character"),
        (["logs", "--lines", "-1"], "must not be negative", "pwf logs --help"),
        (
            ["crashlab", "w", "--crashes", "x"],
            "x is not a number between 1 and 10,000",
            "pwf crashlab --help",
        ),
        (["crashlab", "w", "--answer", "ask"], "--answer 'ask' has no NODE=JSON", "--answer ask='true'"),
        (["state", "backup", ""], "FILE is empty", "pwf state --help"),
    ],
)
def test_a_wrong_command_line_is_one_error_with_what_to_type(
    pwf: Pwf, words: list[str], said: str, hint: str
) -> None:
    result = pwf(*words)
    assert result.code == exits.USAGE
    assert result.out == ""
    first, second = result.err.splitlines()
    assert first.startswith("pwf: ")
    assert said in first
    assert second.startswith("hint: ")
    assert hint in second


def test_errors_are_json_with_json(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("run.status", lambda request, payload: NotFound("no run 'zz\x1b'", hint="pwf ls"))
    result = pwf("explain", "zz", "--json")
    assert (result.code, result.out) == (exits.NOT_FOUND, "")
    assert json.loads(result.err) == {
        "error": {"code": "not_found", "message": "no run 'zz\x1b'", "hint": "pwf ls"}
    }
    assert "\x1b" not in result.err


def test_json_before_the_command_counts_too(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("daemon.status", lambda request, payload: samples.status())
    assert pwf("--json", "status").json["pid"] == 4242


def test_every_error_code_has_an_exit_code_that_the_manual_names() -> None:
    from pwf.errors import _BY_CODE

    internal = {"error", "protocol_rejected"}
    assert {code for code in _BY_CODE if exits.of_error(code) == exits.INTERNAL} == internal
    manual = (ROOT / "docs/operations.md").read_text()
    for name, value in vars(exits).items():
        if name.isupper() and isinstance(value, int):
            assert re.search(rf"^\| {value} \|", manual, re.M), f"{name} is not in the table"


def test_the_manual_names_every_command_and_configuration_key() -> None:
    from pwf.config import Config

    manual = (ROOT / "docs/operations.md").read_text()
    for words in leaf_commands():
        assert f"`pwf {' '.join(words)}" in manual
    for key in Config.__struct_fields__:
        assert f"`{key}`" in manual


def test_effect_statuses_are_the_protocols() -> None:
    assert get_args(get_type_hints(EffectView)["status"]) == STATUSES


@pytest.mark.parametrize("as_json", [True, False])
def test_nobody_listening_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    monkeypatch.setenv("PWF_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PWF_NO_AUTOSTART", "1")
    assert main(["ls", "--json"] if as_json else ["ls"]) == exits.UNAVAILABLE
    assert "pwf start" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_status_loads_neither_rich_nor_an_event_loop() -> None:
    code = (
        "import sys; from pwf.cli.main import main; main(['status']); "
        "print([name for name in ('rich', 'trio', 'anyio', 'asyncio', 'importlib.metadata', 'subprocess') "
        "if name in sys.modules])"
    )
    env = {"PWF_HOME": "/nonexistent/pwf", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=30, check=False
    )
    assert done.stdout == "[]\n"


def test_a_closed_pipe_is_quiet(daemon: FakeDaemon, tmp_path: Path) -> None:
    runs = tuple(samples.summary(run_id=f"r{index}", title="x" * 60) for index in range(900))
    daemon.on("run.list", lambda request, payload: ops.RunList(runs=runs))
    command = f"{sys.executable} -m pwf.cli.main ls --limit 900 --json | head -c 10; echo ${{PIPESTATUS[0]}}"
    env = {"PWF_HOME": str(daemon.places.home), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=env, timeout=30, check=False
    )
    assert done.stderr == ""
    assert done.stdout.endswith(f"{exits.PIPE_CLOSED}\n")


# --- looking ------------------------------------------------------------------------------------------------


def test_status_names_the_rules_that_are_broken_and_what_to_do(pwf: Pwf, daemon: FakeDaemon) -> None:
    broken = Violation(rule="r", message="no owner\x1b", run_id="k3", fix="pwf cancel k3")
    daemon.on("daemon.status", lambda request, payload: samples.status(violations=(broken,)))
    said = pwf("status").out
    assert "a rule is broken: run k3: no owner\\x1b" in said
    assert "fix: pwf cancel k3" in said
    assert pwf("status", "--json").json["violations"][0]["rule"] == "r"
    found = {check["name"]: check for check in pwf("doctor", "--json").json["checks"]}
    assert found["daemon"]["verdict"] == "fail"
    assert found["daemon"]["fix"] == "pwf state verify names all"


def test_status_in_one_look(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on(
        "daemon.status", lambda request, payload: samples.status(effects_ambiguous=2, problems=("odd",))
    )
    shown = pwf("status").out
    for part in (
        "serving",
        "pid 4242",
        "1 running, 12 completed",
        "1 paused",
        "1 of 4",
        "1 open",
        "2 ambiguous",
        "odd",
    ):
        assert part in shown


def test_show_has_sections_and_parts(pwf: Pwf, daemon: FakeDaemon) -> None:
    effect = samples.effect()
    view = samples.run_view(
        summary=samples.summary(status="waiting", node="review"),
        steps=(
            samples.step("collect"),
            samples.step("review", 2, status="active", ended_ms=None, summary=""),
        ),
        request=samples.request(),
        effects=(effect,),
        newer_code=True,
    )
    daemon.on("run.view", lambda request, payload: view)
    shown = pwf("show", "@last").out
    for part in (
        "release 1.2",
        "Now",
        "Steps",
        "Question",
        "Ship it?",
        "Effects",
        "deploy",
        "newer code",
        "Python 3.11.7",
    ):
        assert part in shown
    assert daemon.of("run.view")[-1].run_id == "@last"
    assert pwf("show", "@last", "--input").json == {"version": "1.2"}
    assert "│ collect (shell) │" in pwf("show", "@last", "--graph").out
    nothing = pwf("show", "@last", "--output")
    assert (nothing.code, nothing.out) == (exits.NOT_FOUND, "")
    assert pwf("show", "@last", "--json").json["summary"]["run_id"] == samples.RUN


def test_explain_says_the_reason_when_it_changes_and_what_to_type(pwf: Pwf, daemon: FakeDaemon) -> None:
    found = ops.Explained(summary=samples.summary(), explanation=samples.explanation())
    daemon.on("run.status", lambda request, payload: found)
    shown = pwf("explain", "k3").out
    assert "node 'collect' is running  (executing)" in shown
    assert "the step ends" in shown
    assert f"pwf cancel {samples.RUN}" in shown


def event(revision: int) -> EventView:
    payload = msgspec.Raw(b'{"node":"a"}')
    return EventView(
        revision=revision,
        kind="step_finished",
        actor="runner",
        generation=1,
        at_ms=samples.NOW,
        payload=payload,
    )


def test_events_reads_all_pages(pwf: Pwf, daemon: FakeDaemon) -> None:
    def page(request: Any, payload: Any) -> Any:
        after = payload.after_revision
        more = after + 2 if after < 4 else None
        return ops.EventPage(run_id="r", events=(event(after + 1), event(after + 2)), next_after=more)

    daemon.on("run.events", page)
    lines = pwf("events", "r", "--json").out.splitlines()
    assert [json.loads(line)["revision"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert "step_finished" in pwf("show", "r", "--events").out


def test_events_follow_misses_and_doubles_nothing(pwf: Pwf, daemon: FakeDaemon) -> None:
    stored = [event(1)]
    daemon.on(
        "run.events",
        lambda request, payload: ops.EventPage(
            run_id="r", events=tuple(one for one in stored if one.revision > payload.after_revision)
        ),
    )
    daemon.on("view.subscribe", lambda request, payload: ops.Nothing())

    def push(request: Any, payload: Any) -> None:
        stored.append(event(2))
        daemon.push(payload.id, "snapshot", 1, samples.run_view())
        stored.append(event(3))
        daemon.push(payload.id, "snapshot", 2, samples.run_view(summary=samples.summary(status="completed")))

    daemon.on("after:view.subscribe", push)
    lines = pwf("events", "r", "--follow", "--json").out.splitlines()
    assert [json.loads(line)["revision"] for line in lines] == [1, 2, 3]


# --- doing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pause", "resume", "cancel"])
def test_a_person_changes_a_run(pwf: Pwf, daemon: FakeDaemon, name: str) -> None:
    changed = ops.RunChanged(run_id=samples.RUN, status="paused", revision=9, note="after the step")
    daemon.on(f"run.{name}", lambda request, payload: changed)
    assert "after the step" in pwf(name, "k3").out
    assert pwf(name, "k3", "--json").json["adopted"] is False
    assert daemon.of(f"run.{name}")[0].run_id == "k3"


def detail(key: str, **changes: Any) -> EffectDetail:
    """An ambiguous effect of a run, as it is shown."""
    run_id, node, _ = key.split(":")
    facts: dict[str, Any] = {
        "effect": samples.effect(effect_key=key, run_id=run_id, node=node),
        "run": samples.summary(run_id=run_id, status="ambiguous"),
        "observable": False,
        "made_at": "/p/release.py:7",
        "steps": (),
        "known": "nobody knows whether it happened",
    }
    return EffectDetail(**(facts | changes))


def test_options_of_changes_reach_the_daemon(pwf: Pwf, daemon: FakeDaemon) -> None:
    seen: list[Any] = []

    def take(request: Any, payload: Any) -> Any:
        seen.append(payload)
        return ops.RunChanged(run_id=samples.RUN, status="paused", revision=9)

    for operation in ("run.pause", "run.cancel", "effect.resolve"):
        daemon.on(operation, take)
    daemon.on("effect.get", lambda request, payload: detail("k3:send:1"))
    pwf("pause", "k3", "--now")
    pwf("cancel", "k3", "--reason", "wrong branch")
    words = ("--output", '{"tag": 1}', "--ref", "r1", "--note", "I saw it")
    pwf("effects", "resolve", "k3:send:1", "happened", *words)
    assert seen[0] == ops.PausePayload(now=True)
    assert seen[1] == ops.CancelPayload(reason="wrong branch")
    assert (seen[2].verdict, bytes(seen[2].output)) == ("happened", b'{"tag":1}')
    assert (seen[2].effect_key, seen[2].ref, seen[2].note) == ("k3:send:1", "r1", "I saw it")
    assert daemon.of("effect.resolve")[0].run_id == "k3"


@pytest.mark.parametrize("words", [("recover", "@last"), ("effects", "resolve", "@last:ship:1")])
def test_a_word_is_about_the_run_the_effect_and_the_revision_that_were_shown(
    pwf: Pwf, daemon: FakeDaemon, words: tuple[str, ...]
) -> None:
    run = samples.summary(run_id="k3", revision=7)
    effect = detail("k3:ship:1", run=run).effect
    daemon.on("run.view", lambda request, payload: samples.run_view(summary=run, effects=(effect,)))
    daemon.on("effect.get", lambda request, payload: detail("k3:ship:1", run=run))
    changed = ops.RunChanged(run_id="k3", status="queued", revision=8)
    daemon.on("effect.resolve", lambda request, payload: changed)
    pwf(*words, "not-happened")
    pwf(*words, "not-happened", "--revision", "5")
    first, second = daemon.of("effect.resolve")
    assert (first.run_id, first.expected_revision, second.expected_revision) == ("k3", 7, 5)
    assert msgspec.json.decode(first.payload)["effect_key"] == "k3:ship:1"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Rejected("it has ended", hint="pwf restart k3"), exits.REFUSED),
        (Conflict("it has changed"), exits.REFUSED),
        (NotFound("no run 'k3'"), exits.NOT_FOUND),
        (Unavailable("busy"), exits.UNAVAILABLE),
    ],
)
def test_a_refusal_has_its_exit_code(pwf: Pwf, daemon: FakeDaemon, error: Any, code: int) -> None:
    daemon.on("run.resume", lambda request, payload: error)
    result = pwf("resume", "k3")
    assert result.code == code
    assert result.err.startswith(f"pwf: {error.message}\n")


def test_restart_sends_the_revision_that_it_has_read_and_printed(pwf: Pwf, daemon: FakeDaemon) -> None:
    found = ops.Explained(summary=samples.summary(run_id="k3", revision=7), explanation=samples.explanation())
    daemon.on("run.status", lambda request, payload: found)
    sent: list[Any] = []

    def take(request: Any, payload: Any) -> Any:
        sent.append((request.run_id, request.expected_revision))
        return samples.started(run_id="new1", restarted_from="k3", restart_root="k1", restart_no=2)

    daemon.on("run.restart", take)
    result = pwf("restart", "@last-failed")
    assert "restarting run k3 at revision 7" in result.err
    assert result.out.startswith("new1")
    assert "restart 2 of k1" in result.out
    assert "pwf watch new1" in result.err
    pwf("restart", "k3", "--revision", "5")
    assert sent == [("k3", 7), ("k3", 5)]


def test_lists_and_views_say_what_a_run_restarts(pwf: Pwf, daemon: FakeDaemon) -> None:
    line = samples.summary(
        run_id="k3", restarted_from="k2", restart_root="k1", restart_no=2, reason="it broke"
    )
    daemon.on("run.list", lambda request, payload: ops.RunList(runs=(line,)))
    assert "restart of k2; it broke" in pwf("ls").out
    daemon.on("run.view", lambda request, payload: samples.run_view(summary=line, restarts=("k4",)))
    shown = pwf("show", "k3").out
    assert "k2  (number 2 since k1)" in shown
    assert "restarted as k4" in " ".join(shown.split())


def test_effects_are_listed(pwf: Pwf, daemon: FakeDaemon) -> None:
    effect = samples.effect(visit=2)
    daemon.on("effect.list", lambda request, payload: ops.EffectList(effects=(effect,)))
    listed = pwf("effects", "--ambiguous")
    assert listed.out.splitlines()[1].startswith("k:ship:2 ")
    assert "pwf effects show KEY" in listed.err
    asked = msgspec.json.decode(daemon.of("effect.list")[0].payload, type=ops.EffectListPayload)
    assert (asked.statuses, asked.messages) == (("ambiguous",), False)


def test_the_request_and_the_output_of_an_effect_are_printed_whole(pwf: Pwf, daemon: FakeDaemon) -> None:
    data = b'"' + b"x" * 400 + b'"'
    request = Value(json=msgspec.Raw(data), size=len(data))
    daemon.on("effect.get", lambda *_: detail("k:ship:1/tea", request=request))
    shown = pwf("effects", "show", "k:ship:1/tea").out
    assert "all of its request: pwf effects show k:ship:1/tea --request" in shown
    assert pwf("effects", "show", "k:ship:1/tea", "--request").out.strip() == data.decode()
    missing = pwf("effects", "show", "k:ship:1/tea", "--output")
    assert (missing.code, "no output of effect" in missing.err) == (exits.NOT_FOUND, True)


def test_an_effect_is_shown_with_its_attempts_what_they_printed_and_what_each_word_would_do(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    failure = StepError(code="node_failed", message="no answer")
    step = samples.step(node="ship", status="unknown", printed_bytes=8, error=failure, summary="no answer")
    found = detail(
        "k:ship:1",
        steps=(step,),
        words=(
            Word(verdict="give_up", does="the run fails", command="pwf effects resolve k:ship:1 give-up"),
        ),
    )
    printed = printed_ops.PrintedStep(
        attempt=step.attempt, node="ship", visit=1, tries=1, status="unknown", printed_bytes=9, out_bytes=9
    )
    daemon.on("effect.get", lambda request, payload: found)
    daemon.on(
        "run.printed", lambda request, payload: printed_ops.Printed(run_id="k", ended=False, steps=(printed,))
    )
    daemon.on(
        "run.read_printed",
        lambda request, payload: printed_ops.PrintedPiece(data=b"sending\n", next_offset=8),
    )
    shown = pwf("effects", "show", "k:ship:1").out
    for said in ("nobody knows", "/p/release.py:7", "no answer", "out  sending", "give-up\n  the run fails"):
        assert said in shown


# --- workflows and state ------------------------------------------------------------------------------------


def test_workflows_lists_what_loads_and_what_does_not(pwf: Pwf, daemon: FakeDaemon, tmp_path: Path) -> None:
    good = ops.WorkflowLine(
        name="release", path=str(tmp_path / "r.py"), scope="project", doc="Ships.\nMore.", nodes=4
    )
    bad = ops.WorkflowLine(name="bad", path="/p/bad.py", scope="user", error="bad.py:3: syntax error\x1b")
    daemon.on("workflow.list", lambda request, payload: ops.WorkflowList(root="/p", workflows=(good, bad)))
    shown = pwf("workflows").out
    assert "Ships." in shown
    assert "More." not in shown
    assert "error: bad.py:3: syntax error\\x1b" in shown
    origin = msgspec.json.decode(daemon.of("workflow.list")[0].payload, type=ops.WorkflowListPayload).origin
    assert origin.cwd == str(tmp_path.resolve())
    assert origin.python == sys.executable
    assert "PATH" in origin.environment
    assert "PWF_NO_AUTOSTART" not in origin.environment


def test_check_prints_errors_and_warnings_of_each_file_and_exits_with_one(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    def describe(request: Any, payload: Any) -> Any:
        if payload.workflow == "bad.py":
            return GraphError("/p/bad.py:7: node 'a' has two ways out for completed", hint="remove one")
        if payload.workflow == "gone.py":
            return LoadFailed("no module named 'x'", hint="install it")
        if payload.workflow == "disk":
            assert payload.or_manager
            plain = samples.described()
            graph = WorkflowGraph(name="disk", start="", nodes=(), manager=ManagerSpec())
            return msgspec.structs.replace(plain, graph=graph, warnings=())
        return samples.described()

    daemon.on("workflow.describe", describe)
    result = pwf("check", "good.py", "bad.py", "gone.py", "disk")
    assert result.code == exits.NO
    for part in (
        "ok       good.py: workflow release, 4 nodes",
        "ok       disk: resource manager disk",
        "warning  /p/release.py:3",
        "error    /p/bad.py:7: node 'a'",
        "hint: remove one",
        "error    gone.py: no module",
    ):
        assert part in result.out
    files = pwf("check", "good.py", "bad.py", "--json").json["files"]
    assert [file["error"] and file["error"]["code"] for file in files] == [None, "graph_error"]
    assert pwf("check", "good.py").code == exits.OK


@pytest.mark.parametrize("format", ["text", "mermaid", "svg"])
def test_graph_draws_in_each_format(pwf: Pwf, daemon: FakeDaemon, format: str) -> None:
    daemon.on("workflow.describe", lambda request, payload: samples.described())
    shown = pwf("graph", "release", "--format", format).out
    assert all(node in shown for node in ("collect", "review", "ship", "apologise"))


def test_a_workflow_that_does_not_load_is_unsound(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on(
        "workflow.describe", lambda request, payload: LoadFailed("/p/x.py:1: SyntaxError", hint="fix it")
    )
    assert pwf("graph", "x").code == exits.UNSOUND


def test_a_bad_configuration_is_refused_with_key_file_and_line(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.places.config.write_text("\nmax_runners = 0\n")
    result = pwf("run", "hello")
    assert result.code == exits.UNSOUND
    assert "config.toml:2: max_runners is 0" in result.err


def test_an_input_of_the_wrong_type_is_usage(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on(
        "run.start", lambda request, payload: InvalidInput("input.version: expected str", hint="see the type")
    )
    daemon.on("workflow.describe", lambda request, payload: samples.described())
    assert pwf("run", "hello", "--set", "version=1").code == exits.USAGE


def test_verify_exits_with_one_when_a_rule_is_broken(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("state.verify", lambda request, payload: ops.VerifyResult(violations=(), checked={"a": 3}))
    assert pwf("state", "verify").code == exits.OK
    broken = Violation(rule="one_owner", message="no owner", run_id="k3", fix="pwf cancel k3")
    daemon.on(
        "state.verify", lambda request, payload: ops.VerifyResult(violations=(broken,), checked={"a": 3})
    )
    result = pwf("state", "verify")
    assert result.code == exits.NO
    for part in ("one_owner", "run k3: no owner", "fix: pwf cancel k3"):
        assert part in result.out


def test_state_status_shows_sizes_rows_and_settings(pwf: Pwf, daemon: FakeDaemon) -> None:
    found = samples.state_status(rows={"runs": 1200}, settings={"journal_mode": "wal"})
    daemon.on("state.status", lambda request, payload: found)
    shown = pwf("state", "status").out
    assert "1,200" in shown
    assert "journal_mode" in shown
