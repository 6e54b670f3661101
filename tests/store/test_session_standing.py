"""Why a run waits for its session, in words for people: explain names it, and says what it has of what is asked."""

import pytest

from pwf.store.sessions import detach
from tests.store.session_world import Session
from tests.store.test_follow_ups import succeed, take
from tests.store.test_home import serve


@pytest.fixture
def session(world):
    return Session(world)


def why(world, run_id):
    return world.why(run_id).reason.partition("its session ")[2]


def test_a_run_that_waits_for_its_session_says_what_that_has(world, session):
    run_id = session.asked()
    assert why(world, run_id) == "chat is attached, and has not seen its message yet"
    assert "pwf sessions" in world.why(run_id).commands
    session.turn()
    world.clock.forward(90_000)
    assert why(world, run_id) == "chat is at work: its turn is open since 1.5 min"
    session.detach()
    world.clock.forward(120_000)
    assert why(world, run_id) == "chat is not attached since 2.0 min"
    session.attach(reports=False)
    session.turn("ended", message_id=f"{world.request_of(run_id)}.1.initial")
    assert why(world, run_id) == "chat is attached, and has not said yet what it has"


def test_one_that_has_its_message_and_no_turn_says_so(world, session):
    run_id = session.asked()
    session.report(session.message.message_id)
    assert why(world, run_id) == "chat has its message, and no turn of it is open"


def test_a_stop_of_the_daemon_lets_the_session_go_and_its_run_says_so(world, session):
    run_id = session.asked()
    serve(world)
    assert why(world, run_id).startswith("chat is not attached since")


def test_an_ended_run_says_how_many_follow_ups_are_still_to_be_sent(world, session):
    run_id = succeed(world, session)
    assert why(world, run_id) == "chat: 2"
    take(session, "end")
    take(session, "one")
    assert why(world, run_id) == "chat: 1"
    take(session, "two")
    assert why(world, run_id) == ""


def test_what_a_session_does_is_news_of_its_run(world, session):
    run_id = session.asked()

    def detached(tx, _command):
        detach(tx, session.fence)
        return list(tx.changed_keys)

    assert f"run:{run_id}" in world.do(detached)
