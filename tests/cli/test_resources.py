"""`pwf resource` and `pwf managers`: what is sent, what is said, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.cli import exits
from pwf.cli.out import UsageError
from pwf.cli.resource_file import read_resources
from pwf.errors import InvalidInput, NotFound
from pwf.present.resources import changes
from pwf.protocol import resources as wire
from pwf.protocol.graph import ManagerSpec, WorkflowGraph
from pwf.protocol.operations import Nothing
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}, "name": {"type": "string"}}}


class Script:
    """Answers every operation, and keeps what was asked."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.daemon = daemon
        graph = WorkflowGraph(name="disk", start="", nodes=(), manager=ManagerSpec(spec_schema=SCHEMA))
        self.answers: dict[str, Any] = {
            "manager.list": wire.ManagerList(
                root="/p",
                managers=(
                    wire.ManagerLine(
                        name="disk", path="/p/disk.py", scope="project", every_ms=5_000, resources=2
                    ),
                    wire.ManagerLine(
                        name="net", path="/p/net.py", scope="user", error="no spec", watches=True
                    ),
                ),
            ),
            "workflow.describe": msgspec.structs.replace(samples.described(), graph=graph, warnings=()),
            "resource.apply": samples.applied(before=samples.value({"size": 3, "name": "x"})),
            "resource.list": wire.ResourceList(
                resources=(
                    samples.resource_summary(),
                    samples.resource_summary(key="b", state="held", ready="False"),
                )
            ),
            "resource.get": samples.resource_view(),
            "resource.events": wire.ResourceEventPage(
                uid="u1", events=(samples.event(revision=3, kind="applied"),)
            ),
            "resource.wait": wire.ResourceWaited(summary=samples.resource_summary(), done=True),
            **{
                f"resource.{word}": samples.resource_changed()
                for word in ("reconcile", "pause", "resume", "delete")
            },
        }
        for operation in self.answers:
            daemon.on(operation, lambda request, payload, op=operation: self._answer(op, request, payload))

    def _answer(self, operation: str, request: Any, payload: Any) -> Any:
        self.asked.append((operation, payload))
        answer = self.answers[operation]
        return answer(payload) if callable(answer) else answer

    def payload(self, operation: str) -> Any:
        return next(payload for asked, payload in reversed(self.asked) if asked == operation)


@pytest.fixture
def script(daemon: FakeDaemon) -> Script:
    return Script(daemon)


# --- apply ------------------------------------------------------------------------------------------------------


def test_apply_sends_the_spec_and_says_what_changed(pwf: Pwf, script: Script) -> None:
    result = pwf("resource", "apply", "disk", "a", "--spec", '{"size": 4, "name": "x"}')

    payload = script.payload("resource.apply")
    assert (payload.manager, payload.key, bytes(payload.spec)) == ("disk", "a", b'{"name":"x","size":4}')
    assert result.code == exits.OK
    assert result.out == "disk/a  changed  generation 3\n  - size: 3\n  + size: 4\n"


def test_apply_reads_set_by_the_managers_type(pwf: Pwf, script: Script) -> None:
    pwf("resource", "apply", "disk", "a", "--set", "size=4", "--set", "name=12")

    assert bytes(script.payload("resource.apply").spec) == b'{"name":"12","size":4}'


def test_a_dry_run_says_what_would_be_and_does_not_wait(pwf: Pwf, script: Script) -> None:
    result = pwf("resource", "apply", "disk", "a", "--spec", "{}", "--dry-run", "--wait")

    assert script.payload("resource.apply").dry_run
    assert "would be changed" in result.out
    assert "resource.wait" not in [operation for operation, _ in script.asked]


def test_apply_with_json_prints_the_answer_with_the_difference(pwf: Pwf, script: Script) -> None:
    found = pwf("resource", "apply", "disk", "a", "--spec", '{"size": 3}', "--json").json

    assert (found["change"], found["diff"], found["dry_run"]) == ("changed", ['- name: "x"'], False)


def test_apply_can_wait_and_tells_how_it_went_by_its_exit_code(pwf: Pwf, script: Script) -> None:
    for state, ready, code in (
        ("settled", "True", exits.OK),
        ("settled", "Unknown", exits.OK),
        ("settled", "False", exits.NO),
        ("held", "False", exits.NEEDS_PERSON),
        ("gone", "False", exits.NO),
    ):
        script.answers["resource.wait"] = wire.ResourceWaited(
            summary=samples.resource_summary(state=state, ready=ready, message="why"), done=True
        )
        assert pwf("resource", "apply", "disk", "a", "--wait", "--timeout", "5s").code == code
    script.answers["resource.wait"] = wire.ResourceWaited(
        summary=samples.resource_summary(state="queued"), done=False
    )
    result = pwf("resource", "apply", "disk", "a", "--wait", "--timeout", "5s")
    assert (result.code, script.payload("resource.wait").timeout_ms) == (exits.TIME_OUT, 5_000)
    assert "pwf resource explain u1" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["apply"], "needs MANAGER and KEY"),
        (["apply", "disk"], "needs MANAGER and KEY"),
        (["apply", "-f", "x.toml", "disk"], "no other resource"),
        (["apply", "disk", "a", "--timeout", "5s"], "only with --wait"),
        (["delete", "disk", "a", "--note", "x"], "only with --abandon"),
        (["get", "", "a"], "is empty"),
    ],
)
def test_words_that_do_not_go_together_are_refused(
    pwf: Pwf, script: Script, words: list[str], said: str
) -> None:
    result = pwf("resource", *words)

    assert (result.code, script.asked) == (exits.USAGE, [])
    assert said in result.err


# --- a file of several --------------------------------------------------------------------------------------------

TOML = """
[[resource]]
manager = "disk"
key = "a"
[resource.spec]
size = 4

[[resource]]
manager = "disk"
key = "b"
"""


def test_a_file_is_checked_whole_and_then_applied_in_its_order(
    pwf: Pwf, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "r.toml").write_text(TOML)
    script.answers["resource.apply"] = lambda payload: (
        samples.applied(key=payload.key, before=samples.value({"size": 3}))
        if payload.key == "a"
        else samples.applied("unchanged", key=payload.key)
    )

    result = pwf("resource", "apply", "-f", "r.toml")

    sent = [(payload.key, payload.dry_run) for operation, payload in script.asked]
    assert sent == [("a", True), ("b", True), ("a", False), ("b", False)]
    assert result.out == (
        "disk/a  changed  generation 3\n  - size: 3\n  + size: 4\ndisk/b  unchanged  generation 3\n"
    )
    assert result.err == "1 changed, 1 unchanged\n"


def test_one_mistake_in_a_file_is_named_and_nothing_is_applied(
    pwf: Pwf, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "r.toml").write_text(TOML)
    script.answers["resource.apply"] = lambda payload: (
        InvalidInput("the spec does not fit: 4 is not a string", hint="pwf managers disk")
        if payload.key == "a"
        else samples.applied()
    )

    result = pwf("resource", "apply", "-f", "r.toml")

    assert result.code == exits.USAGE
    assert all(payload.dry_run for _, payload in script.asked)
    assert "disk/a: the spec does not fit" in result.err
    assert result.err.endswith("nothing was applied\n")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("r.toml", "", "has no list of its resources"),
        ("r.toml", "resource = []", "has no resources"),
        ("r.toml", "x = [", "is not TOML"),
        ("r.toml", "[[resource]]\nkey = 'a'", "resource 1 has no manager"),
        ("r.toml", "[[resource]]\nmanager = 'm'\nkey = 'a'\nspce = 1", "unknown field 'spce'"),
        ("r.toml", TOML + TOML.split("\n\n")[1], "names disk/b twice"),
        ("r.toml", TOML.replace("size = 4", "size = inf"), "disk/a.*spec.size is inf"),
        ("r.toml", "[[resources]]\nkey = 'a'", "has no list of its resources"),
        ("r.json", '{"resource": [1]}', "resource 1 is '1'"),
        ("r.json", '[{"manager": "m", "key": "a", "spec": NaN}]', "is not JSON"),
        ("r.yaml", "a: 1", "is YAML, which is not read"),
        ("gone.toml", None, "can not be read"),
    ],
)
def test_a_file_that_is_wrong_names_the_place(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)

    with pytest.raises(Exception, match=said) as caught:
        read_resources(str(file))
    assert exits.of_error(getattr(caught.value, "code", "")) == exits.USAGE


def test_json_and_toml_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(TOML)
    items = [{"manager": "disk", "key": "a", "spec": {"size": 4}}, {"manager": "disk", "key": "b"}]
    (tmp_path / "r.json").write_text(json.dumps(items))
    (tmp_path / "s.json").write_text(json.dumps({"resource": items}))
    (tmp_path / "one").write_text(json.dumps(items[1]))

    wanted = read_resources(str(tmp_path / "r.toml"))

    assert read_resources(str(tmp_path / "r.json")) == wanted
    assert read_resources(str(tmp_path / "s.json")) == wanted
    assert read_resources(str(tmp_path / "one")) == wanted[1:]


def test_a_date_in_toml_is_its_text(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(TOML.replace("size = 4", "since = 2026-01-31"))

    assert read_resources(str(tmp_path / "r.toml"))[0].spec == b'{"since":"2026-01-31"}'


def test_a_file_of_too_many_resources_is_refused(tmp_path: Path) -> None:
    items = [{"manager": "m", "key": str(number)} for number in range(1_001)]
    (tmp_path / "r.json").write_text(json.dumps(items))

    with pytest.raises(UsageError, match="1,001 resources"):
        read_resources(str(tmp_path / "r.json"))


def test_a_difference_names_each_path() -> None:
    before = {"a": {"b": 1, "c": [1, 2]}, "gone": True}
    after = {"a": {"b": 1, "c": [1, 3]}, "new": {"x": None}}

    assert changes(before, after) == ["- a.c: [1,2]", "+ a.c: [1,3]", "- gone: true", '+ new: {"x":null}']
    assert changes(before, before) == []
    assert changes({"n": 1}, {"n": 1.0}) == ["- n: 1", "+ n: 1.0"]
    assert changes({}, {str(number): number for number in range(300)})[-1] == "  … and 100 further lines"


# --- looking ------------------------------------------------------------------------------------------------------


def test_ls_lists_resources_with_what_matters(pwf: Pwf, script: Script) -> None:
    result = pwf("resource", "ls", "disk", "--state", "held", "--here")

    payload = script.payload("resource.list")
    assert (payload.manager, payload.states, payload.cwd is not None) == ("disk", ("held",), True)
    head, first, second = result.out.splitlines()
    assert head.split() == ["MANAGER", "KEY", "STATUS", "READY", "GEN", "AGE", "NOTE"]
    assert first.split()[:5] == ["disk", "a", "settled", "True", "2"]
    assert second.split()[:4] == ["disk", "b", "held", "False"]


def test_one_that_is_gone_says_how_to_see_its_history(pwf: Pwf, script: Script) -> None:
    gone = samples.resource_summary(state="gone", deleting_ms=samples.NOW, gone_ms=samples.NOW)
    script.answers["resource.list"] = wire.ResourceList(resources=(gone,))

    assert "its history: pwf resource events u1" in pwf("resource", "ls", "--state", "gone").out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["disk", "a"], {"manager": "disk", "key": "a"}),
        (["disk/a"], {"manager": "disk", "key": "a"}),
        (["disk/a/b"], {"manager": "disk", "key": "a/b"}),
        (["3kq"], {"uid": "3kq"}),
    ],
)
def test_a_resource_is_named_by_manager_and_key_or_by_its_uid(
    pwf: Pwf, script: Script, words: list[str], wanted: dict[str, str], tmp_path: Path
) -> None:
    pwf("resource", "get", *words)

    payload = script.payload("resource.get")
    assert {name: getattr(payload, name) for name in wanted} == wanted
    assert payload.cwd == ("" if "uid" in wanted else str(tmp_path))


def test_get_shows_a_resource_in_sections(pwf: Pwf, script: Script) -> None:
    result = pwf("resource", "get", "disk", "a")

    for part in (
        "disk/a  settled  ready True",
        "generation   2, seen by its manager; version 7",
        "finalizers   disk",
        '"size": 3',
        "InSync",
        "build-1",
    ):
        assert part in result.out
    assert pwf("resource", "get", "disk", "a", "--json").json["summary"]["uid"] == "u1"


def test_explain_says_why_and_what_to_type(pwf: Pwf, script: Script) -> None:
    result = pwf("resource", "explain", "disk", "a")

    assert "why: " in result.out
    assert pwf("explain", "disk/a").out == result.out
    assert set(pwf("resource", "explain", "disk", "a", "--json").json) == {"summary", "explanation"}


def test_events_are_read_to_the_last_page(pwf: Pwf, script: Script) -> None:
    script.answers["resource.events"] = lambda payload: wire.ResourceEventPage(
        uid="u1",
        events=(samples.event(revision=payload.after_revision + 1, kind="applied"),),
        next_after=None if payload.after_revision else 1,
    )

    lines = pwf("resource", "events", "disk", "a", "--json").out.splitlines()

    assert [json.loads(line)["revision"] for line in lines] == [1, 2]


def test_a_resource_that_is_not_there_is_exit_code_three(pwf: Pwf, script: Script) -> None:
    script.answers["resource.get"] = lambda payload: NotFound(
        "there is no resource disk/x", hint="pwf resource ls"
    )

    assert pwf("resource", "get", "disk", "x").code == exits.NOT_FOUND


def follow(daemon: FakeDaemon, *states: Any) -> None:
    """The subscription sends these, one after another."""
    daemon.on("view.subscribe", lambda request, payload: Nothing())

    def push(request: Any, payload: Any) -> None:
        for revision, state in enumerate(states, 1):
            daemon.push(payload.id, "snapshot", revision, state)

    daemon.on("after:view.subscribe", push)


def test_watch_prints_a_line_for_each_change_until_the_resource_is_gone(
    pwf: Pwf, script: Script, daemon: FakeDaemon
) -> None:
    states = [
        samples.resource_summary(),
        samples.resource_summary(),
        samples.resource_summary(state="queued", resource_version=8),
        samples.resource_summary(state="gone"),
    ]
    follow(daemon, *(samples.resource_view(summary=state) for state in states))

    result = pwf("resource", "watch", "disk", "a")

    assert result.code == exits.OK
    assert [line.split()[:2] for line in result.out.splitlines()][-1] == ["disk/a", "gone"]
    assert json.loads(pwf("resource", "watch", "disk/a", "--json").out.splitlines()[-1])["state"] == "gone"


# --- acts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["reconcile", "pause", "resume"])
def test_a_persons_word_is_sent_and_its_answer_said(pwf: Pwf, script: Script, word: str) -> None:
    script.answers[f"resource.{word}"] = samples.resource_changed(note="after the running one")

    result = pwf("resource", word, "disk", "a")

    assert result.out == "disk/a  queued  after the running one\n"
    assert pwf("resource", word, "disk/a", "--json").json["uid"] == "u1"


def test_delete_can_wait_abandon_and_leave_children(pwf: Pwf, script: Script) -> None:
    script.answers["resource.wait"] = wire.ResourceWaited(
        summary=samples.resource_summary(state="gone"), done=True
    )

    result = pwf(
        "resource", "delete", "disk", "a", "--wait", "--abandon", "--note", "why", "--leave-children"
    )

    payload = script.payload("resource.delete")
    assert (payload.abandon, payload.note, payload.children) == (True, "why", "leave")
    assert (script.payload("resource.wait").until, result.code) == ("gone", exits.OK)


@pytest.mark.parametrize("state", ["paused", "held", "ambiguous"])
def test_a_delete_that_waits_says_when_it_needs_a_person(pwf: Pwf, script: Script, state: Any) -> None:
    waited = wire.ResourceWaited(
        summary=samples.resource_summary(state=state, deleting_ms=samples.NOW), done=True
    )
    script.answers["resource.wait"] = waited

    result = pwf("resource", "delete", "disk", "a", "--wait")

    assert result.code == exits.NEEDS_PERSON
    assert f"disk/a  {state}" in result.out


def test_apply_says_which_part_besides_the_spec_is_another(pwf: Pwf, script: Script) -> None:
    for facts, said in (
        ({"new_code": True}, "with its manager's newer code"),
        ({"new_environment": True}, "in another environment"),
    ):
        script.answers["resource.apply"] = samples.applied(before=samples.value({"size": 3}), **facts)
        assert said in pwf("resource", "apply", "disk", "a", "--spec", '{"size": 3}').out


# --- managers -----------------------------------------------------------------------------------------------------


def test_managers_are_listed_with_what_wakes_them(pwf: Pwf, script: Script) -> None:
    lines = pwf("managers").out.splitlines()

    assert lines[1].split()[:5] == ["disk", "2", "project", "every", "5.0s"]
    assert "on changes of files" in lines[2]
    assert "error: no spec" in lines[2]


def test_one_manager_shows_what_its_spec_takes(pwf: Pwf, script: Script) -> None:
    out = pwf("managers", "disk").out

    assert "size: whole number" in out
    assert "deadline" in out


def test_a_workflow_is_no_manager(pwf: Pwf, script: Script) -> None:
    script.answers["workflow.describe"] = samples.described()

    result = pwf("managers", "release")

    assert result.code == exits.UNSOUND
    assert "pwf graph release" in result.err
