"""Sessions of agents over real connections: attached, taken over, let go, and what they may not do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.raw import Raw
from tests.e2e.world import PATIENCE_S, World, wait_for

TALK = """
flow = Workflow("talk")

@flow.agent(returns=str)
def review(ctx):
    return "Look at it."

@flow.compute
def done(ctx) -> str:
    return ctx[review] + "!"

flow.graph(review >> done)
"""


@pytest.fixture
def connect(world: World) -> Iterator[Any]:
    world.client.call("daemon.status")
    opened: list[Raw] = []

    def raw(session_id: str | None = None) -> Raw:
        opened.append(Raw(world.home))
        if session_id is not None:
            assert opened[-1].ask("session.attach", {"session_id": session_id})["outcome"] == "accepted"
        return opened[-1]

    yield raw
    for one in opened:
        one.close()


def listed(world: World, session_id: str) -> dict[str, Any]:
    found = world.home.json("sessions")["sessions"]
    return next(one for one in found if one["session_id"] == session_id)


def test_a_session_is_the_last_connections_that_attached_it_and_is_let_go_with_that(
    world: World, connect: Any
) -> None:
    first = connect("taken-over")
    assert (listed(world, "taken-over")["epoch"], listed(world, "taken-over")["connected"]) == (1, True)
    second = connect("taken-over")

    assert first.ask("session.view", {})["outcome"] == "claim_lost"
    assert second.ask("session.view", {})["result"]["epoch"] == 2
    again = second.ask("session.attach", {"session_id": "taken-over"})
    assert (again["outcome"], again["result"]["epoch"]) == ("adopted", 2)
    second.close()
    wait_for(lambda: not listed(world, "taken-over")["connected"], PATIENCE_S)


def test_a_session_sees_itself_only_and_may_do_no_more_than_it_is_for(world: World, connect: Any) -> None:
    agent, other = connect("curious"), connect("other")

    assert agent.ask("session.view", {"session_id": "other"})["outcome"] == "rejected"
    assert agent.ask("session.attach", {"session_id": "other"})["outcome"] == "rejected"
    for operation in ("session.list", "state.status", "resource.list", "daemon.stop"):
        refused = agent.ask(operation, {})
        assert (operation, refused["outcome"]) == (operation, "rejected")
        assert "a session may not" in refused["error"]["message"]
    assert other.ask("session.view", {})["outcome"] == "accepted"


def next_message(agent: Raw, kind: str) -> dict[str, Any]:
    """The session's message, once it is of this kind."""

    def look() -> dict[str, Any] | None:
        found = agent.ask("session.view", {})["result"]["message"]
        return found if found is not None and found["kind"] == kind else None

    return wait_for(look, PATIENCE_S)  # type: ignore[return-value]


def test_a_run_of_a_session_goes_from_the_command_line_to_its_model_and_back(
    world: World, connect: Any
) -> None:
    world.home.workflow("talk", TALK)
    agent, other = connect("worker"), connect("stranger")
    agent.ask("session.report", {"idle": True})
    run_id = world.home.start("talk", "--session", "worker")

    step = next_message(agent, "step")
    view = agent.ask("session.view", {})["result"]
    assert (step["status"], view["request"]["prompt"]["json"]) == ("pending", "Look at it.")
    for refused in (
        other.ask("run.view", {}, run_id=run_id),
        other.ask("run.cancel", {}, run_id=run_id),
        other.ask("view.subscribe", {"id": "s", "view": "run"}, run_id=run_id),
        other.ask("request.submit", {"request_id": step["request_id"], "value": "mine"}),
    ):
        assert refused["outcome"] == "not_found"
    turn = {"turn_id": "t1", "message_id": step["message_id"]}
    assert agent.ask("session.turn", {**turn, "state": "started"})["result"]["standing"] == "active"
    submitted = agent.ask("request.submit", {"request_id": step["request_id"], "value": "fine"})
    assert submitted["result"]["verdict"] == "accepted"
    assert agent.ask("session.turn", {**turn, "state": "ended"})["result"]["standing"] == "settled"

    told = next_message(agent, "terminal")
    assert (told["end"]["status"], told["end"]["output"]["json"]) == ("completed", "fine!")
    assert listed(world, "worker")["run_id"] is None
    assert agent.ask("session.clear", {"run_id": run_id})["outcome"] == "accepted"


def test_a_start_for_a_session_that_there_is_not_says_where_to_look(world: World) -> None:
    world.home.workflow("talk", TALK)
    refused = world.home.run("run", "talk", "--session", "nobody", code=None)
    assert refused.returncode != 0
    assert "pwf sessions" in refused.stderr


def test_a_session_names_what_has_started_it_as_its_agent_and_nothing_else(
    world: World, connect: Any
) -> None:
    agent = connect()
    for stranger in (
        1,
        os.getpid(),
        world.home.pid,
    ):  # the first of all, itself, and one that has not started it
        refused = agent.ask("session.attach", {"session_id": "hosted", "host_pid": stranger})
        assert refused["outcome"] == "rejected"
    assert (
        agent.ask("session.attach", {"session_id": "hosted", "host_pid": os.getppid()})["outcome"]
        == "accepted"
    )


REPLIES = """
flow = Workflow("replies")

@flow.agent(returns=assistant_message(max_chars=20))
def tell(ctx):
    return "Tell it."
"""


def test_a_session_reports_its_reply_and_how_it_goes_and_nobody_else_does(world: World, connect: Any) -> None:
    world.home.workflow("replies", REPLIES)
    agent, other, person = connect("teller"), connect("listener"), connect()
    agent.ask("session.report", {"idle": True})
    run_id = world.home.start("replies", "--session", "teller")
    request_id = next_message(agent, "step")["request_id"]

    said = agent.ask("request.update", {"request_id": request_id, "data": {"label": "thinking"}})
    assert said["outcome"] == "accepted"
    assert said["result"]["revision"] == said["revision"]
    reply = {"request_id": request_id, "text": "It is out."}
    assert other.ask("request.assistant", reply)["outcome"] == "not_found"
    assert other.ask("request.update", {"request_id": request_id, "data": 1})["outcome"] == "not_found"
    assert person.ask("request.assistant", reply)["outcome"] == "rejected"
    assert agent.ask("request.assistant", {**reply, "text": "x" * 21})["outcome"] == "rejected"
    assert agent.ask("request.assistant", reply)["result"]["verdict"] == "accepted"
    assert world.output(run_id) == "It is out."
    assert [update.kind for update in world.view(run_id).updates] == ["progress"]
    entries = [{"kind": "reply", "data": "It is out."}]
    record = {"run_id": run_id, "entries": entries}
    assert agent.ask("session.record", record)["result"]["following"] == 1
    assert agent.ask("session.record", record)["result"]["following"] == 1
    assert other.ask("session.record", record)["outcome"] == "not_found"
    assert person.ask("session.record", record)["outcome"] == "rejected"
    assert '"It is out."' in world.home.run("sessions", "--transcript", run_id).stdout
