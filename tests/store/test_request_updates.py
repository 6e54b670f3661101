"""What the holder of a request says of its work: kept in place of what it said before, and an event with its number."""

from __future__ import annotations

from typing import Any

import pytest

from pwf.errors import ClaimLost, Conflict, NotFound, Rejected, ValueTooLarge
from pwf.protocol.runner import UPDATE_BYTES_MAX, UPDATES_MAX
from pwf.store import request_updates
from pwf.store.request_updates import UpdateRequest, update_request
from pwf.values import canonical
from tests.store.session_world import Session
from tests.store.world import World, graph, node


def say(world: World, holder: Session, data: object = "half", **more: Any) -> Any:
    facts = {
        "request_id": holder.view.request.request_id if holder.view.request else "",
        "kind": "progress",
    }
    command = UpdateRequest(
        **{
            **facts,
            "key": "agent",
            "data": canonical(data),
            "actor": "session:chat",
            "session": holder.fence,
            **more,
        }
    )
    return world.do(update_request, command)


def test_an_update_replaces_the_last_one_and_is_answered_with_its_event(world):
    session = Session(world)
    run_id = session.asked()
    first, second = say(world, session), say(world, session, "done soon")

    view = world.view(run_id)
    assert [bytes(update.data) for update in view.updates] == [b'"done soon"']
    assert (first.revision, second.revision) == (view.summary.revision - 1, view.summary.revision)
    kinds = [row[0] for row in world.sql("SELECT kind FROM events ORDER BY entity_no, revision")]
    assert kinds.count("request_updated") == 2
    assert session.view.request is not None
    assert session.submit("fine").verdict == "accepted"


def test_only_the_holder_of_an_open_request_at_its_revision_may(world):
    session, other = Session(world), Session(world, "other")
    session.asked()
    request_id = session.view.request.request_id
    with pytest.raises(NotFound):
        say(world, other, request_id=request_id)
    with pytest.raises(Conflict, match="revision"):
        say(world, session, request_revision=2)
    stale = session.fence
    session.attach()
    with pytest.raises(ClaimLost):
        say(world, session, session=stale)
    session.submit("fine")
    with pytest.raises(Rejected, match="settled"):
        say(world, session, request_id=request_id)


def test_a_question_of_another_kind_takes_none(world):
    runner = world.run(graph(node("a", "checkpoint")))
    runner.ask()
    runner.leave()
    asked = world.view(runner.run_id).request
    with pytest.raises(Rejected, match="kind checkpoint"):
        say(world, Session(world), request_id=asked.request_id, session=None)


def test_updates_are_bounded_in_number_and_size_and_a_known_one_still_changes(world):
    session = Session(world)
    session.asked()
    for number in range(UPDATES_MAX):
        say(world, session, key=f"k{number}")
    with pytest.raises(Rejected, match="one more than"):
        say(world, session, key="more")
    say(world, session, "again", key="k0")
    with pytest.raises(ValueTooLarge):
        say(world, session, "x" * UPDATE_BYTES_MAX, key="k0")


def test_a_request_takes_so_many_updates_and_its_submission_after_them(world, monkeypatch):
    monkeypatch.setattr(request_updates, "SAID_MAX", 3)
    session = Session(world)
    session.asked()
    for number in range(3):
        say(world, session, number)
    with pytest.raises(Rejected, match="has had 3 updates"):
        say(world, session)
    assert session.submit("fine").verdict == "accepted"
