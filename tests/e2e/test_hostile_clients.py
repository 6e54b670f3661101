"""Whatever a client sends, it gets one answer, and the daemon goes on serving the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pwf.protocol.operations import OPERATIONS
from tests.e2e.home import Home
from tests.e2e.raw import Raw, origin
from tests.e2e.world import World

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

STRINGS = json.loads((Path(__file__).parents[1] / "data" / "strings" / "blns.json").read_text())

ECHO = """
flow = Workflow("echo", input=dict)

@flow.compute
def same(ctx):
    return ctx.input
"""


@pytest.fixture
def home(world: World) -> Home:
    """Of the shared daemon, which serves."""
    world.home.workflow("echo", ECHO)
    world.client.call("daemon.status")
    return world.home


@pytest.fixture
def raw(home: Home) -> Iterator[Raw]:
    found = Raw(home)
    yield found
    found.close()


def assert_unharmed(home: Home, pid: int) -> None:
    home.run("ls")
    assert home.pid == pid
    failed = [
        line
        for line in home.log()
        if line["event"] in ("request.failed", "daemon.failed", "connection.failed")
    ]
    assert failed == []


NUMBERS = [0, -1, 2**31, 2**53, 2**63, 2**64, -(2**70), 10**400]


def test_numbers_that_no_column_holds_are_refused_in_every_operation(home: Home, raw: Raw) -> None:
    pid = home.pid
    run_id = home.start("echo", "--input", "{}")
    numeric = {
        "run.list": ("limit", "cursor"),
        "run.events": ("after_revision", "limit"),
        "run.view": ("before_attempt", "limit"),
        "run.wait": ("timeout_ms",),
        "request.list": ("limit",),
        "effect.list": ("limit",),
    }
    for operation, fields in numeric.items():
        for field in fields:
            for number in NUMBERS:
                if (operation, number) == ("run.wait", 2**31):
                    continue  # a proper wait for an ended run is answered; this one is only long
                raw.ask(operation, {field: number}, run_id=run_id)
    for number in NUMBERS:
        for field in ("at_ms", "priority"):
            started = {"workflow": "echo", "origin": origin(home), "input": {}, field: number}
            answer = raw.ask("run.start", started)
            if answer["outcome"] == "accepted":
                raw.ask("run.cancel", {}, run_id=answer["result"]["run_id"])
        raw.ask("run.pause", {}, run_id=run_id, expected_revision=number)
        raw.ask("content.read", {"digest": "0" * 64, "offset": number}, run_id=run_id)
        raw.ask("view.subscribe", {"id": f"n{number}", "view": "runs", "query": {"limit": number}})
    assert_unharmed(home, pid)


def test_hostile_strings_are_ids_keys_names_and_references_that_are_answered(home: Home, raw: Raw) -> None:
    pid = home.pid
    for text in STRINGS:
        raw.ask("run.status", {}, run_id=text)
        raw.ask("run.list", {"workflow": text})
        raw.ask("request.answer", {"request_id": text, "answer": text})
        raw.ask("content.read", {"digest": text}, run_id=text)
        # A key is one command's of the user: the text alone is another test's key in the same home.
        raw.ask("run.cancel", {"reason": text}, run_id="@last", idempotency_key=f"cancel {text}")
        raw.ask("workflow.describe", {"workflow": text, "origin": origin(home)})
        raw.ask("view.subscribe", {"id": text, "view": "run"}, run_id=text)
        raw.ask(text, {})
        wrong_place = {**origin(home), "cwd": text}
        raw.ask("run.start", {"workflow": "echo", "origin": wrong_place, "input": {}})
    assert_unharmed(home, pid)


def test_hostile_strings_come_back_from_a_run_as_they_went_in(home: Home, raw: Raw) -> None:
    texts = {f"k{number}": text for number, text in enumerate(STRINGS)} | dict.fromkeys(STRINGS, "key")
    asked = {"workflow": "echo", "origin": origin(home), "input": texts, "run_id": "hostile"}
    answer = raw.ask("run.start", asked)
    assert answer["outcome"] == "accepted", answer
    raw.ask("run.wait", {"timeout_ms": 30_000}, run_id="hostile")
    assert json.loads(home.run("show", "hostile", "--output").stdout) == texts


@pytest.mark.parametrize(
    "value",
    [
        "[" * 200 + "]" * 200,
        '{"a": 1, "a": 2}',
        '"\\ud800"',
        "1e999",
        '{"a": "' + "x" * 900_000 + '"}',
    ],
    ids=["deep", "doubled-key", "lone-surrogate", "infinite", "large"],
)
def test_input_that_is_not_canonical_is_refused_or_kept_whole(home: Home, raw: Raw, value: str) -> None:
    pid = home.pid
    raw._socket.sendall(
        (
            '{"type":"request","request_id":"v","client_id":"raw","operation":"run.start","payload":'
            f'{{"workflow":"echo","origin":{json.dumps(origin(home))},"input":{value}}}}}\n'
        ).encode()
    )
    answer = raw.receive()
    if answer.get("outcome") == "accepted":
        assert len(value) > 1_000
        home.wait_status(answer["result"]["run_id"], "completed")
        assert json.loads(home.run("show", "@last", "--output").stdout) == json.loads(value)
    else:
        assert answer["error"]["code"] in ("invalid_value", "invalid_input", "protocol_rejected")
    assert_unharmed(home, pid)


def test_every_operation_answers_an_empty_and_a_wrong_payload(home: Home, raw: Raw) -> None:
    pid = home.pid
    for operation in OPERATIONS:
        if operation == "daemon.stop":
            continue
        wrong: tuple[object, ...] = ({"no_such_field": 1}, [], None, "x", 7)
        for payload in wrong:
            answer = raw.ask(operation, payload, run_id="nothing")
            assert answer["outcome"] == "rejected", (operation, payload, answer)
    assert_unharmed(home, pid)


def test_a_repeat_under_one_key_gives_the_first_answer_and_another_command_a_conflict(
    home: Home, raw: Raw
) -> None:
    started = {"workflow": "echo", "origin": origin(home), "input": {"a": 1}}
    first = raw.ask("run.start", started, idempotency_key="raw-1")
    again = raw.ask("run.start", started, idempotency_key="raw-1")
    other = raw.ask("run.start", {**started, "input": {"a": 2}}, idempotency_key="raw-1")
    assert (first["outcome"], again["outcome"], other["outcome"]) == ("accepted", "adopted", "conflict")
    assert again["result"]["run_id"] == first["result"]["run_id"]

    run_id = first["result"]["run_id"]
    raw.ask("run.wait", {"timeout_ms": 30_000}, run_id=run_id)
    refused = raw.ask("run.pause", {}, run_id=run_id, idempotency_key="raw-2")
    repeated = raw.ask("run.pause", {}, run_id=run_id, idempotency_key="raw-2")
    assert refused["outcome"] == repeated["outcome"] == "rejected"
    assert refused["error"] == repeated["error"]
    assert raw.ask("run.cancel", {}, run_id=run_id, idempotency_key="raw-2")["outcome"] == "conflict"
