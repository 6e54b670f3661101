"""Follow-ups: prompts for the session of a run, in order after its success and the turn about that."""

import pytest

from pwf.errors import ClaimLost, NotFound, Rejected, ValueTooLarge
from pwf.protocol.follow_ups import FOLLOW_UP_BYTES_MAX, FOLLOW_UPS_MAX
from pwf.store.follow_ups import Queue, Remove, queue_follow_up, remove_follow_up
from tests.store.session_world import ALONE, Session
from tests.store.test_home import ELSEWHERE, serve
from tests.store.test_retention import pass_days, prune


@pytest.fixture
def session(world):
    return Session(world)


def queue(world, run_id, text="Go on.", actor="client:ann", **more):
    command = Queue(run_id=run_id, text=text, actor=actor, **more)
    return world.do(queue_follow_up, command).follow_up_id


def remove(world, run_id, which="1", actor="client:ann", **more):
    return world.do(remove_follow_up, Remove(run_id=run_id, follow_up=which, actor=actor, **more))


def standing(world, run_id):
    return [one.status for one in world.view(run_id).follow_ups]


def succeed(world, session):
    """A run that has ended well, with two follow-ups; its end is next."""
    run_id = session.asked(ALONE)
    queue(world, run_id, "First.")
    queue(world, run_id, "Second.")
    session.turn("started", "work")
    about = session.message.message_id
    session.submit("fine")
    session.turn("ended", "work", about)
    return run_id


def take(session, turn_id, state="ended"):
    """One turn about what is next; its text."""
    message = session.message
    assert session.turn("started", turn_id) == "active"
    session.turn(state, turn_id, message.message_id)
    return message.kind if message.text is None else bytes(message.text.json)


def test_they_are_sent_in_order_after_the_success_and_the_turn_about_it(world, session):
    run_id = succeed(world, session)
    assert session.message.kind == "terminal"
    session.turn("started", "end")
    assert session.message.kind == "terminal"
    session.turn("ended", "end")

    assert session.message.starts_turn
    assert [take(session, "one"), take(session, "two")] == [b'"First."', b'"Second."']
    assert session.next is None
    assert standing(world, run_id) == ["sent", "sent"]


def test_a_follow_up_that_is_not_due_is_none_of_the_session_whatever_it_says(world, session):
    run_id = succeed(world, session)
    name = f"{run_id}.follow_up.1"
    session.report(name, idle=True)
    assert session.turn("started", "early", name) == "absent"
    assert standing(world, run_id) == ["queued", "queued"]


def test_the_follow_ups_of_a_run_come_before_what_a_newer_run_asks(world, session):
    succeed(world, session)
    session.asked(ALONE)
    assert [take(session, "end"), take(session, "one")] == ["terminal", b'"First."']
    assert bytes(session.message.text.json) == b'"Second."'
    take(session, "two")
    assert session.next == ("initial", "pending")


@pytest.mark.parametrize("way", ["cancel", "fail"])
def test_a_run_that_does_not_succeed_drops_them(world, session, way):
    run_id = session.asked(ALONE)
    queue(world, run_id)
    if way == "cancel":
        world.cancel(run_id)
    else:
        for turn_id in ("a", "b", "c"):  # nothing is submitted
            take(session, turn_id)
    assert take(session, "end") == "terminal"
    assert (session.next, standing(world, run_id)) == (None, ["dropped"])
    assert world.view(run_id).follow_ups[0].why.startswith("the run ended: ")


@pytest.mark.parametrize("late", [False, True])
def test_an_aborted_turn_about_the_end_drops_them_also_when_that_is_said_late(world, session, late):
    run_id = succeed(world, session)
    end = session.message.message_id
    if late:
        take(session, "end")
        assert session.turn("aborted", "end", end) == "settled"
    else:
        take(session, "end", "aborted")
    assert (session.next, standing(world, run_id)) == (None, ["dropped", "dropped"])


def test_an_aborted_turn_about_a_follow_up_drops_those_after_it(world, session):
    run_id = succeed(world, session)
    take(session, "end")
    take(session, "one", "aborted")
    assert (session.next, standing(world, run_id)) == (None, ["sent", "dropped"])


def test_one_is_removed_by_who_queued_it_or_a_person_and_twice_is_adopted(world, session):
    run_id = session.asked()
    mine = {"actor": "session:chat", "person": False, "session": session.fence}
    first = queue(world, run_id)
    queue(world, run_id, **mine)
    with pytest.raises(Rejected, match="queued by client:ann"):
        remove(world, run_id, first, **mine)
    assert remove(world, run_id, "2", **mine).follow_up_id.endswith(".2")
    before = world.view(run_id).summary.revision
    remove(world, run_id, "2", **mine)
    assert world.view(run_id).summary.revision == before
    remove(world, run_id, first, actor="client:bob")
    assert standing(world, run_id) == ["dropped", "dropped"]
    with pytest.raises(NotFound, match="no follow-up '3'"):
        remove(world, run_id, "3")


def test_one_that_was_sent_is_not_removed_and_one_that_was_removed_on_its_way_counts_for_nothing(
    world, session
):
    run_id = succeed(world, session)
    take(session, "end")
    name = session.message.message_id
    session.report(name)
    with pytest.raises(Rejected, match="was sent"):
        remove(world, run_id)
    take(session, "one")

    name = session.message.message_id  # the model may have it by now
    remove(world, run_id, "2")
    assert session.turn("started", "two", name) == "settled"
    assert session.next is None


def test_an_ended_run_and_one_without_a_session_take_none(world, session):
    run_id = session.asked()
    world.cancel(run_id)
    with pytest.raises(Rejected, match="has ended"):
        queue(world, run_id)
    with pytest.raises(Rejected, match="has no session"):
        queue(world, world.run(ALONE, agent="person").run_id)


def test_only_people_the_runs_session_and_its_own_steps_may(world, session):
    run_id = session.asked()
    other = Session(world, "other")
    for actor in ("session:other", "run:k0"):
        with pytest.raises(Rejected, match="no run of"):
            queue(world, run_id, actor=actor, person=False)
    queue(world, run_id, actor=f"run:{run_id}", person=False)
    stale = session.fence
    session.attach()
    with pytest.raises(ClaimLost):
        queue(world, run_id, actor="session:chat", person=False, session=stale)
    assert other.next is None


def test_they_are_bounded_in_size_and_number(world, session):
    run_id = session.asked()
    queue(world, run_id, "é" * (FOLLOW_UP_BYTES_MAX // 2))
    with pytest.raises(ValueTooLarge):
        queue(world, run_id, "é" * (FOLLOW_UP_BYTES_MAX // 2) + "!")
    for _ in range(FOLLOW_UPS_MAX - 1):
        queue(world, run_id)
    with pytest.raises(Rejected, match="no more"):
        queue(world, run_id)
    assert len(world.view(run_id).follow_ups[0].summary) == 200
    remove(world, run_id, "2")
    assert queue(world, run_id).endswith(f".{FOLLOW_UPS_MAX + 1}")


def test_a_copied_home_sends_none_that_the_conversation_has_and_keeps_those_of_a_run_that_is_held(
    world, session
):
    serve(world)
    session.attach()
    succeed(world, session)
    take(session, "end")
    has = session.message.message_id  # sent after the copy was made
    held = Session(world, "other").asked()
    queue(world, held)

    serve(world, **ELSEWHERE)
    session.attach(reports=False)
    session.report(has, idle=True)

    assert bytes(session.message.text.json) == b'"Second."'
    assert (world.row(held)["hold"], standing(world, held)) == ("restored", ["queued"])


def test_another_daemon_and_a_pause_leave_them_and_they_go_with_their_run(world, session):
    run_id = session.asked()
    queue(world, run_id)
    world.pause(run_id)
    serve(world)
    assert standing(world, run_id) == ["queued"]
    world.cancel(run_id)
    pass_days(world, 40)
    prune(world)
    assert world.sql("SELECT count(*) FROM messages")[0][0] == 0
