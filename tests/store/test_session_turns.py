"""A run of a session: its messages, the turns about them, and what becomes of both."""

import pytest

from pwf.errors import ClaimLost, Conflict, NotFound, PersonNeeded
from pwf.store import session_turns
from pwf.store.control import Control, resume
from pwf.store.sessions import ClearRun, clear
from pwf.store.submissions import submit
from tests.store.session_world import ALONE, JUDGED, REVIEW, Session
from tests.store.test_errands import Errand
from tests.store.test_home import serve
from tests.store.test_request_updates import say
from tests.store.test_retention import pass_days, prune
from tests.store.test_submissions import command


@pytest.fixture
def session(world):
    return Session(world)


def finish(world, run_id):
    """The last step of REVIEW."""
    runner = world.launch(run_id)
    runner.finish("shipped")
    runner.leave()


# --- messages -------------------------------------------------------------------------------------------------


def test_a_run_of_a_session_tells_it_its_step_and_at_its_end_how_it_ended(world, session):
    run_id = session.asked()
    step = session.message
    assert (step.kind, step.reason, step.status, step.run_id) == ("step", "initial", "pending", run_id)
    assert step.message_id == f"{step.request_id}.1.initial"

    assert session.turn() == "active"
    session.submit("fine")
    assert session.next == ("initial", "sent")
    assert session.turn("ended", message_id=step.message_id) == "settled"
    assert session.next is None
    finish(world, run_id)

    told = session.message
    assert (told.kind, told.status, told.end.status) == ("terminal", "pending", "completed")
    assert bytes(told.end.output.json) == b'"shipped"'
    assert session.turn("started", "t2") == "active"
    assert session.turn("ended", "t2", told.message_id) == "active"
    assert session.next is None


def test_no_message_is_named_before_the_first_report_of_a_connection(world):
    session = Session(world, reports=False)
    session.asked()
    assert session.next is None
    session.report(idle=True)
    assert session.next == ("initial", "pending")
    session.attach(reports=False)
    assert session.next is None


def test_a_message_is_sent_when_the_session_has_it_and_not_before(world, session):
    session.asked()
    name = session.message.message_id
    assert session.next == ("initial", "pending")
    session.report(name)
    assert session.next == ("initial", "sent")


def test_a_session_has_one_run_that_goes_on_and_a_second_start_is_a_conflict(world, session):
    run_id = session.asked()
    with pytest.raises(Conflict, match=f"has a run that goes on: {run_id}"):
        session.run()
    world.cancel(run_id)
    assert session.run().run_id != run_id


def test_the_end_of_an_older_run_is_told_before_the_step_of_a_newer_one(world, session):
    world.cancel(session.asked())
    session.asked()
    assert session.message.kind == "terminal"
    session.turn("started", "t1")
    session.turn("ended", "t1")
    assert session.next == ("initial", "pending")


def test_a_resume_withdraws_the_step_and_makes_one_fresh_message(world, session):
    run_id = session.asked()
    first = session.message.message_id
    world.pause(run_id)
    assert session.next is None
    world.resume(run_id)
    second = session.message
    assert (second.reason, second.request_revision) == ("resumed", 2)
    assert session.turn("started", "t1", first) == "settled"
    assert session.message.message_id == second.message_id


def test_a_step_that_was_withdrawn_after_it_was_sent_stays_until_its_turn_is_reported(world, session):
    run_id = session.asked()
    session.turn()
    world.cancel(run_id)
    assert session.next == ("initial", "cancelled")
    assert session.turn("aborted", message_id=session.message.message_id) == "settled"
    assert session.message.kind == "terminal"


def test_the_view_keeps_the_end_of_a_run_while_it_is_news_and_a_clear_dismisses_it(world, session):
    run_id = session.asked()
    with pytest.raises(Exception, match="goes on"):
        world.do(clear, ClearRun(fence=session.fence, run_id=run_id))
    world.cancel(run_id)
    session.turn()
    session.turn("ended")
    assert session.view.run.run_id == run_id
    world.clock.forward(61_000)
    assert session.view.run is None

    other = session.asked()
    world.cancel(other)
    world.do(clear, ClearRun(fence=session.fence, run_id=other))
    assert (session.view.run, session.message.kind) == (None, "terminal")


# --- submissions ----------------------------------------------------------------------------------------------


def test_what_another_session_asked_for_is_not_there_and_a_person_may_stand_in(world, session):
    run_id = session.asked()
    request_id = world.request_of(run_id)
    other = Session(world, "other")
    with pytest.raises(NotFound):
        other.submit(request_id=request_id)
    assert world.do(submit, command(world, run_id, "fine")).verdict == "accepted"
    assert session.view.message is None


def test_a_connection_that_was_taken_over_submits_and_reports_nothing(world, session):
    session.asked()
    request_id, message_id = session.view.request.request_id, session.message.message_id
    stale = session.fence
    session.attach()
    session.fence, current = stale, session.fence
    before = world.dump()
    for act in (
        lambda: session.submit(request_id=request_id),
        lambda: session.report(idle=True),
        lambda: session.turn(message_id=message_id),
    ):
        with pytest.raises(ClaimLost):
            act()
    assert world.dump() == before
    session.fence = current
    assert session.submit().verdict == "accepted"


def test_under_a_pause_a_sessions_submission_is_a_conflict_but_a_repeat_of_what_is_stored(world, session):
    run_id = session.asked()
    request_id = world.request_of(run_id)
    world.pause(run_id)
    with pytest.raises(Conflict, match="paused"):
        session.submit(request_id=request_id)
    world.resume(run_id)
    session.submit("fine", request_id=request_id)
    world.pause(run_id)
    assert session.submit("fine", request_id=request_id).verdict == "accepted"


def test_a_rejection_tells_who_works_on_it_and_else_makes_one_fresh_message_with_the_reason(world, session):
    session.asked(JUDGED)
    session.turn()
    session.submit("short")
    Errand(world).end(False, "too short")
    assert session.next == ("initial", "sent")

    session.submit("longer")
    session.turn("ended")
    assert session.next is None
    Errand(world).end(False, "name the tests")
    told = session.message
    assert (told.reason, told.status, told.why) == ("rejected", "pending", "name the tests")


def test_a_resume_while_something_is_judged_leaves_it_to_the_verdict(world, session):
    run_id = session.asked(JUDGED)
    session.turn()
    session.submit("fine")
    world.pause(run_id)
    world.resume(run_id)
    assert session.next == ("initial", "sent")
    Errand(world).end(True)
    assert world.row(run_id)["status"] == "queued"


def test_a_session_resumes_a_pause_and_no_hold_that_a_person_must_look_at(world, session):
    run_id = session.asked()
    world.pause(run_id)
    told = Control(run_id=run_id, actor="session:chat")
    assert world.do(resume, told).status == "waiting"
    world.sql("UPDATE runs SET hold = 'budget', hold_detail = 'too many tokens'")
    with pytest.raises(PersonNeeded, match="too many tokens"):
        world.do(resume, told)


# --- turns ----------------------------------------------------------------------------------------------------


def test_a_turn_about_no_message_of_the_session_is_absent(world, session):
    session.asked()
    assert Session(world, "other").turn(message_id=session.message.message_id) == "absent"
    assert session.turn(message_id="nothing") == "absent"


def test_a_report_of_a_turn_may_be_repeated(world, session):
    session.asked()
    name = session.message.message_id
    assert [session.turn(message_id=name) for _ in range(2)] == ["active", "active"]
    assert session.turn("ended", message_id=name) == "active"
    before = list(world.sql("SELECT * FROM messages"))
    assert session.turn("ended", message_id=name) == "active"
    assert world.sql("SELECT * FROM messages") == before


def test_a_turn_that_ends_without_a_submission_gets_two_reminders_and_then_the_attempt_has_failed(
    world, session
):
    run_id = session.asked()
    for number, reason in enumerate(("initial", "reminder", "reminder")):
        assert session.next == (reason, "pending")
        name = session.message.message_id
        session.turn("started", f"t{number}", name)
        session.turn("ended", f"t{number}", name)
    assert world.trail(run_id) == ["review.1 failed"]
    step = world.view(run_id).steps[0]
    assert step.error.code == "missing_submission"
    assert session.next is None
    assert world.launch(run_id).launch.node == "sorry"


@pytest.fixture
def three(monkeypatch):
    """So many lost turns in a row are too many."""
    monkeypatch.setattr(session_turns, "LOST_MAX", 3)


def lose(session, number):
    """The client dies within its turn, and comes back."""
    session.turn("started", f"t{number}")
    session.attach()


def test_too_many_lost_turns_in_a_row_pause_the_run_with_the_reason_and_a_resume_begins_anew(
    world, session, three
):
    run_id = session.asked()
    lose(session, 1)
    lose(session, 2)
    assert (world.status(run_id), session.next) == ("waiting", ("lost", "pending"))
    lose(session, 3)

    held = world.view(run_id).summary
    assert (held.status, session.next) == ("paused", None)
    assert "3 turns of session 'chat' about this step were lost" in held.reason
    world.resume(run_id)
    assert session.next == ("resumed", "pending")
    lose(session, 4)
    assert (world.status(run_id), session.next) == ("waiting", ("lost", "pending"))


@pytest.mark.parametrize("sign", ["update", "submission", "ended turn"])
def test_lost_turns_between_which_the_step_was_worked_on_are_not_in_a_row(world, session, sign, three):
    run_id = session.asked(JUDGED)
    lose(session, 1)
    lose(session, 2)
    if sign == "update":
        say(world, session)
    elif sign == "submission":
        session.submit()
        Errand(world).end(accepted=False, reason="no")
    else:
        name = session.message.message_id
        session.turn("started", "ended", name)
        session.turn("ended", "ended", name)
    lose(session, 3)
    assert world.status(run_id) == "waiting"
    assert session.next is not None


def test_an_aborted_turn_pauses_its_run_and_a_resume_makes_one_fresh_message(world, session):
    run_id = session.asked()
    session.turn()
    assert session.turn("aborted") == "active"
    assert (world.status(run_id), session.next) == ("paused", None)
    world.resume(run_id)
    assert session.next == ("resumed", "pending")
    assert session.turn("aborted", message_id=f"{world.request_of(run_id)}.1.initial") == "settled"
    assert world.status(run_id) == "waiting"


def test_an_abort_that_comes_after_the_end_was_stored_pauses_and_takes_the_reminder_back(world, session):
    run_id = session.asked()
    name = session.message.message_id
    session.turn()
    session.turn("ended")
    assert session.next == ("reminder", "pending")
    assert session.turn("aborted", message_id=name) == "active"
    assert (world.status(run_id), session.next) == ("paused", None)


def test_an_abort_of_what_is_settled_changes_nothing(world, session):
    run_id = session.asked()
    name = session.message.message_id
    session.turn()
    session.submit()
    assert session.turn("aborted", message_id=name) == "settled"
    assert world.status(run_id) == "queued"


def test_an_idle_report_that_does_not_name_the_turn_has_lost_it_and_a_fresh_message_counts_for_nothing(
    world, session
):
    session.asked()
    for number in range(4):
        name = session.message.message_id
        session.turn("started", f"t{number}", name)
        session.report(name, idle=True)
        assert session.next == ("lost", "pending")
    assert session.turn("ended", "t0", f"{session.view.request.request_id}.1.initial") == "settled"
    assert session.next == ("lost", "pending")


def test_a_session_that_is_to_begin_a_turn_or_names_it_has_lost_nothing(world, session):
    session.asked()
    name = session.message.message_id
    session.report(name, idle=True, input_pending=True)
    assert session.next == ("initial", "sent")
    session.turn("started", "t1", name)
    session.report(name, idle=True, turn="t1")
    assert session.view.turn.turn_id == "t1"


def test_what_a_session_has_without_a_turn_when_it_is_idle_is_sent_again(world, session):
    session.asked()
    session.report(session.message.message_id, idle=True)
    assert session.next == ("lost", "pending")


def test_a_turn_begins_where_another_was_open_and_that_one_is_lost(world, session):
    session.asked()
    name = session.message.message_id
    session.turn("started", "t1", name)
    assert session.turn("started", "t2", name) == "active"
    assert (session.view.turn.turn_id, session.turn("ended", "t1", name)) == ("t2", "settled")
    with pytest.raises(Conflict, match="is about message"):
        world.cancel(session.view.run.run_id)
        session.turn("ended", "t2", f"{session.view.run.run_id}.terminal")


def test_a_turn_of_which_only_the_end_is_heard_leaves_another_that_goes_on_as_it_is(world, session):
    """As a report of an end that is late does."""
    session.asked()
    name = session.message.message_id
    session.turn("started", "t2", name)
    assert session.turn("ended", "t1", name) == "active"
    assert (session.view.turn.turn_id, session.next) == ("t2", ("initial", "sent"))
    assert session.turn("ended", "t2", name) == "active"
    assert session.next == ("reminder", "pending")


def test_a_turn_under_a_pause_gets_no_reminder(world, session):
    run_id = session.asked()
    session.turn()
    world.pause(run_id)
    assert session.turn("ended") == "settled"
    world.resume(run_id)
    assert session.next == ("resumed", "pending")
    assert world.sql("SELECT reminders FROM requests") == [(0,)]


def test_a_restart_of_the_daemon_and_another_connection_close_no_turn(world, session):
    session.asked()
    name = session.message.message_id
    session.turn()
    serve(world)
    session.attach(reports=False)
    session.report(name, turn="t1")
    assert (session.next, session.view.turn.turn_id) == (("initial", "sent"), "t1")
    session.submit()
    assert session.turn("ended", message_id=name) == "settled"


def test_a_run_of_a_session_goes_with_all_that_was_said_of_it(world, session):
    run_id = session.asked(ALONE)
    session.turn()
    session.submit()
    session.turn("ended", message_id=session.message.message_id)
    pass_days(world, 40)
    session.detach()
    assert prune(world)[1] == 1
    assert world.sql("SELECT count(*) FROM messages") == world.sql("SELECT count(*) FROM turns") == [(0,)]
    assert run_id not in {row[0] for row in world.sql("SELECT run_id FROM runs")}


def test_a_restart_belongs_to_the_same_session(world, session):
    run_id = session.asked()
    world.cancel(run_id)
    again = world.start(REVIEW, restarted_from=run_id, restart_root=run_id, restart_no=1)
    assert world.view(again).session == session.session_id
