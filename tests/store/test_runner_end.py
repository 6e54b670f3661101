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


# --- a step that takes its process with it -----------------------------------------------------------------------


def deaths(world, runner, times):
    """The same step dies again and again; its next runner, if there is one."""
    for _ in range(times):
        assert runner is not None
        runner.die()
        world.clock.forward(60_000)
        found = world.admit()
        runner = Runner(world, found[0]) if found else None
        if runner is not None:
            runner.begin()
    return runner


def test_each_death_of_a_step_is_one_failed_try_with_the_signal_named(world):
    runner = world.run(linear(1))
    runner.die("its runner ended in the middle of the step (SIGSEGV)")
    step = world.view(runner.run_id).steps[0]
    assert (step.status, step.error.code) == ("failed", "runner_crashed")
    assert "SIGSEGV" in step.error.message
    assert world.row(runner.run_id)["crashes"] == 0


@pytest.mark.parametrize("times", [1, 2, 4])
def test_retry_counts_the_deaths_of_a_step_and_then_the_failed_way_applies(world, times):
    flow = graph(node("a", retry=retry(times, 2_000), on={"failed": "rescue"}), node("rescue"))
    runner = world.run(flow)
    runner.die()
    assert world.admission().next_in_ms == 2_000
    world.clock.forward(2_000)
    runner = deaths(world, world.launch(runner.run_id), times)
    assert world.trail(runner.run_id)[:-1] == ["a.1 failed"] * (times + 1)
    assert runner.launch.node == "rescue"
    assert runner.launch.past[0].error.code == "runner_crashed"


def test_retry_counts_deaths_and_failures_together(world):
    runner = world.run(graph(node("a", retry=retry(2, 0))))
    runner.fail()
    runner.leave()
    runner = deaths(world, world.launch(runner.run_id), 1)
    runner.fail()
    assert world.status(runner.run_id) == "failed"


def test_without_retry_three_deaths_of_a_step_take_the_failed_way(world):
    runner = world.run(graph(node("a", on={"failed": "rescue"}), node("rescue")))
    runner.die()
    runner = world.launch(runner.run_id)  # at once
    runner.die()
    assert world.admission().next_in_ms == 1_000
    assert world.why(runner.run_id).code == "retry_later"
    world.clock.forward(1_000)
    assert deaths(world, world.launch(runner.run_id), 1).launch.node == "rescue"
    assert world.trail(runner.run_id) == ["a.1 failed"] * 3 + ["rescue.1 active"]


def test_without_retry_and_without_a_failed_way_the_third_death_ends_the_run_and_names_the_signal(world):
    runner = world.run(linear(1))
    assert deaths(world, runner, 3) is None
    view = world.view(runner.run_id)
    assert (view.summary.status, view.error.code) == ("failed", "runner_crashed")
    assert "SIGSEGV" in view.summary.reason


def test_a_further_visit_has_three_deaths_of_its_own(world):
    flow = graph(node("a", cases={"again": "a", "on": "b"}), node("b"))
    runner = deaths(world, world.run(flow), 2)
    runner.finish("again", to="a")
    runner = deaths(world, runner, 2)
    assert (runner.launch.node, runner.launch.visit) == ("a", 2)


def test_an_idempotent_effect_whose_step_died_has_failed_and_is_begun_again(world):
    runner = world.run(graph(node("a", "action", effect=IDEMPOTENT)))
    runner.die()
    assert world.effects(runner.run_id) == [("a", 1, "failed", 1)]
    world.launch(runner.run_id)
    assert world.effects(runner.run_id) == [("a", 1, "applying", 2)]


def test_a_death_that_leaves_processes_commits_no_outcome(world):
    runner = world.run(graph(node("a", on={"failed": "rescue"}, retry=retry(1)), node("rescue")))
    runner.die(proved=False)
    assert world.trail(runner.run_id) == ["a.1 interrupted"]
    assert world.view(runner.run_id).summary.hold == "process_unreaped"


def test_deaths_of_a_step_and_ends_outside_one_are_counted_apart(world):
    runner = crash(world, world.run(linear(1)), 2)
    runner = deaths(world, runner, 2)
    assert world.row(runner.run_id)["crashes"] == 0
    runner = crash(world, runner, 2)
    assert world.status(runner.run_id) == "running"


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
