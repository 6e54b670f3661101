"""What --json prints is what docs/json.schema.json says, for every command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from pwf.actors.upkeep.restoring import Restored
from pwf.cli import json_output
from pwf.cli.json_output import PRINTED
from pwf.errors import NotFound
from pwf.protocol import effects, printed, resources
from pwf.protocol import operations as ops
from pwf.protocol.agents import AgentLine, AgentList
from pwf.protocol.channels import ChannelLine, ChannelList, MessageLine
from pwf.protocol.decisions import Decided, DecisionList
from pwf.protocol.follow_ups import FollowUpChanged
from pwf.protocol.notices import NoticeList
from pwf.protocol.sessions import SessionLine, SessionList
from pwf.protocol.settings import SettingsChanged, SettingsView
from pwf.protocol.transcripts import EntryView, Transcript
from pwf.protocol.web import SignIn
from tests.cli.conftest import Pwf, script_run
from tests.cli.test_commands import detail, leaf_commands
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA: dict[str, Any] = json.loads((DOCS / "json.schema.json").read_text("utf-8"))

MESSAGE = MessageLine(message_id="m7x", channel="phone", event="test", state="shown", created_ms=1)
FOLLOW_UP = FollowUpChanged(run_id="k1", follow_up_id="k1.follow_up.1", session="chat", revision=4)
CHANNELS = ChannelList(
    channels=(ChannelLine(name="phone", kind="command", state="up", since_ms=1, messages={"shown": 1}),),
    messages=(MESSAGE,),
)

#: What is typed after each command that one object, or one a line, comes of.
TYPED: dict[str, tuple[str, ...]] = {
    "run": ("release", "--until", "ended"),
    "watch": ("k3",),
    "wait": ("k3",),
    "ls": (),
    "show": ("k3",),
    "output": ("k3",),
    "explain": ("k3",),
    "events": ("k3",),
    "pause": ("k3", "k4"),
    "resume": ("k3",),
    "cancel": ("k3",),
    "restart": ("k3",),
    "retry": ("k3",),
    "fork": ("k3", "--from", "collect"),
    "requests": (),
    "answer": ("q1", "1"),
    "submit": ("q1", "1"),
    "inbox": (),
    "agents": (),
    "mcp install": ("codex",),
    "sessions": (),
    "decisions": (),
    "decide": ("q1", "ship"),
    "channel setup": ("desk", "command", "--set", "command=x"),
    "channel status": (),
    "channel test": ("phone",),
    "channel reload": (),
    "channel recover": ("m7x", "confirm"),
    "effects": (),
    "settings get": ("k3",),
    "settings change": ("k3", "workers=4"),
    "follow-up queue": ("k3", "Go on."),
    "follow-up ls": ("k3",),
    "follow-up remove": ("k3", "1"),
    "effects show": ("k3:ship:1",),
    "effects resolve": ("k3:ship:1", "not-happened"),
    "recover": ("k3", "not-happened"),
    "workflows": (),
    "check": ("x.py",),
    "graph": ("release",),
    "resource apply": ("disk", "a", "--wait"),
    "resource ls": (),
    "resource get": ("disk/a",),
    "resource explain": ("disk", "a"),
    "resource events": ("disk", "a"),
    "resource logs": ("disk", "a"),
    "resource reconcile": ("disk", "a", "--wait"),
    "resource delete": ("disk", "a"),
    "resource pause": ("disk", "a"),
    "resource resume": ("disk", "a"),
    "managers": (),
    "start": (),
    "stop": (),
    "web": ("--link",),
    "service install": ("--print",),
    "service uninstall": (),
    "service status": (),
    "logs": ("k3",),
    "status": (),
    "state status": (),
    "state verify": (),
    "state backup": ("backup.db",),
    "state prune": ("--before", "3d"),
    "doctor": (),
    "completion": ("bash",),
    "version": (),
}
#: What needs more than a daemon's answers; other tests run them.
ELSEWHERE = {"agent-loop", "mcp serve", "resource watch", "crashlab", "daemon", "state restore", "state new"}


def lines_of(schema: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """Each line, once it is what the schema says."""
    validator = jsonschema_rs.validator_for({**schema, "$defs": SCHEMA["$defs"]})
    for line in text.splitlines():
        found = json.loads(line)
        validator.validate(found)
        yield found


#: What is asked of agents, sessions and notices.
AGENTS: dict[str, Any] = {
    "notice.list": NoticeList(notices=(samples.notice(),)),
    "agent.list": AgentList(agents=(AgentLine(name="coder", adapter="exec", command=("x",)),)),
    "session.transcript": Transcript(
        run_id="k3",
        session_id="chat",
        entries=(EntryView(segment="main", number=0, kind="said", data=msgspec.Raw(b'"so"'), at_ms=1),),
    ),
    "session.list": SessionList(
        sessions=(SessionLine(session_id="chat", epoch=2, connected=True, created_ms=1, seen_ms=2),)
    ),
}


def of_resources() -> dict[str, Any]:
    """What a daemon answers to operations on resources."""
    return {
        "manager.list": resources.ManagerList(root="/p", managers=()),
        "resource.list": resources.ResourceList(resources=(samples.resource_summary(),)),
        "resource.get": samples.resource_view(),
        "resource.printed": resources.PrintedReconciles(
            uid="u1", reconciles=(resources.PrintedReconcile(generation=3, at_ms=1, out_bytes=3),)
        ),
        "resource.read_printed": printed.PrintedPiece(data=b"hi\n", next_offset=3),
        "resource.events": resources.ResourceEventPage(uid="u1", events=(samples.event(),)),
        "resource.apply": samples.applied(before=samples.value({})),
        "resource.wait": resources.ResourceWaited(summary=samples.resource_summary(), done=True),
        **{
            f"resource.{word}": samples.resource_changed()
            for word in ("reconcile", "delete", "pause", "resume")
        },
    }


@pytest.fixture
def answering(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDaemon:
    """A daemon that answers every operation, and a service manager that there is not."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    run_id = samples.RUN
    summary = samples.summary(run_id=run_id, status="completed")
    done = samples.run_view(summary=summary, output=samples.value({"a": 1}))
    changed = ops.RunChanged(run_id=run_id, status="paused", revision=4, note="after the step")
    step = printed.PrintedStep(
        attempt=1, node="collect", visit=1, tries=1, status="completed", printed_bytes=3, out_bytes=3
    )
    answers: dict[str, Any] = {
        "daemon.status": samples.status(),
        "daemon.stop": ops.StopResult(pid=ended.pid),
        "workflow.list": ops.WorkflowList(
            root="/p", workflows=(ops.WorkflowLine(name="a", path="/p/a", scope="project"),)
        ),
        "workflow.describe": samples.described(),
        "run.list": ops.RunList(runs=(summary,)),
        "run.status": ops.Explained(summary=summary, explanation=samples.explanation()),
        "run.view": done,
        "run.events": ops.EventPage(run_id=run_id, events=(samples.event(),)),
        "run.printed": printed.Printed(run_id=run_id, ended=True, steps=(step,)),
        "run.pause": changed,
        "run.resume": changed,
        "run.cancel": changed,
        "run.restart": samples.started(restarted_from="k2", restart_root="k2", restart_no=1),
        "run.fork": samples.started(forked_from="k1", node="collect", took_over=("a",)),
        "run.wait": ops.WaitResult(summary=summary, done=True),
        "request.answer": ops.Answered(request_id="q1", run_id=run_id, status="queued", revision=4),
        **AGENTS,
        "request.submit": ops.Submitted(request_id="q1", run_id=run_id, status="queued", revision=4),
        "decision.list": DecisionList(decisions=(samples.decision(),)),
        "decision.answer": Decided(
            decision_id="q1", run_id=run_id, status="queued", revision=4, choice="ship"
        ),
        "web.invite": SignIn(expires_ms=1),
        **dict.fromkeys(("channel.list", "channel.reload"), CHANNELS),
        **dict.fromkeys(("channel.test", "channel.message", "channel.recover"), MESSAGE),
        "settings.get": SettingsView(run_id=run_id, change=3, value=msgspec.Raw(b'{"workers":2}')),
        "settings.change": SettingsChanged(run_id=run_id, change=4, revision=9),
        **dict.fromkeys(("follow_up.queue", "follow_up.remove"), FOLLOW_UP),
        "effect.list": effects.EffectList(effects=(samples.effect(),)),
        "effect.get": detail("k3:ship:1"),
        "effect.resolve": changed,
        "state.status": samples.state_status(),
        "state.verify": ops.VerifyResult(violations=(), checked={"runs": 1}),
        "state.backup": ops.BackupResult(path="/b", bytes=1, runs=1, at_ms=1, home_id="h", epoch=1),
        "state.prune": ops.PruneResult(before_ms=1),
        **of_resources(),
    }
    script_run(daemon, samples.run_view(), done)
    for operation, result in answers.items():
        daemon.on(operation, lambda request, payload, result=result: result)
    of_kind: Callable[[Any, Any], Any] = lambda request, payload: ops.RequestList(  # noqa: E731
        requests=(samples.request(kind=(*payload.kinds, "checkpoint")[0]),)
    )
    daemon.on("request.list", of_kind)
    piece: Callable[[Any, Any], Any] = lambda request, payload: printed.PrintedPiece(  # noqa: E731
        data=b"" if payload.offset else b"out", next_offset=3
    )
    daemon.on("run.read_printed", piece)
    return daemon


def test_every_command_says_what_it_prints() -> None:
    commands = {" ".join(words) for words in leaf_commands()} | {"effects"}
    assert commands - PRINTED.keys() == set(), "add them to PRINTED in pwf/cli/json_output.py, and make docs"
    assert PRINTED.keys() - commands == set()
    assert PRINTED.keys() == TYPED.keys() | ELSEWHERE


@pytest.mark.parametrize("command", TYPED)
def test_what_a_command_prints_is_what_its_schema_says(pwf: Pwf, answering: FakeDaemon, command: str) -> None:
    printed = pwf(*command.split(), *TYPED[command], "--json")
    found = list(lines_of(SCHEMA["x-commands"][command], printed.out))
    assert found, printed.err
    kinds = PRINTED[command].kinds
    if len(kinds) == 1 and json_output._is_struct(kinds[0]):
        for one in found:  # and nothing besides
            msgspec.json.decode(json.dumps(one), type=kinds[0])


@pytest.mark.parametrize("part", ["collect", "--graph", "--events"])
def test_each_part_of_show_has_a_schema_of_its_own(pwf: Pwf, answering: FakeDaemon, part: str) -> None:
    assert list(lines_of(SCHEMA["x-commands"]["show"], pwf("show", "k3", part, "--json").out))


def test_an_error_is_a_line_of_its_own_schema(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("run.view", lambda request, payload: NotFound("no run 'k3'", details={"near": []}))
    (error,) = lines_of(SCHEMA["x-error"], pwf("show", "k3", "--json").err)
    assert error["error"]["code"] == "not_found"


def test_a_restored_home_is_told_as_the_list_says() -> None:
    assert Restored.__struct_fields__ == json_output.Restored.__struct_fields__


def test_the_files_are_what_the_list_makes() -> None:
    assert (DOCS / "json.md").read_text("utf-8") == json_output.page(), "make docs"
    assert (DOCS / "json.schema.json").read_text("utf-8") == json_output.schema_text(), "make docs"
