"""Several effects in one visit of a run: each has a row of its own, and the node is over when each is settled."""

import pytest

from pwf.errors import ClaimLost, Conflict, Rejected
from pwf.store.daemon import applying
from pwf.store.effect_detail import EffectQuery, effect_detail
from tests.store.world import PARTS, error, graph, node, retry, value


def orders(**more):
    """order -> report, where `order` makes effects in mid-step."""
    return graph(node("order", "action", effect=PARTS, to="report", **more), node("report"))


def parts_of(world, run_id):
    """part -> status."""
    rows = world.sql(
        "SELECT part, e.status FROM effects e JOIN runs ON run_no = entity_no WHERE run_id = :run ORDER BY part",
        {"run": run_id},
    )
    return dict(rows)


def key_of(runner, part):
    return f"{runner.run_id}:order:1/{part}"


def say(world, runner, part, verdict, **more):
    return world.recover(runner.run_id, verdict, effect_key=key_of(runner, part), **more)


@pytest.fixture
def runner(world):
    return world.run(orders())


def held_for(runner, *parts, **facts):
    """The attempt ends with these unknown, and none can be observed."""
    for part in parts:
        runner.part(part, observable=False, **facts)
    runner.gone()
    return runner


# --- in the step ----------------------------------------------------------------------------------------------


def test_each_effect_of_a_visit_has_a_row_of_its_own_and_the_node_ends_when_all_are_settled(world, runner):
    assert world.effects(runner.run_id) == []  # nothing is reserved with the attempt
    for part in ("a", "b"):
        assert runner.part(part).verdict == "apply"
        assert world.do(applying, None) == (key_of(runner, part),)
        assert runner.settle(part, ref=f"ref-{part}").verdict == "settled"
    assert runner.finish(to="report") == "go"
    assert parts_of(world, runner.run_id) == {"a": "applied", "b": "applied"}
    rows = world.sql("SELECT kind FROM events WHERE kind LIKE 'effect%' ORDER BY revision")
    assert [kind for (kind,) in rows] == ["effect_begun", "effect_settled"] * 2


def test_a_call_that_writes_nothing_counts_no_revision(world, runner):
    runner.part("a")
    runner.settle("a")
    before = world.row(runner.run_id)["revision"]
    assert runner.part("a").verdict == "applied"
    assert runner.part("a", 2).verdict == "conflict"
    assert world.row(runner.run_id)["revision"] == before


def test_only_the_present_attempt_of_a_node_that_says_so_makes_effects(world, runner):
    assert runner.part("a", attempt=7).verdict == "refused"
    runner.finish(to="report")
    assert runner.part("a").verdict == "refused"  # the node is `report` by now
    assert parts_of(world, runner.run_id) == {}


def test_a_stale_runner_begins_no_effect(world, runner):
    runner.gone(stopped=True)
    world.launch()
    with pytest.raises(ClaimLost):
        runner.part("a")


@pytest.mark.parametrize("act", ["cancel", "end"])
def test_nothing_is_begun_for_a_run_that_has_ended(world, runner, act):
    world.cancel(runner.run_id) if act == "cancel" else runner.fail()
    with pytest.raises(ClaimLost):
        runner.part("a")


# --- an attempt that leaves some open -------------------------------------------------------------------------


def test_after_a_crash_what_happened_gives_its_output_and_what_is_unknown_is_observed_where_the_code_reaches_it(
    world, runner
):
    runner.part("a")
    runner.settle("a")
    runner.part("b")
    runner.gone()
    assert world.trail(runner.run_id) == ["order.1 unknown"]
    assert world.status(runner.run_id) == "queued"
    again = world.launch()
    assert again.launch.observe is False  # the code itself gets there
    assert again.part("a").verdict == "applied"
    assert again.part("b").verdict == "observe"
    again.settle("b", ref="found")
    assert again.part("c").verdict == "apply"
    again.settle("c")
    assert again.finish(to="report") == "go"
    assert world.effects(runner.run_id) == [("order", 1, "applied", 1)] * 3


def test_one_that_did_not_happen_in_an_interrupted_try_is_applied(world, runner):
    runner.part("a")
    runner.gone(stopped=True)
    again = world.launch()
    answer = again.part("a")
    assert (answer.verdict, answer.error) == ("observe", None)
    again.settle("a", "rejected")
    assert again.part("a").verdict == "apply"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda runner: runner.fail("no route"), "node_failed"),
        (lambda runner: runner.gone(timed_out=runner.attempt), "runner_timed_out"),
        (lambda runner: runner.die(), "runner_crashed"),
    ],
)
def test_the_next_attempt_is_told_why_the_last_one_left_it_unknown(world, runner, end, code):
    runner.part("a")
    end(runner)
    if world.sql("SELECT 1 FROM runners"):
        runner.leave()
    assert world.status(runner.run_id) == "queued"
    answer = world.launch().part("a")
    assert (answer.verdict, answer.error.code) == ("observe", code)


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_an_attempt_that_ends_with_an_effect_open_has_not_ended_its_node(world, runner, outcome):
    runner.part("a")
    verdict = runner.finish(to="report") if outcome == "completed" else runner.fail()
    assert verdict == "park"
    assert (world.status(runner.run_id), world.row(runner.run_id)["node"]) == ("queued", "order")
    assert world.trail(runner.run_id) == ["order.1 unknown"]


def test_an_observer_that_can_not_tell_holds_the_run_which_lists_all(world, runner):
    runner.part("a")
    runner.part("b")
    runner.gone()
    again = world.launch()
    assert again.part("a").verdict == "observe"
    assert again.fail("could not tell", settled="unknown", observed=True) == "park"
    assert parts_of(world, runner.run_id) == {"a": "ambiguous", "b": "ambiguous"}
    why = world.why(runner.run_id)
    assert why.code == "effect_ambiguous"
    assert all(key_of(runner, part) in why.reason for part in ("a", "b"))


def test_one_without_an_observer_holds_the_run_at_once(world, runner):
    runner.part("a", observable=False)
    runner.part("b")
    runner.gone()
    assert world.status(runner.run_id) == "ambiguous"
    assert parts_of(world, runner.run_id) == {"a": "ambiguous", "b": "ambiguous"}


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_what_the_code_reaches_no_more_becomes_ambiguous(world, runner, outcome):
    runner.part("a")
    runner.gone()
    again = world.launch()
    assert (again.finish(to="report") if outcome == "completed" else again.fail()) == "park"
    assert parts_of(world, runner.run_id) == {"a": "ambiguous"}
    assert world.status(runner.run_id) == "ambiguous"


def test_a_try_that_fails_before_it_reaches_one_leaves_it_to_the_next_try(world):
    runner = world.run(orders(retry=retry(1, 0)))
    runner.part("a")
    runner.gone()
    again = world.launch()
    assert again.fail() == "park"
    again.leave()
    assert parts_of(world, runner.run_id) == {"a": "applying"}
    assert world.trail(runner.run_id) == ["order.1 unknown", "order.1 failed"]
    last = world.launch()
    assert last.fail() == "park"  # and there is no further try
    assert parts_of(world, runner.run_id) == {"a": "ambiguous"}


def test_a_step_that_dies_again_and_again_as_it_observes_holds_the_run(world, runner):
    runner.part("a")
    runner.die()
    for _ in range(3):
        world.clock.forward(2_000)
        assert world.status(runner.run_id) == "queued"
        world.launch().die()
    assert world.status(runner.run_id) == "ambiguous"


def test_without_an_open_effect_a_death_is_a_failed_try_and_what_happened_stays(world, runner):
    runner.part("a")
    runner.settle("a")
    runner.die()
    assert world.trail(runner.run_id) == ["order.1 failed"]
    assert world.launch().part("a").verdict == "applied"


def test_an_idempotent_one_that_a_try_leaves_open_has_failed_and_is_run_again(world):
    runner = world.run(orders(retry=retry(1, 0)))
    runner.part("a", mode="idempotent")
    assert runner.fail() == "park"
    runner.leave()
    assert parts_of(world, runner.run_id) == {"a": "failed"}
    again = world.launch()
    assert again.part("a", mode="idempotent").verdict == "apply"
    assert world.effects(runner.run_id) == [("order", 1, "applying", 2)]


def test_a_new_visit_has_effects_of_its_own(world):
    runner = world.run(
        graph(node("order", "action", effect=PARTS, to="again"), node("again", to="order"), max_steps=9)
    )
    for _ in range(2):
        assert runner.part("a").verdict == "apply"
        runner.settle("a")
        runner.finish(to="again")
        runner.finish(to="order")
    assert world.effects(runner.run_id) == [("order", visit, "applied", 1) for visit in (1, 2)]


# --- a person's word ------------------------------------------------------------------------------------------


def test_each_is_settled_by_its_own_key_and_the_run_goes_on_when_all_are(world, runner):
    held_for(runner, "a", "b")
    with pytest.raises(Rejected, match="2 ambiguous effects"):
        world.recover(runner.run_id, "happened")
    say(world, runner, "a", "happened", output={"id": 1}, ref="r")
    assert world.status(runner.run_id) == "ambiguous"
    assert key_of(runner, "a") not in world.why(runner.run_id).reason
    with pytest.raises(Conflict):
        say(world, runner, "a", "not_happened")
    say(world, runner, "b", "not_happened")
    assert world.status(runner.run_id) == "queued"
    again = world.launch()
    answer = again.part("a", observable=False)
    assert (answer.verdict, bytes(answer.output.json), answer.ref) == ("applied", b'{"id":1}', "r")
    assert again.part("b", observable=False).verdict == "apply"
    again.settle("b")
    assert again.finish(to="report") == "go"


def test_one_that_is_given_up_fails_the_attempt_without_retry_once_the_others_are_settled(world):
    runner = world.run(orders(retry=retry(5, 0), on={"failed": "report"}))
    held_for(runner, "a", "b")
    say(world, runner, "a", "give_up", note="the shop is gone")
    assert world.status(runner.run_id) == "ambiguous"
    say(world, runner, "b", "happened")
    assert parts_of(world, runner.run_id) == {"a": "abandoned", "b": "applied"}
    assert (world.status(runner.run_id), world.row(runner.run_id)["node"]) == ("queued", "report")
    assert world.trail(runner.run_id) == ["order.1 failed"]
    told = world.view(runner.run_id).steps[0].error
    assert (told.code, "the shop is gone" in told.message) == ("effect_abandoned", True)


def test_one_may_be_observed_again_while_others_wait_for_a_word(world, runner):
    runner.part("a")
    runner.part("b", observable=False)
    runner.gone()
    say(world, runner, "a", "observe")
    assert (world.status(runner.run_id), parts_of(world, runner.run_id)["a"]) == ("ambiguous", "applying")
    with pytest.raises(Rejected, match="no observe function"):
        say(world, runner, "b", "observe")
    say(world, runner, "b", "happened")
    assert world.launch().part("a").verdict == "observe"


def test_what_was_to_be_observed_is_asked_about_again_where_the_step_will_not_run(world, runner):
    runner.part("a")
    runner.part("b")
    runner.part("c", observable=False)
    runner.gone()
    say(world, runner, "a", "observe")
    say(world, runner, "b", "give_up")
    assert parts_of(world, runner.run_id) == {"a": "ambiguous", "b": "abandoned", "c": "ambiguous"}
    with pytest.raises(Rejected, match="given up"):
        say(world, runner, "a", "observe")
    say(world, runner, "a", "happened")
    say(world, runner, "c", "not_happened")
    assert world.status(runner.run_id) == "failed"


def test_nobody_says_not_happened_of_one_while_its_processes_may_live(world, runner):
    runner.part("a", observable=False)
    runner.gone(proved=False)
    with pytest.raises(Rejected, match="may still happen"):
        say(world, runner, "a", "not_happened")


def test_a_cancel_leaves_each_manual_one_to_a_person_and_a_restart_waits_for_all(world, runner):
    runner.part("a")
    runner.settle("a")
    runner.part("b")
    runner.part("c", mode="idempotent")
    world.cancel(runner.run_id)
    runner.leave()
    assert parts_of(world, runner.run_id) == {"a": "applied", "b": "ambiguous", "c": "failed"}
    assert "happened" in world.why(runner.run_id).reason
    say(world, runner, "b", "give_up", note="gone")
    assert world.status(runner.run_id) == "cancelled"


def test_a_pause_lets_the_step_end_and_one_at_once_leaves_its_effect_to_be_observed(world, runner):
    world.pause(runner.run_id)
    assert runner.part("a").verdict == "apply"
    runner.gone(stopped=True)  # pause --now
    assert world.status(runner.run_id) == "paused"
    assert parts_of(world, runner.run_id) == {"a": "applying"}
    world.resume(runner.run_id)
    assert world.launch().part("a").verdict == "observe"


def test_a_drain_lets_a_step_make_its_further_effects_and_goes_on_after_it(world, runner):
    runner.drain = True
    for part in ("a", "b"):
        assert runner.part(part).verdict == "apply"
        runner.settle(part)
    assert runner.finish(to="report") == "park"
    runner.leave()
    assert world.launch(runner.run_id).launch.node == "report"
    assert parts_of(world, runner.run_id) == {"a": "applied", "b": "applied"}


def test_the_end_of_a_drain_leaves_each_open_effect_to_be_observed_and_what_happened_as_it_is(world, runner):
    runner.drain = True
    runner.part("a")
    runner.settle("a")
    for part in ("b", "c"):
        runner.part(part)
    assert world.do(applying, None) == (key_of(runner, "b"), key_of(runner, "c"))  # pwf stop names them
    runner.gone(stopped=True)
    again = world.launch(runner.run_id)
    assert [again.part(part).verdict for part in ("a", "b", "c")] == ["applied", "observe", "observe"]


# --- what is shown --------------------------------------------------------------------------------------------


def test_an_effect_is_shown_with_its_request_fingerprint_reference_output_and_error(world, runner):
    runner.part("a", {"to": "ann"})
    runner.settle("a", ref="r-1", output=value({"id": 5}))
    runner.part("b", {"to": "bob"})
    runner.settle("b", "unknown", error=error("no route"))
    runner.fail()
    found = world.read(effect_detail, EffectQuery(run_id=runner.run_id, effect_key=key_of(runner, "a")))
    assert bytes(found.request.json) == b'{"to":"ann"}'
    assert bytes(found.output.json) == b'{"id":5}'
    assert (found.effect.ref, len(found.effect.fingerprint)) == ("r-1", 64)
    found = world.read(effect_detail, EffectQuery(run_id=runner.run_id, effect_key=key_of(runner, "b")))
    assert (found.effect.error.message, found.output) == ("no route", None)


def test_what_is_to_be_typed_names_each_effect_that_waits_for_a_word(world, runner):
    held_for(runner, "a", "b")
    keys = [key_of(runner, part) for part in ("a", "b")]
    why = world.why(runner.run_id)
    assert f"pwf effects resolve {keys[0]} happened --output JSON" in why.commands
    assert not any("recover" in command for command in why.commands)  # which is for a run's only one
    world.cancel(runner.run_id)
    why = world.why(runner.run_id)
    assert (why.code, all(key in why.reason for key in keys)) == ("ended", True)
    say(world, runner, "a", "happened")
    assert keys[0] not in world.why(runner.run_id).reason


def test_the_words_say_what_becomes_of_one_of_several(world, runner):
    held_for(runner, "a", "b")

    def words(part):
        query = EffectQuery(run_id=runner.run_id, effect_key=key_of(runner, part))
        return {word.verdict: word.does for word in world.read(effect_detail, query).words}

    said = words("a")
    assert sorted(said) == ["give_up", "happened", "not_happened"]  # nothing can observe it
    assert "runs again when the others are settled, too" in said["happened"]
    say(world, runner, "b", "happened")
    assert "when the others" not in words("a")["not_happened"]
