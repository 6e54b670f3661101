"""A session belongs to one connection at a time: an attach takes the next epoch, and fences the one before."""

import pytest

from pwf.errors import ClaimLost
from pwf.protocol.sessions import SessionListPayload
from pwf.store.read_sessions import session_list, session_view
from pwf.store.sessions import AttachSession, SessionFence, attach, detach, hold
from tests.store.test_home import serve
from tests.store.test_retention import pass_days, prune


def attached(world, session_id="chat", client="pi") -> SessionFence:
    return world.do(attach, AttachSession(session_id=session_id, client=client))


def listed(world, **query):
    return world.read(session_list, SessionListPayload(**query)).sessions


def test_a_second_attach_has_the_next_epoch_and_fences_the_first(world):
    first = attached(world)
    second = attached(world)

    assert (first.epoch, second.epoch) == (1, 2)
    world.do(hold, second)
    with pytest.raises(ClaimLost, match="another connection"):
        world.do(hold, first)


def test_only_the_connection_that_holds_a_session_lets_it_go(world):
    first, second = attached(world), attached(world)

    world.do(detach, first)
    assert world.read(session_view, "chat").connected
    world.do(detach, second)
    assert not world.read(session_view, "chat").connected


def test_a_list_has_the_newest_first_in_pages_and_the_connected_alone_where_they_are_wanted(world):
    for name in ("a", "b", "c"):
        fence = attached(world, name)
    world.do(detach, fence)

    assert [one.session_id for one in listed(world)] == ["c", "b", "a"]
    assert [one.session_id for one in listed(world, connected=True)] == ["b", "a"]
    page = world.read(session_list, SessionListPayload(limit=2))
    rest = world.read(session_list, SessionListPayload(limit=2, cursor=page.next_cursor))
    assert [one.session_id for one in (*page.sessions, *rest.sessions)] == ["c", "b", "a"]


def test_no_session_is_connected_when_another_daemon_comes_up_and_its_epoch_goes_on(world):
    attached(world)
    serve(world)

    assert not listed(world)[0].connected
    assert attached(world).epoch == 2


def test_a_session_goes_when_nobody_has_seen_it_for_long_and_a_connected_one_stays(world):
    gone = attached(world, "gone")
    attached(world, "here")
    world.do(detach, gone)
    pass_days(world, 40)

    prune(world)

    assert [one.session_id for one in listed(world)] == ["here"]


def test_a_session_that_nobody_has_attached_is_a_violation(world):
    attached(world)
    world.sql("UPDATE entities SET generation = 0 WHERE kind = 'session'")

    assert {rule for rule, _ in world.violations()} == {"session_without_epoch"}
