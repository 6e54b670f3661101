"""Outside effects: reserved before, settled after; one of unknown outcome is observed, or waits for a person."""

import pytest

from pwf.errors import Rejected
from pwf.store.daemon import ClaimEpoch, applying, claim
from pwf.store.effects import ResolveEffect, resolve_effect
from pwf.values import canonical
from tests.store.test_retention import DAY_MS, prune
from tests.store.world import IDEMPOTENT, MANUAL, OBSERVED, World, error, graph, key, node, retry


def send(effect=MANUAL, **more):
    """send -> report, with the effect on `send`."""
    return graph(node("send", "action", effect=effect, to="report", **more), node("report"))


# --- the ledger -----------------------------------------------------------------------------------------------


def test_an_effect_is_reserved_before_its_node_may_begin(world):
    flow = graph(node("first", to="send"), node("send", "action", effect=MANUAL))
    runner = world.run(flow)
    assert world.effects(runner.run_id) == []
    assert runner.finish(to="send") == "go"
    assert world.effects(runner.run_id) == [("send", 1, "applying", 1)]
    assert runner.current.applying is True
    assert world.do(applying, None) == (f"{runner.run_id}:send:1",)


def test_the_key_is_stable_across_attempts_and_new_in_each_visit(world):
    flow = graph(node("send", "action", effect=IDEMPOTENT, to="again"), node("again", to="send"))
    runner = world.run(flow)
    runner.gone()
    runner = world.launch()
    runner.finish(to="again")
    runner.finish(to="send")
    runner.gone()
    world.launch()
    keys = [effect.effect_key for effect in world.view(runner.run_id).effects]
    assert sorted(keys) == [f"{runner.run_id}:send:{visit}" for visit in (1, 2)]
    assert world.effects(runner.run_id) == [("send", 1, "applied", 2), ("send", 2, "applying", 2)]


def test_outside_no_effect_has_the_key_of_another_home_nor_of_a_later_run_of_a_chosen_id(world, tmp_path):
    (tmp_path / "another").mkdir()
    elsewhere = World(tmp_path / "another")
    elsewhere.start(send(), run_id="draws-other-bits", at_ms=elsewhere.clock.wall_ms + 10**12)
    keys = set()
    for home in (world, elsewhere):
        for _ in range(2):
            runner = home.run(send(IDEMPOTENT), run_id="nightly")
            runner.gone()
            claimed = home.do(claim, ClaimEpoch(token="t", lease_ms=30_000, pid=9, version="x"))
            home.epoch = claimed.epoch  # the next daemon's
            again = home.launch("nightly")
            assert again.launch.outside_name == runner.launch.outside_name
            effect = home.view("nightly").effects[0]
            assert effect.effect_key == "nightly:send:1"
            assert effect.outside_key == f"{runner.launch.outside_name}:send:1"
            keys.add(effect.outside_key)
            again.finish(to="report")
            again.finish()
            again.leave()
            home.clock.forward(31 * DAY_MS)
            assert prune(home) == (1, 1, {})
    elsewhere.close()
    assert len(keys) == 4


def test_the_run_in_a_key_outside_is_its_id_where_that_is_random_already(world):
    runner = world.run(send())
    assert runner.launch.outside_name is None
    assert world.view(runner.run_id).effects[0].outside_key is None


@pytest.mark.parametrize(
    ("effect", "facts", "status"),
    [
        (IDEMPOTENT, {}, "applied"),
        (IDEMPOTENT, {"outcome": "failed"}, "failed"),
        (MANUAL, {"settled": "applied"}, "applied"),
        (MANUAL, {"settled": "rejected", "outcome": "failed"}, "rejected"),
        (MANUAL, {"settled": "applied", "outcome": "failed"}, "applied"),
    ],
)
def test_how_a_step_ends_settles_its_effect(world, effect, facts, status):
    runner = world.run(graph(node("send", "action", effect=effect)))
    assert runner.finish(effect_ref="ref-1", **facts) == "end"
    assert world.effects(runner.run_id) == [("send", 1, status, 1)]
    assert world.view(runner.run_id).effects[0].ref == "ref-1"


def test_a_rejected_effect_may_be_tried_again(world):
    runner = world.run(send(OBSERVED, retry=retry(1, 0)))
    assert runner.fail(settled="rejected") == "park"
    runner.leave()
    again = world.launch()
    assert (again.launch.observe, again.launch.tries) == (False, 2)
    assert world.effects(runner.run_id) == [("send", 1, "applying", 2)]


def test_an_applied_effect_whose_step_failed_is_never_tried_again_nor_routed(world):
    flow = send(OBSERVED, retry=retry(3, 0), on={"failed": "report"})
    runner = world.run(flow)
    assert runner.fail("the output is no JSON", settled="applied", to="report") == "end"
    assert world.status(runner.run_id) == "failed"
    assert world.effects(runner.run_id) == [("send", 1, "applied", 1)]


def test_an_idempotent_effect_simply_runs_again_after_a_crash(world):
    runner = world.run(send(IDEMPOTENT))
    runner.gone()
    again = world.launch()
    assert again.launch.observe is False
    assert again.finish(to="report") == "go"
    assert world.effects(runner.run_id) == [("send", 1, "applied", 2)]


# --- unknown: no observe function -----------------------------------------------------------------------------


def _unknown_by_word(runner):
    assert runner.fail(settled="unknown") == "park"
    runner.leave()


def _unknown_without_a_word(runner):
    assert runner.fail() == "park"
    runner.leave()


def _unknown_by_crash(runner):
    runner.gone()


def _unknown_by_timeout(runner):
    runner.gone(timed_out=runner.attempt)


UNKNOWN = [_unknown_by_word, _unknown_without_a_word, _unknown_by_crash, _unknown_by_timeout]


@pytest.mark.parametrize("become", UNKNOWN)
def test_an_unknown_effect_holds_its_run_for_a_person(world, become):
    runner = world.run(send(retry=None, on={"failed": "report", "timed_out": "report"}))
    become(runner)
    assert world.status(runner.run_id) == "ambiguous"
    assert world.effects(runner.run_id) == [("send", 1, "ambiguous", 1)]
    assert world.trail(runner.run_id) == ["send.1 unknown"]
    assert world.admit() == ()


def test_a_person_says_that_it_happened(world):
    runner = world.run(send())
    runner.gone()
    changed = world.recover(runner.run_id, "happened", {"sent": 1})
    assert changed.status == "queued"
    assert world.effects(runner.run_id) == [("send", 1, "applied", 1)]
    again = world.launch(runner.run_id)
    assert again.launch.node == "report"
    assert bytes(again.launch.past[0].output.json) == b'{"sent":1}'
    assert world.trail(runner.run_id) == ["send.1 completed", "report.1 active"]


def test_a_recovered_output_without_a_case_fails_the_run(world):
    flow = graph(node("send", "action", effect=MANUAL, cases={1: "a"}), node("a"))
    runner = world.run(flow)
    runner.gone()
    assert world.recover(runner.run_id, "happened", 2).status == "failed"
    assert world.view(runner.run_id).error.code == "routing_failed"


def test_a_recovered_last_step_ends_its_run_with_the_output(world):
    runner = world.run(graph(node("send", "action", effect=MANUAL)))
    runner.gone()
    assert world.recover(runner.run_id, "happened", "it").status == "completed"
    assert bytes(world.view(runner.run_id).output.json) == b'"it"'


def test_a_person_says_that_it_did_not_happen(world):
    runner = world.run(send())
    runner.gone()
    world.recover(runner.run_id, "not_happened")
    again = world.launch(runner.run_id)
    assert (again.launch.node, again.launch.observe) == ("send", False)
    assert again.finish(settled="applied", to="report") == "go"
    assert world.effects(runner.run_id) == [("send", 1, "applied", 2)]


def test_without_an_observe_function_nothing_can_be_observed(world):
    runner = world.run(send())
    runner.gone()
    before = world.dump()
    with pytest.raises(Rejected, match="no observe function"):
        world.recover(runner.run_id, "observe")
    assert world.dump() == before


@pytest.mark.parametrize("verdict", ["happened", "not_happened", "observe", "give_up"])
def test_there_is_nothing_to_recover_where_nothing_is_ambiguous(world, verdict):
    runner = world.run(send())
    with pytest.raises(Rejected, match="no ambiguous effect"):
        world.recover(runner.run_id, verdict)


def test_recovery_is_done_once_per_key(world):
    runner = world.run(send())
    runner.gone()
    command = ResolveEffect(
        run_id=runner.run_id,
        verdict="not_happened",
        receipt=key(operation="effect.resolve"),
        output=canonical(None),
    )
    first = world.do(resolve_effect, command)
    world.launch(runner.run_id).gone()
    assert world.status(runner.run_id) == "ambiguous"
    again = world.done(resolve_effect, command)
    assert (again.result, again.adopted) == (first, True)
    assert world.status(runner.run_id) == "ambiguous"  # the second doubt is another one


@pytest.mark.parametrize(
    ("verdict", "status"), [("happened", "applied"), ("not_happened", "rejected"), ("give_up", "abandoned")]
)
def test_the_effect_of_an_ended_run_is_settled_and_nothing_runs(world, verdict, status):
    runner = world.run(send())
    world.cancel(runner.run_id)
    runner.gone(stopped=True)
    assert world.effects(runner.run_id) == [("send", 1, "ambiguous", 1)]
    with pytest.raises(Rejected, match="has ended"):
        world.recover(runner.run_id, "observe")
    assert world.recover(runner.run_id, verdict).status == "cancelled"
    assert world.effects(runner.run_id) == [("send", 1, status, 1)]
    assert world.admit() == ()


# --- unknown: observe -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("become", UNKNOWN)
def test_an_unknown_effect_is_observed_by_the_next_runner(world, become):
    runner = world.run(send(OBSERVED))
    become(runner)
    again = world.launch(runner.run_id)
    assert (again.launch.node, again.launch.observe) == ("send", True)
    outcome = {"_unknown_by_crash": None, "_unknown_by_timeout": "timed_out"}.get(become.__name__, "failed")
    assert again.launch.observe_then == outcome
    assert (again.launch.observe_error is not None) == (outcome is not None)


def test_nothing_is_observed_before_the_old_processes_are_proved_dead(world):
    runner = world.run(send(OBSERVED))
    runner.fail(settled="unknown")
    assert world.admit() == ()
    assert world.why(runner.run_id).code == "reaping"
    runner.leave()
    world.launch(runner.run_id)


def test_observed_as_applied_the_run_goes_on_with_its_output(world):
    runner = world.run(send(OBSERVED))
    runner.gone()
    again = world.launch()
    assert again.finish("found", settled="applied", observed=True, effect_ref="r", to="report") == "go"
    assert world.effects(runner.run_id) == [("send", 1, "applied", 2)]
    assert world.trail(runner.run_id) == ["send.1 unknown", "send.1 completed", "report.1 active"]


def test_observed_as_not_applied_after_an_interruption_the_node_runs(world):
    runner = world.run(send(OBSERVED))
    runner.gone()
    again = world.launch()
    assert again.launch.observe_then is None
    assert again.finish("sent", settled="applied", to="report") == "go"  # the runner has run it itself


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
def test_observed_as_not_applied_the_outcome_counts_with_its_first_error(world, outcome):
    runner = world.run(send(OBSERVED, on={outcome: "report"}))
    runner.finish(outcome=outcome, settled="unknown", error=error("no answer from the bank"))
    runner.leave()
    again = world.launch()
    assert again.launch.observe_then == outcome
    verdict = again.finish(outcome=outcome, settled="rejected", observed=True, error=None, to="report")
    assert verdict == "go"
    assert world.effects(runner.run_id) == [("send", 1, "rejected", 2)]
    again.gone()
    past = world.launch().launch.past[0]
    assert (past.outcome, past.error.message) == (outcome, "no answer from the bank")


def test_a_retry_comes_only_after_not_applied(world):
    runner = world.run(send(OBSERVED, retry=retry(1, 0)))
    runner.fail(settled="unknown")
    runner.leave()
    again = world.launch()
    assert again.launch.observe is True
    assert again.finish(outcome="failed", settled="rejected", observed=True, error=None) == "park"
    again.leave()
    third = world.launch()
    assert (third.launch.observe, third.launch.tries) == (False, 3)
    assert world.row(runner.run_id)["failures"] == 1


def test_an_observation_that_can_not_tell_holds_the_run(world):
    runner = world.run(send(OBSERVED))
    runner.gone()
    again = world.launch()
    assert again.fail(settled="unknown", observed=True) == "park"
    again.leave()
    assert world.status(runner.run_id) == "ambiguous"
    assert "observe() could not tell" in world.why(runner.run_id).reason


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_a_person_may_have_it_observed_again(world, outcome):
    runner = world.run(send(OBSERVED))
    if outcome == "failed":
        runner.fail(settled="unknown")
    runner.gone()
    again = world.launch()
    again.fail(settled="unknown", observed=True)
    again.leave()
    world.recover(runner.run_id, "observe")
    third = world.launch(runner.run_id)
    assert third.launch.observe is True
    assert third.launch.observe_then == ("failed" if outcome == "failed" else None)


def test_an_interrupted_observation_is_made_again_and_reports_the_same(world):
    runner = world.run(send(OBSERVED))
    runner.fail(settled="unknown")
    runner.leave()
    world.launch().gone(stopped=True)
    again = world.launch()
    assert (again.launch.observe, again.launch.observe_then) == (True, "failed")


def test_the_first_error_is_reported_although_the_observation_was_interrupted(world):
    runner = world.run(send(OBSERVED))
    runner.fail("no answer from the bank", settled="unknown")
    runner.leave()
    world.launch().gone(stopped=True)
    world.launch().finish(outcome="failed", settled="rejected", observed=True, error=None)
    assert "no answer from the bank" in world.view(runner.run_id).summary.reason


def test_an_observation_that_takes_too_long_holds_the_run(world):
    runner = world.run(send(OBSERVED, timeout_ms=100))
    runner.gone(timed_out=runner.attempt)
    again = world.launch()
    again.gone(timed_out=again.attempt)
    assert world.status(runner.run_id) == "ambiguous"
    world.recover(runner.run_id, "observe")
    assert world.launch().launch.observe_then == "timed_out"


def test_an_effect_that_kills_its_runner_three_times_holds_the_run(world):
    runner = world.run(send(OBSERVED))
    for _ in range(2):
        runner.gone()
        world.clock.forward(1_000)
        runner = world.launch()
        assert runner.launch.observe is True
    runner.gone()
    view = world.view(runner.run_id)
    assert view.summary.hold == "no_progress"
    world.resume(runner.run_id)
    assert world.launch().launch.observe is True  # still nothing is tried without having looked


def test_a_manual_effect_whose_step_died_is_ambiguous_and_never_takes_the_failed_way(world):
    runner = world.run(graph(node("send", "action", effect=MANUAL, on={"failed": "rescue"}), node("rescue")))
    runner.die("SIGKILL")
    assert world.status(runner.run_id) == "ambiguous"
    assert world.trail(runner.run_id) == ["send.1 unknown"]
    assert "SIGKILL" in world.view(runner.run_id).steps[0].error.message


def not_applied(runner):
    """`observe` says that it did not happen, and the runner reports what it was told."""
    told = runner.launch
    assert (told.observe, told.observe_then, told.observe_error.code) == (True, "failed", "runner_crashed")
    return runner.finish(outcome="failed", settled="rejected", observed=True, error=told.observe_error)


@pytest.mark.parametrize("times", [None, 1])
def test_the_death_of_a_manual_effect_counts_once_it_is_known_that_it_did_not_happen(world, times):
    again = None if times is None else retry(times, 2_000)
    pay = node("pay", "action", effect=OBSERVED, retry=again, on={"failed": "rescue"})
    runner = world.run(graph(pay, node("rescue")))
    deaths = 3 if times is None else times + 1
    for count in range(1, deaths + 1):
        runner.die()
        observer = world.launch(runner.run_id)
        if count == deaths:
            assert not_applied(observer) == "go"
            assert world.trail(runner.run_id)[-1] == "rescue.1 active"
            return
        assert not_applied(observer) == "park"
        observer.leave()
        world.clock.forward(2_000)
        runner = world.launch(runner.run_id)


def test_an_observation_that_ends_its_process_three_times_can_not_tell(world):
    runner = world.run(send(OBSERVED))
    runner.die("SIGSEGV")
    for _ in range(3):
        runner = world.launch(runner.run_id)
        assert (runner.launch.observe, runner.launch.observe_error.message) == (True, "SIGSEGV")
        runner.die("SIGBUS")
        world.clock.forward(1_000)
    assert world.status(runner.run_id) == "ambiguous"
    assert "could not tell" in world.view(runner.run_id).summary.reason


def test_pause_now_of_a_manual_effect_is_observed_after_resume(world):
    runner = world.run(send(OBSERVED))
    world.pause(runner.run_id, now=True)
    runner.gone(stopped=True)
    assert world.status(runner.run_id) == "paused"
    assert world.effects(runner.run_id) == [("send", 1, "applying", 1)]
    world.resume(runner.run_id)
    assert world.launch().launch.observe is True


def test_cancel_of_an_effect_that_waits_to_be_observed_leaves_it_ambiguous(world):
    runner = world.run(send(OBSERVED))
    runner.gone()
    world.cancel(runner.run_id)
    assert world.effects(runner.run_id) == [("send", 1, "ambiguous", 1)]


# --- observations, as people see them -------------------------------------------------------------------------


def observing(world):
    """An attempt that begins with a look at what became of the one before."""
    runner = world.run(send(OBSERVED))
    runner.gone()
    return world.launch()


def observed(world, run_id):
    return [(step.status, step.observed) for step in world.view(run_id).steps]


def test_an_attempt_that_only_observed_is_told_as_that(world):
    runner = observing(world)
    assert observed(world, runner.run_id) == [("unknown", False), ("active", True)]
    runner.finish("sent", settled="applied", observed=True, to="report")
    assert observed(world, runner.run_id)[:2] == [("unknown", False), ("completed", True)]


def test_an_attempt_that_ran_after_its_observation_is_a_try(world):
    runner = observing(world)
    runner.finish("sent", settled="applied", to="report")
    assert observed(world, runner.run_id)[1] == ("completed", False)


def test_an_observation_that_was_interrupted_was_one(world):
    runner = observing(world)
    runner.gone()
    assert observed(world, runner.run_id)[1][1] is True
