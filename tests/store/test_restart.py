"""A run is restarted once, after it has ended, at the revision that was seen, and its lineage is kept."""

import msgspec
import pytest

from pwf.errors import Conflict, NotFound, Rejected
from pwf.store.restart import LookRestart, RestartRun, look_restart, restart_run
from tests.store.world import ENVIRONMENT, MANUAL, graph, key, linear, node


def ended(world, **more):
    runner = world.run(linear(1), input={"n": 1}, **more)
    runner.fail()
    runner.leave()
    return runner.run_id


def look(world, run_id, **more):
    """What the old run gives, or raises why not. At its revision, if no other is said."""
    if "expected_revision" not in more:
        more["expected_revision"] = world.row(run_id)["revision"]
    looked = world.do(look_restart, LookRestart(run_id=run_id, **more))
    return looked.facts if looked.done is None else looked.done.unwrap()


def restart_command(world, run_id, facts, **more):
    start = world.start_command(
        linear(1),
        restarted_from=run_id,
        restart_root=facts.restart_root,
        restart_no=facts.restart_no,
        priority=facts.priority,
        environment=facts.environment,
    )
    start = msgspec.structs.replace(start, input=facts.input, **more)
    return RestartRun(start=start, expected_revision=world.row(run_id)["revision"])


def restart(world, run_id, **more):
    """The new run's `RunStarted`."""
    return world.do(restart_run, restart_command(world, run_id, look(world, run_id), **more))


def end(world, run_id):
    runner = world.launch(run_id)
    runner.fail()
    runner.leave()


def test_a_restart_names_the_run_that_it_came_from_its_root_and_its_number(world):
    first = ended(world)
    second = restart(world, first)
    assert (second.restarted_from, second.restart_root, second.restart_no) == (first, first, 1)
    end(world, second.run_id)
    third = restart(world, second.run_id)
    assert (third.restarted_from, third.restart_root, third.restart_no) == (second.run_id, first, 2)
    line = world.view(third.run_id).summary
    assert (line.restarted_from, line.restart_root, line.restart_no) == (second.run_id, first, 2)
    assert world.view(first).restarts == (second.run_id,)
    assert world.view(first).summary.restarted_from is None


def test_an_ended_restart_is_named_with_how_it_ended_and_the_newest_since_to_type(world):
    first = ended(world)
    second = restart(world, first).run_id
    world.cancel(second, reason="enough")
    refused(world, first, f"was restarted as {second}, which has ended (cancelled", f"pwf restart {second}")
    third = restart(world, second).run_id
    refused(world, first, f"; the newest restart since is {third} (", f"pwf watch {third}")
    world.cancel(third)
    refused(world, first, f"; the newest restart since is {third} (cancelled)", f"pwf restart {third}")


def test_a_refusal_costs_the_same_however_long_the_chain_of_restarts_is(world):
    first = last = ended(world)
    statements, counts = [], set()
    for _ in range(3):
        for _ in range(4):
            last = restart(world, last).run_id
            world.cancel(last)
        world.checked = False
        world.writer.tx._connection.exec_trace = lambda *it: statements.append(it) or True
        refused(world, first, f"the newest restart since is {last}", f"pwf restart {last}")
        world.writer.tx._connection.exec_trace = None
        world.checked = True
        counts.add(len(statements))
        statements.clear()
    assert len(counts) == 1


def refused(world, run_id, said, hint):
    with pytest.raises(Rejected) as caught:
        look(world, run_id)
    assert said in caught.value.message
    assert caught.value.hint == hint


def test_a_restart_has_the_input_and_the_launch_options_of_the_old_run(world):
    environment = msgspec.structs.replace(ENVIRONMENT, variables={"TZ": "UTC"})
    first = ended(world, priority=5, max_steps=70, environment=environment)
    facts = look(world, first)
    assert (facts.input, facts.priority, facts.environment) == (b'{"n":1}', 5, environment)
    assert facts.max_steps == 70
    second = restart(world, first)
    assert bytes(world.view(second.run_id).input.json) == b'{"n":1}'


def test_the_receipt_of_a_restart_keeps_its_lineage(world):
    first = ended(world)
    command = restart_command(world, first, look(world, first), receipt=key(operation="run.restart"))
    started = world.done(restart_run, command)
    again = world.done(restart_run, command)
    assert (started.adopted, again.adopted) == (False, True)
    assert again.result == started.result
    assert again.result.restarted_from == first


def test_a_restart_asked_twice_is_the_same_run_while_that_one_goes_on(world):
    first = ended(world)
    facts = look(world, first)
    second = restart(world, first)
    raced = world.done(restart_run, restart_command(world, first, facts))  # both had looked before
    assert (raced.adopted, raced.result) == (True, second)
    world.pause(second.run_id)
    looked = look(world, first)
    assert (looked.run_id, looked.status) == (second.run_id, "paused")
    assert (looked.restarted_from, looked.restart_root, looked.restart_no) == (first, first, 1)


def test_a_restart_asked_twice_says_how_the_first_one_ended(world):
    first = ended(world)
    facts = look(world, first)
    second = restart(world, first).run_id
    world.cancel(second, reason="wrong branch")
    before = world.dump()
    for ask in (
        lambda: look(world, first),
        lambda: world.do(restart_run, restart_command(world, first, facts)),
    ):
        with pytest.raises(
            Rejected, match=rf"as {second}, which has ended \(cancelled: wrong branch\)"
        ) as caught:
            ask()
        assert caught.value.hint == f"pwf restart {second}"
    assert world.dump() == before


def test_a_repeat_of_an_adopted_restart_is_adopted_after_that_run_has_ended(world):
    first = ended(world)
    second = restart(world, first).run_id
    asked = {"receipt": key(operation="run.restart")}
    told = look(world, first, **asked)
    assert told.run_id == second
    world.cancel(second)
    assert look(world, first, **asked) == told


def test_a_restart_of_an_ended_run_needs_its_revision(world):
    first = ended(world)
    revision = world.row(first)["revision"]
    with pytest.raises(Rejected, match=f"now it has revision {revision}") as caught:
        look(world, first, expected_revision=None)
    assert caught.value.hint == f"pwf restart {first} --revision {revision}"
    with pytest.raises(Conflict, match=f"has revision {revision} by now"):
        look(world, first, expected_revision=revision - 1)
    look(world, first, expected_revision=revision)


def test_a_run_that_changed_after_the_look_is_not_restarted(world):
    runner = world.run(graph(node("a", "action", effect=MANUAL)))
    world.cancel(runner.run_id)
    runner.leave()
    world.recover(runner.run_id, "not_happened")
    command = restart_command(world, runner.run_id, look(world, runner.run_id))
    seen = msgspec.structs.replace(command, expected_revision=command.expected_revision - 1)
    with pytest.raises(Conflict, match="by now"):
        world.do(restart_run, seen)
    assert world.view(runner.run_id).restarts == ()


def test_a_run_that_has_not_ended_is_not_restarted(world):
    run_id = world.start(linear(1))
    with pytest.raises(Rejected, match="has not ended") as caught:
        look(world, run_id)
    assert f"pwf cancel {run_id}" in caught.value.hint
    with pytest.raises(NotFound):
        look(world, "nobody", expected_revision=1)


def test_a_restart_that_was_refused_is_refused_again_although_the_run_has_ended_since(world):
    run_id = world.start(linear(1))
    command = LookRestart(run_id=run_id, receipt=key(operation="run.restart"))
    first = world.done(look_restart, command).done
    world.cancel(run_id)
    again = world.done(look_restart, command).done
    assert (again.refusal.code, again.refusal.message) == (first.refusal.code, first.refusal.message)
    assert look(world, run_id).restart_root == run_id


def test_a_run_with_an_unsettled_effect_is_not_restarted(world):
    runner = world.run(graph(node("a", "action", effect=MANUAL)))
    world.cancel(runner.run_id)
    runner.leave()
    (effect,) = world.view(runner.run_id).effects
    with pytest.raises(Rejected, match=effect.effect_key) as caught:
        look(world, runner.run_id)
    assert f"pwf effects resolve {effect.effect_key} happened|not-happened|give-up" in caught.value.hint
    world.recover(runner.run_id, "not_happened")
    assert look(world, runner.run_id).restart_no == 1


def test_a_restart_names_the_effects_that_happened_and_are_made_again(world):
    runner = world.run(graph(node("send", "action", to="end", effect=MANUAL), node("end")))
    runner.finish(settled="applied", to="end")
    runner.fail()
    runner.leave()
    harmless = ended(world)
    (warning,) = restart(world, runner.run_id).warnings
    assert f"{runner.run_id}:send:1" in warning
    assert restart(world, harmless).warnings == ()
