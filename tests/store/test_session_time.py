"""The time that a session's model works is counted only while its turn is open and its connection holds it."""

import pytest

from pwf.errors import ClaimLost
from pwf.store.deadlines import next_deadline, time_out
from pwf.store.follow_ups import Queue, queue_follow_up
from pwf.store.session_clock import Sample, sample
from pwf.store.session_rules import SESSION_RULES
from tests.store.session_world import JUDGED, Session
from tests.store.test_errands import Errand
from tests.store.test_home import serve
from tests.store.test_transcripts import keep


@pytest.fixture
def session(world):
    serve(world)
    return Session(world)


def spent(world):
    return world.sql("SELECT active_ms FROM requests")[0][0]


def sampled(world, session):
    return world.do(sample, Sample(session_no=session.fence.session_no, daemon_epoch=world.epoch))


def test_time_is_counted_in_turns_and_in_nothing_else_and_stands_on_the_attempt(world, session):
    run_id = session.asked()
    world.clock.forward(1_000)  # nobody works yet
    session.turn()
    world.clock.forward(2_000)
    name = session.message.message_id
    session.turn("ended")
    world.clock.forward(4_000)
    session.turn("started", "t2")
    world.clock.forward(500)
    session.submit()
    assert spent(world) == 2_500
    assert world.view(run_id).steps[0].active_ms == 2_500
    assert session.turn("ended", "t2", session.message.message_id) == "settled"
    assert name.endswith("initial")


@pytest.mark.parametrize("stops", ["pause", "detach", "attach"])
def test_a_pause_and_the_end_of_the_connection_cost_nothing(world, session, stops):
    run_id = session.asked()
    name = session.message.message_id
    session.turn()
    world.clock.forward(1_000)
    if stops == "pause":
        world.pause(run_id)
    else:
        getattr(session, stops)(**({"reports": False} if stops == "attach" else {}))
    world.clock.forward(70_000)
    assert spent(world) == 1_000
    assert world.do(time_out) is None
    if stops != "pause":
        session.attach(reports=False)
        session.report(name, turn="t1")
        world.clock.forward(3_000)
        session.turn("ended", message_id=name)
        assert spent(world) == 4_000


def test_a_daemon_that_dies_costs_what_came_after_the_last_sample(world, session):
    session.asked()
    session.turn()
    world.clock.forward(5_000)
    assert sampled(world, session)
    world.clock.forward(1_000)
    serve(world)
    assert spent(world) == 5_000
    assert not sampled(world, session)


def test_a_sample_that_another_daemons_claim_refuses_is_a_lost_claim(world, session):
    session.asked()
    session.turn()
    with pytest.raises(ClaimLost):
        world.do(sample, Sample(session_no=session.fence.session_no, daemon_epoch=world.epoch - 1))


def test_when_the_limit_passes_the_attempt_has_timed_out_and_the_run_goes_on_by_its_way(world, session):
    run_id = session.asked()
    assert world.read(next_deadline, None).in_ms is None
    session.turn()
    world.clock.forward(20_000)
    session.turn("ended")
    session.turn("started", "t2")
    assert world.read(next_deadline, None).in_ms == 40_000
    world.clock.forward(40_000)
    assert world.do(time_out) is not None
    assert world.trail(run_id) == ["review.1 timed_out"]
    assert "60,000 ms" in world.view(run_id).steps[0].error.message
    assert (session.next, spent(world)) == (("reminder", "cancelled"), 60_000)
    assert session.turn("ended", "t2", session.message.message_id) == "settled"
    assert world.launch(run_id).launch.node == "sorry"


def test_what_was_submitted_before_the_limit_is_judged_first(world, session):
    world.define(JUDGED)
    session.asked(JUDGED)
    session.turn()
    world.sql("UPDATE active_intervals SET due_awake_ms = 1")
    session.submit()
    assert world.do(time_out) is None
    Errand(world).end(False, "too short")
    assert world.do(time_out) is not None


# --- verify ---------------------------------------------------------------------------------------------------


def asked(world):
    session = Session(world)
    session.asked()
    return session


def working(world):
    session = asked(world)
    session.turn()
    return session


def ended(world):
    session = asked(world)
    world.cancel(session.view.run.run_id)
    return session


def following(world):
    session = asked(world)
    world.do(queue_follow_up, Queue(run_id=session.view.run.run_id, text="Go on.", actor="client:ann"))
    return session


def recorded(world):
    keep(asked(world), world.sql("SELECT run_id FROM runs")[0][0], 1, 2)


#: rule, a clean state, what somebody does to it behind everybody's back
PLANTED = [
    ("session_without_epoch", asked, "UPDATE entities SET generation = 0 WHERE kind = 'session'"),
    ("session_untold", asked, "DELETE FROM messages"),
    ("session_stalled", asked, "UPDATE messages SET status = 'cancelled', is_over = 1"),
    ("session_stalled", working, "UPDATE messages SET is_over = 1"),
    ("session_step_stray", asked, "UPDATE requests SET revision = 2"),
    ("session_end_untold", ended, "DELETE FROM messages WHERE kind = 'terminal'"),
    (
        "follow_up_early",
        following,
        "UPDATE messages SET status = 'sent', sent_wall_ms = 1 WHERE kind = 'follow_up'",
    ),
    ("follow_up_kept", following, "UPDATE runs SET status = 'failed', ended_wall_ms = 1"),
    ("session_elsewhere", asked, "UPDATE runs SET session_no = NULL"),
    ("session_turn_stray", working, "UPDATE messages SET is_over = 1"),
    ("session_segment_gap", recorded, "DELETE FROM session_entries WHERE number = 0"),
    ("session_segment_gap", recorded, "UPDATE segments SET bytes = bytes + 1"),
    ("session_segment_gap", recorded, "UPDATE segments SET next_number = 3"),
    ("session_entry_stray", recorded, "DELETE FROM segments"),
    ("session_clock_stray", working, "UPDATE sessions SET connected = 0, reported = 0, idle = 0"),
    ("session_clock_stray", working, "UPDATE turns SET status = 'lost', ended_wall_ms = 1"),
]


@pytest.mark.parametrize(("rule", "state", "damage"), PLANTED)
def test_a_broken_rule_of_sessions_is_named(world, rule, state, damage):
    state(world)
    assert world.violations() == []
    world.sql(damage)
    assert rule in {name for name, _ in world.violations()}


def test_every_rule_of_sessions_has_a_planted_violation():
    assert {rule for rule, _, _ in PLANTED} == set(SESSION_RULES)
