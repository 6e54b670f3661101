"""Pause, resume, cancel: in every state that has not ended, and what each refuses."""

import pytest

from pwf.errors import Conflict, NotFound, Rejected
from pwf.store.control import Control, HoldRun, cancel, hold_run, pause, resume
from tests.store.world import IDEMPOTENT, MANUAL, OBSERVED, Runner, graph, linear, node, retry

HOUR_MS = 3_600_000


# --- a run in each state that has not ended, made the way it happens ------------------------------------------


def queued(world):
    return world.start(linear(2))


def due_later(world):
    return world.start(linear(2), at_ms=world.clock.wall_ms + HOUR_MS)


def timer(world):
    runner = world.run(graph(node("a", "wait", to="b"), node("b")))
    runner.wait(delay_ms=HOUR_MS)
    runner.leave()
    return runner.run_id


def backing_off(world):
    runner = world.run(graph(node("a", retry=retry(3, HOUR_MS))))
    runner.fail()
    runner.leave()
    return runner.run_id


def running(world):
    return world.run(linear(2)).run_id


def waiting(world):
    runner = world.run(graph(node("a", "checkpoint", to="b"), node("b")))
    runner.ask()
    runner.leave()
    return runner.run_id


def paused(world):
    run_id = queued(world)
    world.pause(run_id)
    return run_id


def no_progress(world):
    runner = world.run(linear(2))
    for _ in range(2):
        runner.gone()
        world.clock.forward(1_000)
        runner = world.launch()
    runner.gone()
    return runner.run_id


def ambiguous(world):
    runner = world.run(graph(node("a", "action", effect=MANUAL)))
    runner.gone()
    return runner.run_id


def unreaped(world):
    runner = world.run(linear(2))
    runner.gone(proved=False)
    return runner.run_id


def unreaped_waiting(world):
    runner = world.run(graph(node("a", "checkpoint", to="b"), node("b")))
    runner.ask()
    runner.gone(proved=False)
    return runner.run_id


def not_launched(world, hold="load_failed"):
    run_id = queued(world)
    (admission,) = world.admit()
    world.do(hold_run, HoldRun(run_id=run_id, generation=admission.generation, hold=hold, detail="why"))
    Runner(world, admission).gone(stopped=True)
    return run_id


def source_changed(world):
    return not_launched(world, "source_changed")


STATES = [
    queued, due_later, timer, backing_off, running, waiting, paused, no_progress, ambiguous, unreaped,
    unreaped_waiting, not_launched, source_changed,
]  # fmt: skip


def ids(state):
    return state.__name__


# --- pause ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES, ids=ids)
def test_pause_works_in_every_state_that_has_not_ended(world, state):
    run_id = state(world)
    world.pause(run_id)
    done = world.done(pause, Control(run_id=run_id))
    assert done.adopted is True
    world.clock.forward(2 * HOUR_MS)
    assert world.admit() == ()  # nothing that is paused is admitted


@pytest.mark.parametrize("state", [due_later, timer, backing_off], ids=ids)
def test_a_due_time_is_kept_through_a_pause(world, state):
    run_id = state(world)
    world.pause(run_id)
    assert world.status(run_id) == "paused"
    assert world.admission().next_in_ms is None
    world.clock.forward(10_000)
    world.resume(run_id)
    assert world.admission().next_in_ms == HOUR_MS - 10_000


def test_a_pause_lets_the_running_step_end(world):
    runner = world.run(linear(3))
    changed = world.pause(runner.run_id)
    assert (changed.status, changed.note) == ("running", "it pauses at the end of this step")
    assert runner.finish(1, to="b") == "park"
    runner.leave()
    assert world.status(runner.run_id) == "paused"
    world.resume(runner.run_id)
    assert world.launch(runner.run_id).launch.node == "b"


def test_a_pause_before_the_launch_needs_no_runner(world):
    run_id = world.start(linear(2))
    (admission,) = world.admit()
    world.pause(run_id)
    runner = Runner(world, admission)
    assert type(runner.begin()).__name__ == "Parked"
    assert world.status(run_id) == "paused"
    assert world.trail(run_id) == []
    runner.leave()
    world.resume(run_id)
    world.launch(run_id)


def test_the_last_step_ends_its_run_although_a_pause_is_wanted(world):
    runner = world.run(linear(1))
    world.pause(runner.run_id)
    assert runner.finish("done") == "end"
    assert world.status(runner.run_id) == "completed"


def test_a_step_that_fails_under_a_pause_is_tried_again_only_after_resume(world):
    runner = world.run(graph(node("a", retry=retry(1, 5_000))))
    world.pause(runner.run_id)
    assert runner.fail() == "park"
    runner.leave()
    assert world.status(runner.run_id) == "paused"
    world.clock.forward(2_000)
    world.resume(runner.run_id)
    assert world.admission().next_in_ms == 3_000


def test_a_pause_taken_back_before_the_boundary_has_no_effect(world):
    runner = world.run(linear(2))
    world.pause(runner.run_id)
    world.resume(runner.run_id)
    assert runner.finish(1, to="b") == "go"


def test_pause_now_ends_the_step_which_is_no_crash(world):
    runner = world.run(linear(2))
    assert world.pause(runner.run_id, now=True).note == "the running step is being stopped"
    runner.gone(stopped=True)
    assert world.status(runner.run_id) == "paused"
    assert world.row(runner.run_id)["crashes"] == 0


def test_a_pause_outlives_a_hold_that_another_act_lifts(world):
    run_id = ambiguous(world)
    world.pause(run_id)
    assert world.status(run_id) == "ambiguous"
    world.recover(run_id, "not_happened")
    assert world.status(run_id) == "paused"
    world.resume(run_id)
    world.launch(run_id)


def test_a_pause_outlives_processes_that_can_not_be_shown_dead(world):
    runner = world.run(linear(2))
    world.pause(runner.run_id)
    runner.gone(proved=False)
    assert world.status(runner.run_id) == "paused"
    runner.gone()  # proved later
    assert world.status(runner.run_id) == "paused"


def test_a_timer_set_under_a_pause_keeps_its_time(world):
    runner = world.run(graph(node("a", "wait", to="b"), node("b")))
    world.pause(runner.run_id)
    runner.wait(delay_ms=5_000)
    runner.leave()
    assert world.status(runner.run_id) == "paused"
    world.clock.forward(5_000)
    assert world.admit() == ()
    world.resume(runner.run_id)
    assert world.launch().launch.node == "b"


# --- resume ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [queued, due_later, timer, backing_off, running], ids=ids)
def test_resume_of_a_live_run_is_adopted(world, state):
    run_id = state(world)
    revision = world.row(run_id)["revision"]
    assert world.done(resume, Control(run_id=run_id)).adopted is True
    assert world.row(run_id)["revision"] == revision


@pytest.mark.parametrize("state", [paused, no_progress, unreaped, not_launched], ids=ids)
def test_resume_lifts_what_a_person_may_lift(world, state):
    run_id = state(world)
    assert world.resume(run_id).status == "queued"
    assert world.row(run_id)["crashes"] == 0


def test_a_paused_request_is_open_again_after_resume(world):
    run_id = waiting(world)
    world.pause(run_id)
    assert world.status(run_id) == "paused"
    assert world.resume(run_id).status == "waiting"


def test_resume_of_a_run_that_only_waits_names_the_answer(world):
    run_id = waiting(world)
    with pytest.raises(Rejected, match="only waits for its request") as caught:
        world.resume(run_id)
    assert caught.value.hint == f"pwf answer {world.request_of(run_id)}"


def test_resume_of_an_ambiguous_effect_names_recover(world):
    run_id = ambiguous(world)
    with pytest.raises(Rejected, match="ambiguous") as caught:
        world.resume(run_id)
    assert f"pwf recover {run_id} happened|not-happened|give-up" in caught.value.hint


def test_changed_files_are_resumed_only_once_they_are_back(world):
    run_id = source_changed(world)
    with pytest.raises(Rejected, match="why"):
        world.resume(run_id)
    world.resume(run_id, sources_ok=True)
    world.launch(run_id)


# --- cancel ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES, ids=ids)
def test_cancel_works_in_every_state_that_has_not_ended(world, state):
    run_id = state(world)
    changed = world.cancel(run_id, reason="no longer wanted")
    assert changed.status == "cancelled"
    assert world.done(cancel, Control(run_id=run_id)).adopted is True
    view = world.view(run_id)
    assert view.summary.reason == "no longer wanted"
    assert view.summary.hold is None
    assert view.controls == ("restart", "retry", "fork")
    world.clock.forward(2 * HOUR_MS)
    assert world.admit() == ()


@pytest.mark.parametrize("state", [waiting, unreaped_waiting], ids=ids)
def test_a_cancelled_runs_question_leaves_the_inbox(world, state):
    run_id = state(world)
    request = world.request_of(run_id)
    world.cancel(run_id)
    assert world.view(run_id).request.status == "cancelled"
    with pytest.raises(Rejected, match=r"closed: its run .* is cancelled"):
        world.answer(run_id, True)
    assert world.request_of(run_id) == request


def test_cancel_is_committed_before_the_runner_is_stopped(world):
    runner = world.run(linear(2))
    assert world.cancel(runner.run_id).note == "its processes are being stopped"
    assert world.trail(runner.run_id) == ["a.1 cancelled"]
    assert world.sql("SELECT state FROM runners") == [("live",)]  # until it is proved dead
    before = world.view(runner.run_id)
    runner.gone(stopped=True)
    assert world.view(runner.run_id).summary == before.summary
    assert world.sql("SELECT * FROM runners") == []


@pytest.mark.parametrize(
    ("effect", "status"), [(MANUAL, "ambiguous"), (OBSERVED, "ambiguous"), (IDEMPOTENT, "failed")]
)
def test_an_effect_that_is_being_applied_at_a_cancel_may_have_happened(world, effect, status):
    runner = world.run(graph(node("a", "action", effect=effect)))
    world.cancel(runner.run_id)
    assert world.effects(runner.run_id) == [("a", 1, status, 1)]


def test_cancel_leaves_settled_effects_alone(world):
    runner = world.run(graph(node("a", "action", effect=MANUAL, to="b"), node("b")))
    runner.finish(settled="applied", to="b")
    world.cancel(runner.run_id)
    assert world.effects(runner.run_id) == [("a", 1, "applied", 1)]


def test_a_long_reason_is_cut_where_lists_show_it_and_says_so(world):
    run_id = queued(world)
    world.cancel(run_id, reason="r" * 5_000)
    reason = world.view(run_id).summary.reason
    assert len(reason) == 1_000
    assert reason.endswith("r… (5,000 characters)")


# --- what all have in common ----------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["pause", "resume", "cancel"])
@pytest.mark.parametrize("outcome", ["completed", "failed", "timed_out"])
def test_an_ended_run_is_rejected_with_how_it_ended(world, act, outcome):
    runner = world.run(linear(1))
    runner.finish(outcome=outcome)
    before = world.dump()
    with pytest.raises(Rejected, match=rf"has ended \({outcome}.*nothing to {act}"):
        getattr(world, act)(runner.run_id)
    assert world.dump() == before


@pytest.mark.parametrize("act", ["pause", "resume", "cancel"])
def test_a_revision_that_has_moved_is_a_conflict(world, act):
    run_id = paused(world) if act == "resume" else queued(world)
    revision = world.row(run_id)["revision"]
    with pytest.raises(Conflict, match=f"has revision {revision} by now; you expected 99"):
        getattr(world, act)(run_id, expected_revision=99)
    getattr(world, act)(run_id, expected_revision=revision)


@pytest.mark.parametrize("act", ["pause", "resume", "cancel"])
def test_an_unknown_run_is_not_found(world, act):
    with pytest.raises(NotFound):
        getattr(world, act)("nothing")


def test_a_hold_for_an_earlier_generation_changes_nothing(world):
    run_id = running(world)
    before = world.dump()
    world.do(hold_run, HoldRun(run_id=run_id, generation=0, hold="load_failed", detail="late"))
    assert world.dump() == before
