"""Sessions of agents over real connections: attached, taken over, let go, and what they may not do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.raw import Raw
from tests.e2e.world import PATIENCE_S, World, wait_for


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
    found = json.loads(world.home.run("sessions", "--json").stdout)["sessions"]
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
