"""What a host is offered, and what each tool asks of the daemon."""

from __future__ import annotations

from typing import Any, cast

import anyio
import msgspec
import pytest

from pwf.client.aio import Client
from pwf.errors import Conflict, Rejected
from pwf.mcp import arguments, server, tools
from pwf.mcp.session import HostSession
from pwf.mcp.tools import TOOLS
from pwf.places import places
from pwf.protocol import operations as ops
from pwf.protocol.views import SubmissionView
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon
from tests.mcp.conftest import Desk, Open

pytestmark = pytest.mark.anyio

WORKER = {"my_step", "submit", "update", "ask", "status", "explain"}
OPERATOR = {"workflows", "runs", "start", "pause", "resume", "cancel", "restart"}
#: What no model may say, by the words of its operations.
PEOPLES = ("decision", "answer", "effect", "recover", "resolve", "budget", "fork", "retry", "stop", "prune")


async def test_each_grant_offers_its_tools_and_no_word_that_is_a_persons(mcp: Open) -> None:
    async with mcp("worker") as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == WORKER
    async with mcp("operator") as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == WORKER | OPERATOR
    assert not [name for name in TOOLS for word in PEOPLES if word in name]


async def test_a_tool_of_another_grant_is_refused_and_asks_nothing_of_the_daemon(
    mcp: Open, daemon: FakeDaemon
) -> None:
    async with mcp("worker") as client:
        for name in OPERATOR:
            assert (await client.call_tool(name, {"run": "k3"})).is_error, name
    assert {request.operation for request in daemon.requests} <= {
        "session.attach",
        "session.report",
        "view.subscribe",
        "view.unsubscribe",
    }


async def test_schemas_are_plain_objects(mcp: Open) -> None:
    async with mcp("operator") as client:
        for tool in (await client.list_tools()).tools:
            assert tool.input_schema["type"] == "object"
            for name, part in tool.input_schema["properties"].items():
                assert isinstance(part["type"], str), (tool.name, name)
                assert not {"$ref", "oneOf", "anyOf", "allOf", "not"} & set(part), (tool.name, name)


async def test_a_step_says_what_to_do_what_it_returns_and_what_was_wrong_before(
    mcp: Open, desk: Desk
) -> None:
    desk.ask(why="no date")
    async with mcp() as client:
        said = await client.call_tool("my_step", {})
    assert said.structured_content is not None
    assert said.structured_content["prompt"].startswith("Ship it?")
    assert said.structured_content["revision"] == 2
    assert "Ship it?" in said.content[0].text  # type: ignore[union-attr]
    assert "no date" in said.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("status", "says"), [("rejected", "was rejected: no file"), ("validating", "still being judged")]
)
async def test_a_step_says_what_became_of_what_was_submitted_and_not_that_nothing_was(
    mcp: Open, desk: Desk, status: Any, says: str
) -> None:
    submission = SubmissionView(status=status, submitted_ms=1, reason="no file")
    desk.ask(submission=submission)
    assert desk.message is not None
    desk.message = msgspec.structs.replace(desk.message, reason="reminder")
    async with mcp() as client:
        text = (await client.call_tool("my_step", {})).content[0].text  # type: ignore[union-attr]
    assert says in text
    assert "Nothing was submitted" not in text


async def test_a_wait_comes_back_within_the_bound_and_says_ask_again(mcp: Open) -> None:
    with anyio.fail_after(10):
        async with mcp(wait_s_max=0.05) as client:
            said = await client.call_tool("my_step", {"wait_s": 3600})
    assert said.structured_content == {"state": "nothing", "ask_again": True}


async def test_while_a_call_waits_a_host_that_asked_for_it_hears_so(
    mcp: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PROGRESS_S", 0.01)
    heard = anyio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.set()

    async with mcp(wait_s_max=30) as client, anyio.create_task_group() as tasks:
        with anyio.fail_after(10):
            tasks.start_soon(lambda: client.call_tool("my_step", {"wait_s": 30}, progress_callback=hear))
            await heard.wait()
        tasks.cancel_scope.cancel()


async def test_a_submission_that_is_judged_too_long_says_ask_again_and_the_repeat_is_the_same(
    mcp: Open, daemon: FakeDaemon
) -> None:
    words = {"request": "q1", "revision": 1, "value": {"verdict": "ship"}}
    daemon.on("request.submit", lambda request, payload: None)
    for _ in range(2):
        async with mcp(wait_s_max=0.05) as client:
            said = await client.call_tool("submit", words)
        assert said.structured_content == {"verdict": "validating", "ask_again": True}
    first, second = daemon.wait_for("request.submit", 2)
    assert first.idempotency_key == second.idempotency_key
    assert bytes(first.payload) == bytes(second.payload)


async def test_a_value_that_was_rejected_is_judged_anew_when_it_is_submitted_again(
    mcp: Open, daemon: FakeDaemon
) -> None:
    words = {"request": "q1", "revision": 1, "json": '"done"'}
    daemon.on(
        "request.submit", lambda request, payload: samples.submitted(verdict="rejected", reason="no file")
    )
    async with mcp() as client:
        assert "no file" in (await client.call_tool("submit", words)).content[0].text  # type: ignore[union-attr]
        await client.call_tool("submit", words)
    assert len({request.idempotency_key for request in daemon.of("request.submit")}) == 2


async def test_the_same_start_is_made_once_and_another_key_begins_another(
    mcp: Open, daemon: FakeDaemon
) -> None:
    daemon.on("run.start", lambda request, payload: samples.started())
    async with mcp("operator") as client:
        for key in ("", "", "again"):
            await client.call_tool("start", {"workflow": "release", "key": key})
    async with mcp("operator", session="s2") as client:
        await client.call_tool("start", {"workflow": "release"})
    keys = [request.idempotency_key for request in daemon.of("run.start")]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


async def test_what_was_refused_is_asked_anew_when_it_is_called_again(mcp: Open, daemon: FakeDaemon) -> None:
    started = iter([Conflict("a run goes on"), samples.started()])
    daemon.on("run.start", lambda request, payload: next(started))
    judged = iter([Conflict("still being validated"), samples.submitted()])
    daemon.on("request.submit", lambda request, payload: next(judged))
    calls = {
        "start": {"workflow": "release"},
        "submit": {"request": "q1", "revision": 1, "value": {"verdict": "ship"}},
    }
    async with mcp("operator") as client:
        for name, given in calls.items():
            assert (await client.call_tool(name, given)).is_error
            for _ in range(2):
                assert not (await client.call_tool(name, given)).is_error
    for operation in ("run.start", "request.submit"):
        first, second, third = (request.idempotency_key for request in daemon.of(operation))
        assert first != second
        assert second == third


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("my_step", {"wait": 1}, "unknown field"),
        ("submit", {"request": "q1", "revision": 1}, "give one of"),
        ("submit", {"request": "q1", "revision": 1, "json": "{"}, "json"),
        ("status", {"run": 3}, "`str`"),
        ("nothing", {}, "no tool"),
    ],
)
async def test_wrong_arguments_are_an_error_that_a_model_can_read(
    mcp: Open, name: str, given: dict[str, Any], says: str
) -> None:
    async with mcp() as client:
        said = await client.call_tool(name, given)
    assert said.is_error
    assert says in said.content[0].text  # type: ignore[union-attr]


async def test_a_refusal_is_told_without_what_a_person_would_type(mcp: Open, daemon: FakeDaemon) -> None:
    refusal = Rejected("the run waits for a decision", hint="pwf decide q1 ship")
    daemon.on("run.resume", lambda request, payload: refusal)
    async with mcp("operator") as client:
        said = await client.call_tool("resume", {"run": "k3"})
    assert said.is_error
    assert said.structured_content == {"error": "rejected", "message": "the run waits for a decision"}


async def test_a_long_wait_for_a_run_is_bounded_by_what_was_asked_and_not_by_the_client() -> None:
    asked: list[tuple[Any, float | None]] = []

    class Asked(Client):
        async def call(
            self, operation: str, payload: Any = None, *, timeout_s: float | None = 120, **more: Any
        ) -> Any:
            asked.append((payload, timeout_s))
            return ops.WaitResult(summary=samples.summary(), done=False)

    client = Asked(places(), autostart=False)
    host = tools.Host(cast(HostSession, None), client, wait_s_max=3_600)
    await tools.status(host, arguments.Status(run="k3", wait_s=3_000))
    [(payload, timeout_s)] = asked
    assert payload == ops.WaitPayload(until="parked", timeout_ms=3_000_000)
    assert timeout_s is not None
    assert timeout_s > 3_000
