"""The turn about a step: opened by what my_step returned, ended by an accepted result, lost with the host."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from pwf.errors import ClaimLost, InvalidArgument, NotFound
from pwf.mcp import session as module
from pwf.mcp.serving import Attached, opened
from pwf.protocol.replies import RequestUpdated
from pwf.protocol.sessions import RunEnd
from pwf.protocol.views import SubmissionView
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon
from tests.mcp.conftest import Desk, Open, called, until

pytestmark = pytest.mark.anyio

RESULT = {"request": "q1", "revision": 2, "value": {"verdict": "ship"}}


async def test_a_step_that_was_returned_opens_its_turn_and_is_the_same_when_asked_again(
    mcp: Open, desk: Desk
) -> None:
    desk.ask()
    async with mcp() as client:
        assert await called(client, "my_step") == await called(client, "my_step")
        assert desk.turns == [("m1", "started")]


async def test_a_step_that_comes_while_a_call_waits_is_returned_at_once(mcp: Open, desk: Desk) -> None:
    async with mcp(wait_s_max=60) as client, anyio.create_task_group() as tasks:

        async def later() -> None:
            await anyio.sleep(0.05)
            desk.ask()

        tasks.start_soon(later)
        with anyio.fail_after(10):
            assert (await called(client, "my_step", wait_s=60))["request"] == "q1"


async def test_a_verdict_closes_the_turn_and_a_rejected_step_comes_again_with_the_reason(
    mcp: Open, desk: Desk, daemon: FakeDaemon
) -> None:
    desk.ask()
    answers = iter([samples.submitted(verdict="rejected", reason="no"), samples.submitted()])
    daemon.on("request.submit", lambda request, payload: next(answers))
    async with mcp() as client:
        await called(client, "my_step")
        assert (await called(client, "submit", **RESULT))["reason"] == "no"
        assert (desk.reports[-1].idle, desk.reports[-1].turn) == (True, None)
        assert desk.turns == [("m1", "started")], "lost: nobody says that it has ended"
        desk.ask("m2", submission=SubmissionView(status="rejected", reason="no date"))
        assert "no date" in (await called(client, "my_step"))["prompt"]
        assert (await called(client, "submit", **RESULT))["verdict"] == "accepted"
        assert desk.turns == [("m1", "started"), ("m2", "started"), ("m2", "ended")]


async def test_a_host_that_goes_away_loses_the_turn(mcp: Open, desk: Desk) -> None:
    desk.ask()
    async with mcp() as client:
        await called(client, "my_step")
        assert desk.reports[-1].idle
    assert (desk.reports[-1].idle, desk.reports[-1].turn) == (True, None)
    assert desk.turns == [("m1", "started")], (
        "and nobody says that it has ended, which a reminder would follow"
    )


async def test_a_host_that_is_silent_for_too_long_loses_the_turn_and_one_whose_call_waits_does_not(
    mcp: Open, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.05)
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    desk.ask()
    async with mcp() as client:
        await called(client, "my_step")
        await desk.reported(len(desk.reports) + 1)
    assert (desk.reports[-1].idle, desk.reports[-1].turn) == (True, None)


async def test_a_step_that_counts_for_nothing_any_more_is_stopped_and_the_next_one_is_given(
    mcp: Open, desk: Desk
) -> None:
    desk.ask()
    async with mcp() as client:
        await called(client, "my_step")
        desk.mark("cancelled")
        assert (await called(client, "my_step", wait_s=0))["state"] == "nothing"
        desk.ask("m2")
        assert (await called(client, "my_step"))["state"] == "step"
    assert desk.turns == [("m1", "started"), ("m1", "aborted"), ("m2", "started")]


async def test_a_step_that_another_has_settled_is_given_no_more_and_what_is_next_comes(
    mcp: Open, desk: Desk
) -> None:
    desk.ask()
    async with mcp() as client:
        await called(client, "my_step")
        desk.request = None  # its message stays sent until the turn has ended
        assert (await called(client, "my_step", wait_s=0))["state"] == "nothing"
        assert desk.turns == [("m1", "started"), ("m1", "ended")]
        desk.ask("m2", request_id="q2")
        assert (await called(client, "my_step"))["request"] == "q2"


async def test_the_end_of_a_run_is_told_once_as_data(mcp: Open, desk: Desk) -> None:
    end = RunEnd(workflow="release", status="completed", output=samples.value({"out": 1}))
    desk.say(kind="terminal", end=end)
    async with mcp() as client:
        told = await called(client, "my_step")
        assert (told["state"], told["status"], told["output"]) == ("ended", "completed", {"out": 1})
        assert (await called(client, "my_step", wait_s=0))["state"] == "nothing"
    assert desk.turns == [("m9", "started"), ("m9", "ended")]


async def test_words_for_the_session_start_no_turn(mcp: Open, desk: Desk) -> None:
    desk.say(kind="notification", text=samples.value("halfway"), starts_turn=False)
    async with mcp() as client:
        assert "halfway" in (await called(client, "my_step"))["text"]
    assert desk.turns == []
    assert "m9" in desk.reports[-1].branch


async def test_what_an_earlier_process_of_the_session_had_comes_again(mcp: Open, desk: Desk) -> None:
    desk.ask()
    desk.mark("sent")
    async with mcp() as client, anyio.create_task_group() as tasks:

        async def anew() -> None:
            await desk.reported(2)
            desk.ask("m2")

        tasks.start_soon(anew)
        assert (await called(client, "my_step", wait_s=5))["state"] == "step"
    assert ("m2", "started") in desk.turns


async def test_a_reply_goes_by_the_operation_of_replies_and_words_about_a_step_settle_nothing(
    mcp: Open, desk: Desk, daemon: FakeDaemon
) -> None:
    desk.ask(kind="assistant", schema={"type": "string"})
    daemon.on("request.assistant", lambda request, payload: samples.submitted())
    noted = RequestUpdated(request_id="q1", run_id=samples.RUN, revision=9)
    daemon.on("request.update", lambda request, payload: noted)
    words = {"request": "q1", "revision": 2}
    async with mcp() as client:
        said = await client.call_tool("my_step", {})
        assert "text, your reply" in said.content[0].text  # type: ignore[union-attr]
        assert (await called(client, "update", text="halfway", **words))["event"] == 9
        assert (await called(client, "ask", question="Which date?", **words))["shown"]
        assert desk.turns == [("m1", "started")]
        assert (await called(client, "submit", text="It is out.", **words))["verdict"] == "accepted"
    assert desk.turns[-1] == ("m1", "ended")
    assert len(daemon.of("request.assistant")) == 1


async def test_an_attached_host_whose_session_another_has_taken_is_told_to_attach_again(
    daemon: FakeDaemon, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWF_HOME", str(daemon.places.home))
    monkeypatch.setenv("PWF_NO_AUTOSTART", "1")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            attached = Attached(tasks, lambda session_id: opened(session_id, None, 5))
            handle = (await attached.attach("s1"))["session"]
            host = attached.of({"session": handle})
            daemon.on("session.view", lambda request, payload: ClaimLost("another connection has it"))
            with pytest.raises(ClaimLost):
                await host.own.session.view()
            with pytest.raises(NotFound, match="attach"):
                attached.of({"session": handle})
            # the host's task lets it go, and the group ends by itself


async def test_a_host_attaches_a_session_again_by_its_id_and_the_handle_before_is_no_longer_known(
    daemon: FakeDaemon, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWF_HOME", str(daemon.places.home))
    monkeypatch.setenv("PWF_NO_AUTOSTART", "1")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            attached = Attached(tasks, lambda session_id: opened(session_id, None, 5))
            first, other = await attached.attach("desk"), await attached.attach()
            again = await attached.attach("desk")
            assert (first["id"], again["id"]) == ("desk", "desk")
            assert len({first["session"], again["session"], other["session"]}) == 3
            assert attached.of({"session": again["session"]}).own.session_id == "desk"
            assert attached.of({"session": other["session"]}).own.session_id == other["id"]
            with pytest.raises(NotFound, match="attach"):
                attached.of({"session": first["session"]})
            with pytest.raises(InvalidArgument, match="session id"):
                await attached.attach("no\nid")
            tasks.cancel_scope.cancel()


async def test_words_said_again_at_once_are_said_once_and_later_they_are_new(
    mcp: Open, desk: Desk, daemon: FakeDaemon
) -> None:
    desk.ask()
    noted = RequestUpdated(request_id="q1", run_id=samples.RUN, revision=9)
    daemon.on("request.update", lambda request, payload: noted)
    words = {"request": "q1", "revision": 2}
    async with mcp() as client:
        for text in ("half", "half", "done", "half"):
            await called(client, "update", text=text, **words)
        await called(client, "ask", question="half", **words)
    keys = [request.idempotency_key for request in daemon.of("request.update")]
    assert None not in keys
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_of_what_was_counted_the_newest_keys_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTED_MAX", 2)
    counts = module.Counts()
    for key in ("a", "b", "a", "c"):
        counts.add(key)
    assert [counts.of(key) for key in ("a", "b", "c")] == [2, 0, 1]


async def test_a_call_that_a_later_one_has_replaced_takes_nothing(mcp: Open, desk: Desk) -> None:
    said: list[dict[str, Any]] = []
    async with mcp(wait_s_max=30) as client, anyio.create_task_group() as tasks:

        async def ask() -> None:
            said.append(await called(client, "my_step", wait_s=30))

        with anyio.fail_after(10):
            tasks.start_soon(ask)  # its host has given it up without a word
            await anyio.sleep(0.05)
            async with anyio.create_task_group() as second:
                second.start_soon(ask)
                await anyio.sleep(0.05)
                desk.say(kind="terminal", end=RunEnd(workflow="release", status="completed"))
                await until(lambda: bool(said))
            await until(lambda: len(said) == 2)
    assert sorted(one["state"] for one in said) == ["ended", "nothing"]
