"""A fork goes on from a node of a run with what came before, and takes over no effect, answer or lease."""

import msgspec
import pytest

from pwf.errors import Conflict, NotFound, Rejected
from pwf.store.deadlines import time_out
from pwf.store.definitions import stored_definition
from pwf.store.fork import ForkRun, LookFork, Terms, fork_run, look_fork
from tests.store.test_retention import pass_days, prune, run_ids
from tests.store.world import IDEMPOTENT, MANUAL, graph, key, linear, node, retry

ASKED = graph(node("a", to="q"), node("q", "checkpoint", to="b"), node("b"))
PAID = graph(node("a", to="pay"), node("pay", "action", effect=MANUAL, to="b"), node("b", to="c"), node("c"))
LOOP = graph(node("a", to="b"), node("b", cases={"again": "a", "on": "c"}), node("c"))


def failed(world, flow=None, at="b", **more):
    """A run that has failed at its second node; its id."""
    runner = world.run(flow or linear(3), **more)
    runner.finish("from a", to=at)
    runner.fail()
    runner.leave()
    return runner.run_id


def look(world, run_id, node=None, **more):
    """What a fork takes, or raises why not."""
    looked = world.do(look_fork, LookFork(terms=Terms(run_id=run_id, node=node, **more)))
    return looked.facts if looked.done is None else looked.done.unwrap()


def command(world, run_id, node=None, *, flow=None, start=None, **more):
    """The fork that the daemon would ask for after a look."""
    facts = look(world, run_id, node, **more)
    code = world.read(stored_definition, facts.definition_id) if flow is None else world.code(flow)
    begin = world.start_command(
        linear(1), code=code, fork=facts.fork, environment=facts.environment, priority=facts.priority
    )
    begin = msgspec.structs.replace(begin, input=facts.input, **(start or {}))
    return ForkRun(start=begin, terms=Terms(run_id=run_id, node=node, **more))


def fork(world, run_id, node=None, **more):
    """The new run's `RunStarted`."""
    return world.do(fork_run, command(world, run_id, node, **more))


def counts(world, run_id):
    """Rows of effects, requests and leases of a run."""
    sqls = (
        "SELECT count(*) FROM effects JOIN runs ON run_no = entity_no WHERE run_id = :run",
        "SELECT count(*) FROM requests WHERE run_id = :run",
        "SELECT count(*) FROM entities JOIN runs ON run_no = entity_no WHERE run_id = :run AND lease_token IS NOT NULL",
    )
    return tuple(world.sql(sql, {"run": run_id})[0][0] for sql in sqls)


def test_a_retry_goes_on_at_the_node_that_failed_with_the_outputs_before_it(world):
    old = failed(world, input={"n": 1}, priority=3)
    started = fork(world, old)
    assert (started.forked_from, started.node, started.took_over) == (old, "b", ("a",))
    runner = world.launch(started.run_id)
    assert (runner.launch.node, runner.launch.visit, runner.launch.steps_taken) == ("b", 1, 1)
    (past,) = runner.launch.past
    assert (past.node, bytes(past.output.json)) == ("a", b'"from a"')
    assert bytes(runner.launch.input.json) == b'{"n":1}'
    runner.finish("b", to="c")
    runner.finish("c")
    runner.leave()
    assert world.status(started.run_id) == "completed"
    assert world.status(old) == "failed"
    assert world.trail(started.run_id) == ["a.1 completed", "b.1 completed", "c.1 completed"]


def test_lineage_and_what_was_taken_over_are_shown(world):
    old = failed(world)
    new = fork(world, old).run_id
    view = world.view(new)
    assert (view.summary.forked_from, view.fork_node, view.fork_visit) == (old, "b", 1)
    assert [(step.node, step.adopted) for step in view.steps] == [("a", 1)]
    assert world.view(old).forks == (new,)
    assert (world.view(old).summary.gone_on_as, view.summary.gone_on_as) == (new, None)
    assert view.summary.restarted_from is None


def test_a_fork_has_no_effect_question_or_lease_of_the_old_run(world):
    runner = world.run(PAID)
    runner.finish(to="pay")
    runner.finish("paid", settled="applied", to="b")
    runner.fail()
    runner.leave()
    new = fork(world, runner.run_id).run_id
    assert counts(world, new) == (0, 0, 0)
    assert [step.node for step in world.view(new).steps] == ["a", "pay"]


def test_an_applied_effect_after_the_node_is_named_and_repeated_only_on_request(world):
    runner = world.run(PAID)
    runner.finish(to="pay")
    runner.finish("paid", settled="applied", to="b")
    runner.fail()
    runner.leave()
    run_id = runner.run_id
    with pytest.raises(Rejected, match=f"{run_id}:pay:1") as caught:
        look(world, run_id, "pay")
    assert f"pwf fork {run_id} --from pay --repeat-effects" in caught.value.hint
    assert fork(world, run_id, "pay", repeat_effects=True).node == "pay"


def test_an_idempotent_effect_that_may_have_happened_is_told_and_not_refused(world):
    flow = graph(node("a", to="b"), node("b", "action", effect=IDEMPOTENT))
    runner = world.run(flow)
    runner.finish(to="b")
    runner.fail()
    runner.leave()
    (warning,) = fork(world, runner.run_id).warnings
    assert f"{runner.run_id}:b:1 may have happened" in warning


@pytest.mark.parametrize("node_id", [None, "a"])
def test_nothing_is_forked_while_an_effect_is_unsettled(world, node_id):
    runner = world.run(graph(node("a", to="b"), node("b", "action", effect=MANUAL)))
    runner.finish(to="b")
    with pytest.raises(Rejected, match=r"being applied|has not ended"):
        look(world, runner.run_id, node_id)
    world.cancel(runner.run_id)
    runner.leave()
    with pytest.raises(Rejected, match="nobody knows") as caught:
        look(world, runner.run_id, node_id)
    assert f"pwf effects resolve {runner.run_id}:b:1" in caught.value.hint
    world.recover(runner.run_id, "not_happened")
    assert look(world, runner.run_id, node_id).fork.node == (node_id or "b")


def answered(world):
    runner = world.run(ASKED)
    runner.finish(to="q")
    runner.ask()
    runner.leave()
    world.answer(runner.run_id, "yes")
    runner = world.launch(runner.run_id)
    runner.fail()
    runner.leave()
    return runner.run_id


def test_an_answer_is_taken_over_only_where_a_person_says_so(world):
    run_id = answered(world)
    with pytest.raises(Rejected, match=f"q was answered for run {run_id}") as caught:
        look(world, run_id)
    assert f"pwf fork {run_id} --from q" in caught.value.hint
    assert f"pwf retry {run_id} --keep-answers" in caught.value.hint
    new = fork(world, run_id, keep_answers=True).run_id
    assert counts(world, new) == (0, 0, 0)
    again = fork(world, run_id, "q").run_id
    assert world.row(again)["node"] == "q"


def test_a_default_that_stood_in_for_an_answer_is_nobodys_word_and_is_taken_over(world):
    question = node("q", "checkpoint", to="b", open_ms=1_000, default='"later"')
    runner = world.run(graph(node("a", to="q"), question, node("b")))
    runner.finish(to="q")
    runner.ask(timeout_ms=1_000)
    runner.leave()
    world.clock.forward(2_000)
    world.do(time_out)
    runner = world.launch(runner.run_id)
    runner.fail()
    runner.leave()
    assert fork(world, runner.run_id).took_over == ("a", "q")


def test_what_is_offered_for_a_run_that_has_failed_is_what_would_be_taken(world):
    plain = failed(world)
    assert f"pwf retry {plain}" in world.why(plain).commands
    first = answered(world)
    assert f"pwf retry {first} --keep-answers" in world.why(first).commands
    second = fork(world, first, keep_answers=True).run_id
    why = world.why(first)
    assert f"it was gone on with as {second} (queued)" in why.reason
    assert why.commands == (f"pwf show {first}", f"pwf explain {second}")


def test_an_answer_that_was_taken_over_is_told_with_the_run_that_it_was_given_for(world):
    first = answered(world)
    second = fork(world, first, keep_answers=True).run_id
    world.cancel(second)
    with pytest.raises(Rejected, match=f"q was answered for run {first}, and for no other run") as caught:
        look(world, second)
    assert f"pwf retry {second} --keep-answers" in caught.value.hint
    assert f"pwf fork {first} --from q" in caught.value.hint
    assert look(world, second, keep_answers=True).fork.node == "b"


def test_a_run_that_goes_on_is_forked_and_goes_on(world):
    runner = world.run(linear(3))
    runner.finish(1, to="b")
    with pytest.raises(Rejected, match="has not ended"):
        look(world, runner.run_id)
    new = fork(world, runner.run_id, "b").run_id
    assert world.row(new)["node"] == "b"
    runner.finish(2, to="c")
    runner.finish(3)
    runner.leave()
    assert world.status(runner.run_id) == "completed"


def test_a_completed_run_has_nothing_to_retry_and_is_forked_from_any_of_its_steps(world):
    runner = world.run(linear(2))
    runner.finish(1, to="b")
    runner.finish(2)
    runner.leave()
    with pytest.raises(Rejected, match="nothing to retry") as caught:
        look(world, runner.run_id)
    assert f"pwf fork {runner.run_id} --from NODE" in caught.value.hint
    assert fork(world, runner.run_id, "a").took_over == ()


def looped(world):
    """a b a b c, which fails."""
    runner = world.run(LOOP)
    for count, route in ((1, "again"), (2, "on")):
        runner.finish(count, to="b")
        runner.finish(route, to="a" if route == "again" else "c")
    runner.fail()
    runner.leave()
    return runner.run_id


def test_a_visit_is_gone_on_from_with_what_came_before_that_visit(world):
    run_id = looped(world)
    newest = fork(world, run_id, "b")
    assert newest.took_over == ("b", "a#2")
    assert (world.row(newest.run_id)["visit"], world.row(newest.run_id)["steps"]) == (2, 4)
    first = fork(world, run_id, "b", visit=1)
    assert first.took_over == ("a",)
    runner = world.launch(newest.run_id)
    assert {step.node: bytes(step.output.json) for step in runner.launch.past} == {"a": b"2", "b": b'"again"'}


def test_a_visit_that_was_not_is_refused_with_what_was(world):
    run_id = looped(world)
    with pytest.raises(NotFound, match=r"no visit b#3: it has entered 'b' 2 times") as caught:
        look(world, run_id, "b", visit=3)
    assert caught.value.hint == "it has been through: a, b, c"
    with pytest.raises(NotFound, match="no node 'x'"):
        look(world, run_id, "x")
    with pytest.raises(NotFound, match="has not entered it"):
        look(world, failed(world), "c")


def test_a_visit_that_was_taken_over_is_forked_from_the_run_that_made_it(world):
    old = failed(world)
    new = fork(world, old).run_id
    with pytest.raises(Rejected, match=f"has taken over a from run {old}") as caught:
        look(world, new, "a")
    assert caught.value.hint == f"fork that one: pwf fork {old} --from a"
    runner = world.launch(new)
    runner.fail()
    runner.leave()
    third = fork(world, new)
    assert (third.node, third.took_over) == ("b", ("a",))


def test_a_retried_failure_is_the_result_that_a_fork_sees(world):
    flow = graph(node("a", on={"failed": "b"}, retry=retry(1, backoff_ms=0)), node("b", to="c"), node("c"))
    runner = world.run(flow)
    runner.fail()
    runner.leave()
    runner = world.launch(runner.run_id)
    runner.fail("for good")
    runner.leave()
    runner = world.launch(runner.run_id)
    runner.finish(to="c")
    runner.fail()
    runner.leave()
    runner = world.launch(fork(world, runner.run_id).run_id)
    assert [(step.node, step.outcome) for step in runner.launch.past] == [("a", "failed"), ("b", "completed")]
    assert runner.launch.past[0].error.message == "for good"


def test_a_run_that_reached_its_limit_goes_on_after_its_last_step_under_a_higher_one(world):
    runner = world.run(graph(node("a", to="b"), node("b", to="c"), node("c"), max_steps=2))
    runner.finish(to="b")
    runner.finish("from b", to="c")
    runner.leave()
    facts = look(world, runner.run_id)
    assert (facts.after.node, facts.after.output) == ("b", b'"from b"')
    place = msgspec.structs.replace(facts.fork, node="c", visit=1)
    assert f"pwf retry {runner.run_id} --max-steps 4" in world.why(runner.run_id).commands
    new = fork(world, runner.run_id, start={"fork": place, "max_steps": 3})
    assert (new.node, new.took_over) == ("c", ("a", "b"))
    assert world.view(new.run_id).graph.max_steps == 3
    assert world.view(new.run_id).warnings == (
        "it is in step 3 of at most 3 (max_steps): it fails if this is not the last",
    )
    runner = world.launch(new.run_id)
    assert runner.launch.graph.max_steps == 3
    assert runner.finish() == "end"


def test_a_retry_asked_twice_is_the_same_run_while_that_one_goes_on(world):
    old = failed(world)
    asked = command(world, old)
    first, second = world.done(fork_run, asked), world.done(fork_run, asked)
    assert (second.adopted, second.result.run_id) == (True, first.result.run_id)
    other = command(world, old, start={"max_steps": 7})
    with pytest.raises(Conflict, match="which goes on") as caught:
        world.do(fork_run, other)
    assert f"pwf cancel {first.result.run_id}" in caught.value.hint


def test_what_was_retried_is_not_retried_again_and_the_retry_is_named(world):
    old = failed(world)
    asked = command(world, old)
    first = world.do(fork_run, asked).run_id
    world.cancel(first)
    with pytest.raises(
        Rejected, match=f"run {old} was retried as {first}, which has ended .cancelled"
    ) as caught:
        world.do(fork_run, asked)
    assert caught.value.hint == f"pwf retry {first}"
    assert fork(world, first).node == "b"


def deploying(world):
    """a fails before the manual effect of pay; its retry has made that. Both runs."""
    runner = world.run(PAID)
    runner.fail()
    runner.leave()
    new = fork(world, runner.run_id).run_id
    again = world.launch(new)
    again.finish(to="pay")
    again.finish("paid", settled="applied", to="b")
    return runner.run_id, new, again


def test_a_retry_of_what_was_retried_and_completed_makes_no_effect_once_more(world):
    old, new, again = deploying(world)
    assert look(world, old).twin.run_id == new
    again.finish(to="c")
    again.finish()
    again.leave()
    with pytest.raises(
        Rejected, match=f"run {old} was retried as {new}, which has ended .completed"
    ) as caught:
        look(world, old)
    assert f"pwf fork {new} --from a" in caught.value.hint
    with pytest.raises(Rejected, match=f"would be made again: {new}:pay:1") as caught:
        look(world, old, "a")
    assert f"pwf fork {old} --from a --repeat-effects" in caught.value.hint
    assert look(world, old, "a", repeat_effects=True).fork.node == "a"


def test_effects_of_any_other_run_of_the_tree_count_but_those_of_a_run_that_it_comes_from_do_not(world):
    old, first, again = deploying(world)
    again.fail()
    again.leave()
    second = fork(world, old, "a", repeat_effects=True).run_id
    world.cancel(second)
    with pytest.raises(Rejected, match=f"would be made again: {first}:pay:1"):
        look(world, second)
    third = fork(world, first, "pay", repeat_effects=True).run_id
    world.cancel(third)
    assert look(world, third).fork.node == "pay"


def test_an_effect_that_a_fork_has_taken_over_the_visit_of_is_not_made_again(world):
    _, first, again = deploying(world)
    again.fail()
    again.leave()
    second = fork(world, first).run_id
    world.cancel(second)
    assert look(world, second).fork.node == "b"


@pytest.mark.parametrize("node_id", ["a", "q"])
def test_a_run_that_goes_on_to_an_effect_is_forked_before_it_only_where_both_may_make_it(world, node_id):
    flow = graph(node("a", to="q"), node("q", "checkpoint", to="pay"), node("pay", "action", effect=MANUAL))
    runner = world.run(flow)
    runner.finish(to="q")
    runner.ask()
    runner.leave()
    with pytest.raises(Rejected, match=f"run {runner.run_id} goes on, and makes effects .*: pay") as caught:
        look(world, runner.run_id, node_id)
    assert f"pwf cancel {runner.run_id}" in caught.value.hint
    assert f"pwf fork {runner.run_id} --from {node_id} --repeat-effects" in caught.value.hint
    new = fork(world, runner.run_id, node_id, repeat_effects=True).run_id
    assert world.row(new)["node"] == node_id


def test_a_retry_that_goes_on_to_an_effect_forbids_another_way_to_it(world):
    runner = world.run(PAID)
    runner.fail()
    runner.leave()
    new = fork(world, runner.run_id).run_id
    with pytest.raises(Rejected, match=f"run {new} goes on"):
        look(world, runner.run_id, "a")


def test_a_fork_that_is_repeated_by_its_receipt_is_the_first_one(world):
    old = failed(world)
    asked = command(world, old, "b", start={"receipt": key(operation="run.fork")})
    first, again = world.done(fork_run, asked), world.done(fork_run, asked)
    assert (first.adopted, again.adopted, again.result) == (False, True, first.result)
    assert len(world.view(old).forks) == 1


def test_a_refusal_is_kept_with_its_receipt(world):
    runner = world.run(linear(2))
    asked = LookFork(terms=Terms(run_id=runner.run_id), receipt=key(operation="run.fork"))
    first = world.done(look_fork, asked).done
    world.cancel(runner.run_id)
    again = world.done(look_fork, asked).done
    assert again.refusal.message == first.refusal.message


def test_a_revision_that_is_over_is_a_conflict(world):
    old = failed(world)
    with pytest.raises(Conflict, match="you expected 1"):
        look(world, old, expected_revision=1)


def test_runs_go_with_their_restarts_and_forks_or_not_at_all(world):
    first = failed(world)
    restart = world.start(linear(3), restarted_from=first, restart_root=first, restart_no=1)
    runner = world.launch(restart)
    runner.finish(to="b")
    runner.fail()
    runner.leave()
    new = fork(world, restart).run_id
    pass_days(world, 31)
    assert prune(world) == (0, 0, {})
    world.cancel(new)
    pass_days(world, 31)
    assert prune(world) == (1, 3, {})
    assert run_ids(world) == set()


def test_a_fork_of_many_steps_is_made_beside_the_loop(world):
    runner = world.run(graph(node("a", cases={True: "a", False: "b"}), node("b"), max_steps=100))
    for _ in range(70):
        runner.finish(True, to="a")
    runner.finish(False, to="b")
    runner.fail()
    runner.leave()
    new = fork(world, runner.run_id)
    assert new.took_over == ("a#71",)
    assert world.row(new.run_id)["steps"] == 72
