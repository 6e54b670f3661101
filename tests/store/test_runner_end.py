"""The end of a runner's process: the last committed boundary decides, and nothing is settled without proof."""

import pytest

from pwf.protocol.runner import StepError
from tests.store.world import IDEMPOTENT, Runner, graph, linear, node, retry

# --- interruption at every boundary ---------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("step", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["compute", "action"])
def test_a_run_goes_on_from_its_last_committed_step(world, kind, step, stopped):
    effect = IDEMPOTENT if kind == "action" else None
    flow = linear(4, kind, effect=effect)
    names = [spec.id for spec in flow.nodes]
    runner = world.run(flow)
    for index in range(step):
        assert runner.finish(index, to=names[index + 1]) == "go"
    runner.gone(stopped=stopped)
    assert world.why(runner.run_id).code in ("behind_in_queue", "due_later")
    again = world.launch(runner.run_id)  # at once: no lease is waited for
    assert (again.launch.node, again.launch.visit) == (names[step], 1)
    assert [past.node for past in again.launch.past] == names[:step]
    for index in range(step, 3):
        again.finish(index, to=names[index + 1])
    assert again.finish() == "end"
    completed = [line for line in world.trail(runner.run_id) if line.endswith("completed")]
    assert completed == [f"{name}.1 completed" for name in names]


def test_the_end_of_a_runner_is_safe_to_settle_twice(world):
    runner = world.run(linear(2))
    runner.gone()
    before = world.dump()
    runner.gone()
    assert world.dump() == before


def test_the_late_end_of_an_earlier_generation_changes_nothing(world):
    first = world.run(linear(2))
    first.gone()
    second = world.launch()
    before = world.dump()
    first.gone()
    first.gone(proved=False)
    first.gone(timed_out=1)
    assert world.dump() == before
    assert second.finish(1, to="b") == "go"


def test_the_end_of_a_runner_after_the_end_of_its_run_only_clears_its_row(world):
    runner = world.run(linear(1))
    runner.finish("it")
    before = world.view(runner.run_id)
    runner.gone()
    assert world.view(runner.run_id) == before
    assert world.sql("SELECT * FROM runners") == []


def test_a_runner_that_ends_before_it_was_launched_leaves_no_attempt(world):
    run_id = world.start(linear(1))
    (admission,) = world.admit()
    Runner(world, admission).gone(stopped=True)
    assert world.trail(run_id) == []
    assert world.launch(run_id).launch.attempt == 1


def test_an_interrupted_attempt_keeps_what_the_runner_died_of(world):
    runner = world.run(linear(1))
    runner.gone(error=StepError(code="runner_crashed", message="signal 11"))
    step = world.view(runner.run_id).steps[0]
    assert (step.status, step.error.message) == ("interrupted", "signal 11")


# --- no progress ----------------------------------------------------------------------------------------------


def crash(world, runner, times):
    for _ in range(times):
        runner.gone()
        world.clock.forward(1_000)
        found = world.admit()
        if found:
            runner = Runner(world, found[0])
            runner.begin()
    return runner


def test_three_ends_without_progress_hold_the_run(world):
    runner = crash(world, world.run(linear(2)), 3)
    view = world.view(runner.run_id)
    assert view.summary.hold == "no_progress"
    assert "ended 3 times in a row at node 'a' without progress" in view.summary.reason
    world.resume(runner.run_id)
    runner = crash(world, world.launch(runner.run_id), 2)  # the count begins anew
    assert runner.finish(1, to="b") == "go"


def test_there_is_a_pause_before_the_last_try(world):
    runner = world.run(linear(1))
    runner.gone()
    runner = world.launch()
    runner.gone()
    assert world.admission().next_in_ms == 1_000


@pytest.mark.parametrize("how", ["step", "request", "timer"])
def test_progress_clears_the_count(world, how):
    second = {"step": "compute", "request": "checkpoint", "timer": "wait"}[how]
    runner = crash(world, world.run(graph(node("a", second, to="b"), node("b", to="c"), node("c"))), 2)
    if how == "step":
        runner.finish(to="b")
    elif how == "request":
        runner.ask()
        runner.leave()
        world.answer(runner.run_id, 1)
        runner = world.launch()
    else:
        runner.wait(delay_ms=1)
        runner.leave()
        world.clock.forward(1)
        runner = world.launch()
    runner = crash(world, runner, 2)
    assert world.status(runner.run_id) == "running"


def test_ends_with_the_daemon_or_by_our_hand_count_against_nobody(world):
    runner = world.run(linear(1))
    for _ in range(5):
        runner.gone(stopped=True)
        runner = world.launch()
    assert world.row(runner.run_id)["crashes"] == 0


# --- time -----------------------------------------------------------------------------------------------------


def test_a_step_that_took_too_long_is_timed_out(world):
    runner = world.run(linear(2, timeout_ms=500))
    runner.gone(timed_out=runner.attempt)
    view = world.view(runner.run_id)
    assert view.summary.status == "timed_out"
    assert view.error.code == "runner_timed_out"
    assert "node 'a' took longer than its 500 ms" in view.summary.reason
    assert world.trail(runner.run_id) == ["a.1 timed_out"]


def test_timed_out_takes_its_way_out_in_a_new_runner(world):
    flow = graph(node("a", on={"timed_out": "rescue"}, timeout_ms=500), node("rescue"))
    runner = world.run(flow)
    runner.gone(timed_out=runner.attempt)
    again = world.launch(runner.run_id)
    assert (again.launch.node, again.launch.generation) == ("rescue", 2)
    assert again.launch.past[0].outcome == "timed_out"


def test_timed_out_is_a_failed_try(world):
    runner = world.run(graph(node("a", retry=retry(1, 2_000), timeout_ms=500)))
    runner.gone(timed_out=runner.attempt)
    assert world.admission().next_in_ms == 2_000
    assert world.row(runner.run_id)["crashes"] == 0


def test_a_step_that_ended_just_before_its_time_was_over_stays_ended(world):
    runner = world.run(linear(2, timeout_ms=500))
    late = runner.attempt
    runner.finish(1, to="b")
    runner.gone(timed_out=late)
    assert world.trail(runner.run_id) == ["a.1 completed", "b.1 interrupted"]
    assert world.status(runner.run_id) == "queued"


def test_an_idempotent_effect_that_took_too_long_has_failed(world):
    runner = world.run(graph(node("a", "action", effect=IDEMPOTENT, timeout_ms=500)))
    runner.gone(timed_out=runner.attempt)
    assert world.effects(runner.run_id) == [("a", 1, "failed", 1)]


# --- proof ----------------------------------------------------------------------------------------------------


def test_processes_that_can_not_be_shown_dead_hold_the_run(world):
    runner = world.run(linear(2))
    runner.gone(proved=False)
    assert world.view(runner.run_id).summary.hold == "process_unreaped"
    assert world.sql("SELECT state FROM runners") == [("ending",)]
    world.resume(runner.run_id)
    assert world.admit() == ()
    assert world.why(runner.run_id).code == "reaping"
    runner.gone(proved=False)  # looked at again
    assert world.view(runner.run_id).summary.hold == "process_unreaped"
    runner.gone()
    assert world.view(runner.run_id).summary.hold == "process_unreaped"  # until somebody resumes it
    world.resume(runner.run_id)
    world.launch(runner.run_id)


def test_no_timeout_is_committed_without_proof(world):
    flow = graph(node("a", on={"timed_out": "rescue"}, timeout_ms=500), node("rescue"))
    runner = world.run(flow)
    runner.gone(timed_out=runner.attempt, proved=False)
    assert world.trail(runner.run_id) == ["a.1 interrupted"]
    assert world.view(runner.run_id).summary.hold == "process_unreaped"
    assert world.row(runner.run_id)["crashes"] == 0


@pytest.mark.parametrize("kind", ["wait", "checkpoint"])
def test_a_parked_run_whose_runner_can_not_be_shown_dead_is_held_too(world, kind):
    runner = world.run(graph(node("a", kind, to="b"), node("b")))
    if kind == "wait":
        runner.wait(delay_ms=1_000)
    else:
        runner.ask()
    runner.gone(proved=False)
    assert world.view(runner.run_id).summary.hold == "process_unreaped"
    runner.gone()
    world.clock.forward(1_000)
    assert world.admit() == ()
    world.resume(runner.run_id)
    if kind == "checkpoint":
        world.answer(runner.run_id, 1)
    assert world.launch(runner.run_id).launch.node == "b"


def test_a_cancelled_runs_processes_stay_on_the_books_until_proved_dead(world):
    runner = world.run(linear(2))
    world.cancel(runner.run_id)
    runner.gone(proved=False, stopped=True)
    assert world.status(runner.run_id) == "cancelled"
    assert world.sql("SELECT state FROM runners") == [("ending",)]
    runner.gone()
    assert world.sql("SELECT * FROM runners") == []
