"""`pwf requests` and `pwf answer`: what a question takes is shown, and read as the prompt reads it."""

from __future__ import annotations

from typing import Any

import msgspec
import pexpect
import pytest

from pwf.cli import exits
from pwf.cli.out import UsageError
from pwf.cli.reading import read_answer, read_line
from pwf.errors import InvalidAnswer
from pwf.present.form import example, form_lines
from pwf.protocol.operations import (
    Answered,
    Explained,
    RequestList,
    RequestListPayload,
    Submitted,
    WaitResult,
)
from tests.cli.conftest import Pwf, Spawn
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

REQUEST = "q1w2e3r4t5y6"
VERDICT: dict[str, Any] = {
    "$ref": "#/$defs/V",
    "$defs": {
        "V": {
            "type": "object",
            "properties": {
                "ship": {"type": "boolean"},
                "why": {"type": "string", "default": ""},
                "level": {"anyOf": [{"enum": ["low", "high"]}, {"type": "null"}]},
            },
            "required": ["ship"],
        }
    },
}


@pytest.fixture
def given(daemon: FakeDaemon) -> list[tuple[str, bytes]]:
    """The answers that the daemon has taken."""
    found: list[tuple[str, bytes]] = []

    def take(request: Any, payload: Any) -> Any:
        found.append((payload.request_id, bytes(payload.answer)))
        return Answered(request_id=REQUEST, run_id=samples.RUN, status="queued", revision=4)

    asks(daemon, None)
    daemon.on("request.answer", take)
    return found


def asks(daemon: FakeDaemon, schema: Any, **changes: Any) -> None:
    request = samples.request(schema=schema, **changes)
    daemon.on("request.list", lambda _, payload: RequestList(requests=(request,)))


@pytest.mark.parametrize("verb", ["answer", "submit"])
def test_a_request_of_another_kind_names_its_command_before_what_was_typed_is_read(
    pwf: Pwf, daemon: FakeDaemon, verb: str
) -> None:
    schema = {"type": "object", "properties": {"choice": {"enum": ["ship", "fix"]}}, "required": ["choice"]}
    asks(daemon, schema, kind="decision")
    done = pwf(verb, REQUEST, "ship")
    assert done.code == exits.REFUSED
    assert f"of kind decision; pwf {verb} is not for that" in done.err
    assert f"pwf decide {REQUEST} ship" in done.err


# --- the form -------------------------------------------------------------------------------------------------


def test_the_form_says_fields_types_choices_defaults_and_what_may_be_left_out() -> None:
    assert form_lines(VERDICT) == [
        "ship: yes or no, required",
        'why: text = ""',
        'level: "low" | "high" or null, may be left out',
    ]
    assert form_lines({"type": "boolean"}) == ["yes or no"]
    assert form_lines(None) == ["any JSON, or text"]


@pytest.mark.parametrize(
    "schema",
    [
        VERDICT,
        {"type": "boolean"},
        {"enum": ["a", "b"]},
        {"enum": [1]},
        {"type": "string"},
        {"type": "integer"},
        None,
    ],
)
def test_the_example_of_a_form_is_an_answer_that_it_takes(schema: Any) -> None:
    import shlex

    from pwf.actors.code.schemas import Schemas
    from pwf.values import canonical

    value = read_answer(shlex.split(example(schema)), [], schema)
    Schemas().check_answer("q", schema, canonical(value), "checkpoint")


def test_requests_show_explain_and_the_followed_run_show_the_form_and_a_command(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    asks(daemon, VERDICT)
    head = samples.summary(status="waiting", request_id=REQUEST)
    view = samples.run_view(summary=head, request=samples.request(schema=VERDICT))
    daemon.on("run.view", lambda request, payload: view)
    why = msgspec.structs.replace(samples.explanation(), commands=(f"pwf answer {REQUEST}", "pwf cancel k3"))
    view = msgspec.structs.replace(view, explanation=why)
    daemon.on("run.status", lambda request, payload: Explained(summary=head, explanation=why))
    daemon.on("run.wait", lambda request, payload: WaitResult(summary=head, done=True))
    listed = pwf("requests")
    assert "ship: yes or no, required; why: text" in listed.out
    assert "Ship it?" in listed.out
    assert listed.err == f"for the first, type:  pwf answer {REQUEST} ship=yes\n"
    for command in ("show", "explain"):
        shown = pwf(command, "k3").out
        for part in (
            "ship: yes or no, required",
            'why: text = ""',
            f"pwf answer {REQUEST} ship=yes",
            "Ship it?",
        ):
            assert part in shown
        assert f"pwf answer {REQUEST}\n" not in shown
    assert f"  pwf answer {REQUEST} ship=yes\n" in pwf("wait", "k3", "--until", "parked").err


def test_a_reason_of_several_lines_is_one_line_without_escapes(pwf: Pwf, daemon: FakeDaemon) -> None:
    why = msgspec.structs.replace(
        samples.explanation(), reason="it exited with 1\nthe end of its stdout:\n\nno"
    )
    daemon.on("run.status", lambda request, payload: Explained(summary=samples.summary(), explanation=why))
    assert "why:      it exited with 1; the end of its stdout:; no  (" in pwf("explain", "k3").out


# --- one reader for the command and the prompt ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "string"}, "ship it now", "ship it now"),
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, '"quoted"', "quoted"),
        ({"type": "integer"}, "5", 5),
        ({"enum": ["ship", "fix"]}, "ship", "ship"),
        ({"anyOf": [{"enum": ["ship"]}, {"type": "integer"}]}, "7", 7),
        (VERDICT, '{"ship": true}', {"ship": True}),
        (VERDICT, "ship=yes", {"ship": True}),
        (VERDICT, "ship=no why='not yet'", {"ship": False, "why": "not yet"}),
        (VERDICT, "ship=yes level=high", {"ship": True, "level": "high"}),
        (None, "ship it", "ship it"),
        (None, '{"a": 1}', {"a": 1}),
        (None, "3", 3),
    ],
)
def test_the_command_and_the_prompt_read_an_answer_alike(schema: Any, typed: str, value: Any) -> None:
    import shlex

    assert read_line(typed, schema) == value
    words = [typed] if typed[0] in '{"' else shlex.split(typed)
    assert read_answer(words, [], schema) == value


@pytest.mark.parametrize(
    ("schema", "typed", "said"),
    [
        ({"enum": ["ship", "fix"]}, "maybe", '\'maybe\' does not fit; it takes "ship" | "fix"'),
        ({"type": "boolean"}, "perhaps", "'perhaps' does not fit; it takes yes or no"),
        (VERDICT, "ship it", "'ship it' does not fit; it takes object"),
        (VERDICT, "ship=perhaps", "ship: 'perhaps' does not fit; it takes yes or no"),
    ],
)
def test_what_the_type_has_no_room_for_is_refused_with_an_example(schema: Any, typed: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_line(typed, schema)
    assert said in caught.value.message
    assert "for example " in (caught.value.hint or "")


def test_a_submission_is_for_the_revision_that_was_seen(pwf: Pwf, daemon: FakeDaemon) -> None:
    seen = samples.request(kind="agent", revision=3)
    meant = []

    def find(_request: Any, payload: RequestListPayload) -> RequestList:
        meant.append(payload.kinds)
        return RequestList(requests=(seen,))

    daemon.on("request.list", find)
    revisions = []

    def take(_request: Any, payload: Any) -> Submitted:
        revisions.append(payload.revision)
        return Submitted(request_id=REQUEST, run_id=seen.run_id, status="queued", revision=4)

    daemon.on("request.submit", take)
    assert pwf("submit", "q1", "1").code == exits.OK
    assert pwf("submit", "q1", "1", "--revision", "2").code == exits.OK
    assert (revisions, meant) == ([3, 2], [("agent", "assistant")] * 2)


def test_an_answer_is_made_of_words_and_set_fields(pwf: Pwf, daemon: FakeDaemon, given: list[Any]) -> None:
    asks(daemon, VERDICT)
    assert pwf("answer", "q1", "--set", "ship=yes", "--set", "why=1.40").code == exits.OK
    assert pwf("answer", "q1", '{"ship": false}', "--set", "why=late").code == exits.OK
    assert pwf("answer", "@last", "ship=yes", "why=a b").code == exits.OK
    assert given == [
        (REQUEST, b'{"ship":true,"why":"1.40"}'),
        (REQUEST, b'{"ship":false,"why":"late"}'),
        (REQUEST, b'{"ship":true,"why":"a b"}'),
    ]
    asked = [
        msgspec.json.decode(one.payload, type=RequestListPayload).request for one in daemon.of("request.list")
    ]
    assert asked == ["q1", "q1", "@last"]


def test_json_where_anything_goes_is_checked_before_it_is_taken_for_text(
    pwf: Pwf, daemon: FakeDaemon, given: list[Any]
) -> None:
    assert pwf("answer", "q1", '{"b": 1, "a": null}').code == exits.OK
    assert given == [(REQUEST, b'{"a":null,"b":1}')]
    assert pwf("answer", "q1", '{"b": 1').code == exits.USAGE
    daemon.on("request.answer", lambda request, payload: InvalidAnswer("3 is not one of …"))
    assert pwf("answer", "q1", "3").code == exits.USAGE


def test_without_an_answer_the_question_is_shown_with_what_it_takes(
    pwf: Pwf, daemon: FakeDaemon, given: list[Any]
) -> None:
    asks(daemon, VERDICT)
    result = pwf("answer", "q1")
    assert result.code == exits.USAGE
    assert result.out == (
        "? review asks\n  Ship it?\n"
        '    ship: yes or no, required\n    why: text = ""\n    level: "low" | "high" or null, may be left out\n'
    )
    assert result.err == f"pwf: no answer was given\nhint: pwf answer {REQUEST} ship=yes\n"
    asks(daemon, VERDICT, status="settled")
    assert pwf("answer", "q1").code == exits.REFUSED
    assert given == []


def test_at_a_terminal_an_answer_is_asked_for_until_it_fits(
    daemon: FakeDaemon, terminal: Spawn, given: list[Any]
) -> None:
    asks(daemon, VERDICT)
    child = terminal("answer", "q1", NO_COLOR="1")
    child.expect("Ship it")
    child.expect("answer> ")
    child.sendline("perhaps")
    child.expect("does not fit")
    child.expect("answer> ")
    child.sendline("ship=no why='not yet'")
    child.expect(f"answered  {REQUEST}")
    child.expect(pexpect.EOF)
    assert given == [(REQUEST, b'{"ship":false,"why":"not yet"}')]
