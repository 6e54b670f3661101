"""Outside effects: reserved before, settled after; one of unknown outcome is observed, or waits for a person."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwf.errors import Conflict, InvalidArgument, NotFound, Rejected
from pwf.protocol.effects import read_effect_key
from pwf.protocol.runner import effect_key
from pwf.store.daemon import applying
from pwf.store.effect_detail import EffectQuery, effect_detail
from pwf.store.effects import OutputQuery, ResolveEffect, output_type, resolve_effect
from pwf.values import canonical
from tests.store.world import IDEMPOTENT, MANUAL, OBSERVED, error, graph, key, node, retry


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
    keys = [runner.launch.effect_key]
    runner.gone()
    runner = world.launch()
    keys.append(runner.launch.effect_key)
    runner.finish(to="again")
    runner.finish(to="send")
    runner.gone()
    keys.append(world.launch().launch.effect_key)
    assert keys == [f"{runner.run_id}:send:{visit}" for visit in (1, 1, 2)]
    assert world.effects(runner.run_id) == [("send", 1, "applied", 2), ("send", 2, "applying", 2)]


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


def test_an_unknown_effect_of_processes_that_may_live_stays_ambiguous_through_resume(world):
    runner = world.run(send())
    runner.gone(proved=False)
    assert world.status(runner.run_id) == "ambiguous"
    with pytest.raises(Rejected):
        world.resume(runner.run_id)
    with pytest.raises(Rejected, match="not proved dead yet, and effect"):
        world.recover(runner.run_id, "not_happened")
    assert "not proved dead yet" in detail(world, runner.run_id).known
    runner.gone()
    assert "not proved dead yet" not in detail(world, runner.run_id).known
    world.recover(runner.run_id, "not_happened")
    world.launch(runner.run_id)


def test_nobody_says_that_it_did_not_happen_while_the_cancelled_step_may_still_do_it(world):
    runner = world.run(send())
    world.cancel(runner.run_id)  # from here to its end the step has time to stop
    with pytest.raises(Rejected, match="may still happen"):
        world.recover(runner.run_id, "not_happened")
    runner.gone(stopped=True)
    assert world.recover(runner.run_id, "not_happened").status == "cancelled"


def test_cancel_of_an_effect_that_waits_to_be_observed_leaves_it_ambiguous(world):
    runner = world.run(send(OBSERVED))
    runner.gone()
    world.cancel(runner.run_id)
    assert world.effects(runner.run_id) == [("send", 1, "ambiguous", 1)]


def test_a_word_about_an_earlier_attempt_given_late_settles_nothing(world):
    runner = world.run(send(MANUAL))
    runner.gone()
    seen = world.row(runner.run_id)["revision"]
    world.recover(runner.run_id, "not_happened", expected_revision=seen)
    world.launch().gone()
    with pytest.raises(Conflict, match="you expected"):
        world.recover(runner.run_id, "not_happened", expected_revision=seen)
    assert world.status(runner.run_id) == "ambiguous"


# --- a word is about the effect that was shown ------------------------------------------------------------------


def test_a_late_word_never_settles_another_effect_than_the_one_that_was_shown(world):
    flow = graph(node("first", "action", effect=MANUAL, to="second"), node("second", "action", effect=MANUAL))
    runner = world.run(flow)
    runner.gone()
    shown = world.view(runner.run_id).effects[0].effect_key
    world.recover(runner.run_id, "not_happened", effect_key=shown)
    again = world.launch()
    again.finish(settled="applied", to="second")
    again.gone()

    with pytest.raises(Conflict, match=shown):
        world.recover(runner.run_id, "happened", effect_key=shown)

    assert world.effects(runner.run_id) == [("first", 1, "applied", 2), ("second", 1, "ambiguous", 1)]
    world.recover(runner.run_id, "happened", effect_key=f"{runner.run_id}:second:1")
    assert world.status(runner.run_id) == "completed"


def test_an_output_counts_only_for_the_node_whose_type_it_was_found_to_have(world):
    number = {"type": "integer"}
    flow = graph(
        node("first", "action", effect=MANUAL, to="second", returns=number),
        node("second", "action", effect=MANUAL),
    )
    runner = world.run(flow)
    runner.gone()
    found = world.read(output_type, OutputQuery(run_id=runner.run_id))
    assert (found.node, found.schema) == ("first", number)
    later = OutputQuery(run_id=runner.run_id, effect_key=f"{runner.run_id}:second:1")
    assert (
        world.read(output_type, later).node == ""
    )  # which is not ambiguous: the word is refused, whatever its output
    world.recover(runner.run_id, "happened", 1, checked_for=found.node)
    world.launch().gone()
    for checked_for in (found.node, ""):
        with pytest.raises(Conflict, match="'second' has become ambiguous only now"):
            world.recover(runner.run_id, "happened", 1, checked_for=checked_for)
    assert world.recover(runner.run_id, "happened", "x", checked_for="second").status == "completed"


def test_a_key_of_another_run_settles_nothing_and_any_reference_to_the_run_names_its_effect(world):
    shown = world.run(send())
    shown.gone()
    other = world.run(send())
    other.gone()
    before = world.dump()
    for key_of_other in (f"{shown.run_id}:send:1", f"{shown.run_id[:8]}:send:1"):
        with pytest.raises(Conflict, match=f"is not one of run {other.run_id}"):
            world.recover(other.run_id, "happened", effect_key=key_of_other)
    assert world.dump() == before
    world.recover(other.run_id, "happened", effect_key="@last:send:1")
    world.recover(shown.run_id, "happened", effect_key=f"{shown.run_id[:8]}:send:1")


def test_a_word_that_is_repeated_under_its_receipt_is_adopted_and_settles_nothing_more(world):
    runner = world.run(graph(node("send", "action", effect=MANUAL)))
    runner.gone()
    shown = f"{runner.run_id}:send:1"
    command = ResolveEffect(
        run_id=runner.run_id, verdict="happened", output=canonical(1), effect_key=shown, receipt=key()
    )
    world.do(resolve_effect, command)

    assert world.done(resolve_effect, command).adopted


@pytest.mark.parametrize("verdict", ["happened", "not_happened"])
def test_runners_that_ended_before_a_persons_word_do_not_count_after_it(world, verdict):
    runner = world.run(send())
    runner.gone()
    assert world.row(runner.run_id)["crashes"] == 1
    world.recover(runner.run_id, verdict)
    for _ in range(2):
        world.clock.forward(1_000)
        world.launch(runner.run_id).gone(begun=False)
        assert world.status(runner.run_id) == "queued"


def test_a_word_that_is_refused_after_the_fence_leaves_nothing_but_its_receipt(world):
    runner = world.run(send())
    runner.gone()
    before = world.dump()
    word = ResolveEffect(run_id=runner.run_id, verdict="observe", receipt=key(operation="effect.resolve"))
    assert isinstance(world.done(resolve_effect, word).refusal, Rejected)
    after = world.dump()
    assert len(after.pop("receipts")) == len(before.pop("receipts")) + 1
    assert after == before


# --- what a person says is kept, and giving up ------------------------------------------------------------------


def test_a_word_is_kept_with_who_said_it_and_its_note_until_the_effect_begins_anew(world):
    runner = world.run(send())
    runner.gone()
    world.recover(runner.run_id, "happened", 1, ref="4711", note="seen on the statement", actor="client:ada")
    effect = world.view(runner.run_id).effects[0]
    assert (effect.status, effect.ref, effect.settled_by) == ("applied", "4711", "client:ada")
    assert effect.note == "seen on the statement"
    world.cancel(runner.run_id)
    other = world.run(send())
    other.gone()
    world.recover(other.run_id, "not_happened", note="nothing there", actor="client:ada")
    world.launch(other.run_id)
    effect = world.view(other.run_id).effects[0]
    assert (effect.status, effect.settled_by, effect.note) == ("applying", None, None)


def test_a_try_that_was_settled_leaves_its_reference_to_no_later_one_and_an_unknown_one_does(world):
    runner = world.run(send(OBSERVED, retry=retry(1, 0)))
    runner.fail(settled="rejected", effect_ref="refused 1")
    runner.leave()
    again = world.launch()
    assert world.view(runner.run_id).effects[0].ref is None
    again.fail(settled="unknown", effect_ref="sent 2")
    again.leave()
    world.launch()
    assert world.view(runner.run_id).effects[0].ref == "sent 2"  # what is observed is that try


def test_given_up_the_failed_way_applies_and_nothing_is_tried_again(world):
    flow = graph(
        node("send", "action", effect=OBSERVED, retry=retry(3, 0), on={"failed": "rescue"}), node("rescue")
    )
    runner = world.run(flow)
    runner.gone()
    observer = world.launch()
    observer.fail(settled="unknown", observed=True)
    observer.leave()
    assert world.recover(runner.run_id, "give_up", note="the shop is closed").status == "queued"
    assert world.effects(runner.run_id) == [("send", 1, "abandoned", 2)]
    again = world.launch(runner.run_id)
    assert (again.launch.node, again.launch.past[0].outcome) == ("rescue", "failed")
    assert "the shop is closed" in again.launch.past[0].error.message
    assert world.trail(runner.run_id) == ["send.1 unknown", "send.1 failed", "rescue.1 active"]


def test_given_up_without_a_failed_way_the_run_fails_and_says_so(world):
    runner = world.run(send())
    runner.gone()
    assert world.recover(runner.run_id, "give_up").status == "failed"
    view = world.view(runner.run_id)
    assert (view.error.code, view.effects[0].status) == ("effect_abandoned", "abandoned")
    assert "may have happened" in view.summary.reason


def test_a_commands_output_by_a_persons_word_is_what_was_parsed_of_it(world):
    runner = world.run(graph(node("send", "shell", effect=MANUAL)))
    runner.gone()
    world.recover(runner.run_id, "happened", [1])
    assert bytes(world.view(runner.run_id).output.json) == b'{"exit_code":0,"parsed":[1]}'


# --- what is shown before a person decides ----------------------------------------------------------------------


def detail(world, run_id, key=None):
    query = EffectQuery(run_id=run_id, effect_key=key or f"{run_id}:send:1")
    return world.read(effect_detail, query)


def test_an_effect_is_shown_with_its_attempts_what_is_known_and_what_each_word_would_do(world):
    runner = world.run(send(OBSERVED, on={"failed": "report"}))
    runner.fail("no answer from the bank", settled="unknown")
    runner.leave()
    observer = world.launch()
    observer.fail("the bank is closed", settled="unknown", observed=True)
    observer.leave()
    found = detail(world, runner.run_id)
    assert [(step.attempt, step.status, step.generation) for step in found.steps] == [
        (1, "unknown", 1),
        (2, "unknown", 2),
    ]
    assert "the bank is closed" in found.known
    does = {word.verdict: word.does for word in found.words}
    assert list(does) == ["happened", "not_happened", "observe", "give_up"]
    assert "'report', the way of failed" in does["give_up"]
    assert all(found.effect.effect_key in word.command for word in found.words)
    seen = world.row(runner.run_id)["revision"]  # so that a word which is given late settles no later attempt
    assert all(word.command.endswith(f" --revision {seen}") for word in found.words)


def test_of_an_ended_run_nothing_can_be_observed_and_of_a_settled_effect_nothing_said(world):
    runner = world.run(send(OBSERVED))
    world.cancel(runner.run_id)
    runner.gone(stopped=True)
    found = detail(world, runner.run_id)
    assert [word.verdict for word in found.words] == ["happened", "not_happened", "give_up"]
    assert all("the run stays cancelled" in word.does for word in found.words)
    world.recover(runner.run_id, "give_up", actor="client:ada")
    found = detail(world, runner.run_id)
    assert (found.words, found.known) == ((), "it may have happened, and was given up: so client:ada said")


@pytest.mark.parametrize("said", ["", "x", "x:y", "x:y:z", ":y:1", "x::1", "x:y:1²", "x:y:" + "9" * 30])
def test_what_is_no_key_is_refused_in_words(world, said):
    with pytest.raises(InvalidArgument, match="is no effect's key"):
        read_effect_key(said)


@given(st.text(min_size=1).filter(lambda t: "/" not in t), st.integers(1, 10**6), st.text())
def test_a_key_is_read_as_it_was_made(name, visit, part):
    assert read_effect_key(effect_key(name, "send", visit, part)) == (name, "send", visit, part)


def test_an_effect_that_is_not_there_is_not_found(world):
    runner = world.run(send())
    with pytest.raises(NotFound, match="send:2"):
        detail(world, runner.run_id, f"{runner.run_id}:send:2")
