"""Notices: one for each attempt of a notify node that completed, kept with it; no run fails by one."""

from __future__ import annotations

import pytest

from pwf.errors import InvalidArgument
from pwf.protocol.kinds import Outcome
from pwf.protocol.notices import NOTICE_BYTES_MAX, NoticeList, NoticeListPayload, cut
from pwf.store.notices import notice_list
from tests.store.session_world import Session
from tests.store.world import World, error, graph, linear, node

TELLS = graph(node("a", "notify", to="b", notice="progress"), node("b", "notify", notice="final"))


def listed(world: World, **query: object) -> NoticeList:
    found = world.read(notice_list, NoticeListPayload(**query))  # type: ignore[arg-type]
    assert isinstance(found, NoticeList)
    return found


def texts(found: NoticeList) -> list[str]:
    return [notice.text for notice in found.notices]


def told(world: World, *said: str) -> str:
    runner = world.run(TELLS)
    runner.finish(said[0], to="b")
    runner.finish(said[1])
    runner.leave()
    return str(runner.run_id)


def test_each_attempt_that_completed_is_a_notice_newest_first_of_all_runs_or_of_one(world):
    one, two = told(world, "begun", "done"), told(world, "begun too", "done too")
    assert texts(listed(world)) == ["done too", "begun too", "done", "begun"]
    assert texts(listed(world, run=one)) == ["done", "begun"]
    assert [(n.run_id, n.node, n.kind) for n in listed(world, limit=1).notices] == [(two, "b", "final")]
    assert [step.notice for step in world.view(one).steps] == ["progress", "final"]


@pytest.mark.parametrize("of_one", [True, False])
def test_pages_go_on_where_the_last_one_ended(world, of_one):
    run_id = told(world, "1", "2")
    more = {"run": run_id} if of_one else {}
    first = listed(world, limit=1, **more)
    second = listed(world, limit=1, cursor=first.next_cursor, **more)
    assert (texts(first), texts(second), second.next_cursor) == (["2"], ["1"], None)
    with pytest.raises(InvalidArgument, match="cursor"):
        listed(world, cursor="x")


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
def test_a_notice_that_can_not_be_made_fails_no_run_and_is_none(world, outcome: Outcome):
    runner = world.run(TELLS)
    assert runner.finish(outcome=outcome, error=error(), to="b") == "go"
    assert runner.finish(outcome=outcome, error=error()) == "end"
    runner.leave()
    view = world.view(runner.run_id)
    assert view.summary.status == "completed"
    assert bytes(view.output.json) == b"null"
    assert [step.status for step in view.steps] == [outcome, outcome]
    assert listed(world).notices == ()


def test_a_notice_that_is_interrupted_is_made_once_by_the_next_attempt(world):
    runner = world.run(TELLS)
    runner.leave()
    again = world.launch(runner.run_id)
    again.finish("begun", to="b")
    assert texts(listed(world)) == ["begun"]


def test_a_step_of_another_kind_is_no_notice(world):
    runner = world.run(linear(1))
    runner.finish("done")
    assert listed(world).notices == ()


def test_a_text_is_cut_to_what_a_notice_may_have_between_two_characters():
    assert cut("short") == "short"
    long = cut("\N{SNOWMAN}" * NOTICE_BYTES_MAX)
    assert len(long.encode()) <= NOTICE_BYTES_MAX
    assert long.endswith("\N{SNOWMAN} … (cut)")


def test_the_session_of_a_run_is_told_each_notice_once_and_no_turn_starts(world):
    session = Session(world)
    runner = session.run(TELLS)
    runner.finish("begun", to="b")

    message = session.message
    assert (message.kind, message.status, message.starts_turn) == ("notification", "pending", False)
    assert message.text is not None
    assert bytes(message.text.json or b"") == b'"begun"'
    assert session.turn() == "absent"
    session.report(message.message_id, idle=True)
    assert session.view.message is None
    runner.finish("done")
    runner.leave()
    assert [
        session.message.kind,
        session.report(session.message.message_id, idle=True),
        session.message.kind,
    ] == [
        "notification",
        None,
        "terminal",
    ]
