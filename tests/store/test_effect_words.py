"""A person's word on an effect that nobody knows about: of which one, when it may be said, what is kept and shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwf.errors import Conflict, InvalidArgument, NotFound, Rejected
from pwf.protocol.effects import read_effect_key
from pwf.protocol.runner import effect_key
from pwf.store.effect_detail import EffectQuery, effect_detail
from pwf.store.effects import OutputQuery, ResolveEffect, output_type, resolve_effect
from pwf.values import canonical
from tests.store.test_effects import send
from tests.store.world import MANUAL, OBSERVED, graph, key, node, retry

# --- when it may be said ----------------------------------------------------------------------------------------


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


def test_a_try_that_was_settled_leaves_its_reference_to_no_later_one(world):
    runner = world.run(send(OBSERVED, retry=retry(1, 0)))
    runner.fail(settled="rejected", effect_ref="refused 1")
    runner.leave()
    world.launch()
    assert world.view(runner.run_id).effects[0].ref is None


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
