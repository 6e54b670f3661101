"""The row of a process that stays goes with its run's last word, in one transaction, and with no other."""

import pytest

from pwf.protocol.spawn import Identity
from tests.store.test_recovery import take_over
from tests.store.world import graph, linear, node


def rows(world):
    return world.sql("SELECT run_id, runners.generation FROM runners JOIN runs ON run_no = entity_no")


def test_with_the_end_the_row_is_gone_and_what_it_had_uploaded_for_nothing(world):
    runner = world.run(linear(2))
    assert runner.finish(1, to="b") == "go"
    assert rows(world) == [(runner.run_id, 1)]
    runner.stays = True
    applied = runner.apply([runner.finished(2)])
    assert (applied.replies[0].verdict, applied.gone) == ("end", True)
    assert rows(world) == []
    assert world.sql("SELECT count(*) FROM content_holds") == [(0,)]
    assert world.status(runner.run_id) == "completed"


def test_a_run_that_is_parked_may_be_admitted_again_at_once(world):
    runner = world.run(graph(node("w", kind="wait", to="b"), node("b")))
    runner.stays = True
    assert runner.wait(delay_ms=0) == "park"
    assert rows(world) == []
    assert [one.run_id for one in world.admit()] == [runner.run_id]


@pytest.mark.parametrize("why", ["the run goes on", "another has it by now", "it was refused"])
def test_otherwise_the_row_stays_until_the_process_is_proved_dead(world, why):
    runner = world.run(linear(2))
    runner.stays = True
    if why == "another has it by now":
        world.cancel(runner.run_id)
    to = None if why == "it was refused" else "b"
    applied = runner.apply([runner.finished(1, to=to)])
    assert not applied.gone
    assert rows(world) == [(runner.run_id, 1)]


@pytest.mark.parametrize("again", [False, True])
def test_a_process_that_is_not_proved_dead_has_its_row_again_unless_its_run_has_another_by_now(world, again):
    take_over(world)
    runner = world.run(graph(node("w", kind="wait", to="b"), node("b")))
    runner.stays = True
    assert runner.wait(delay_ms=0) == "park"
    generation = world.launch(runner.run_id).fence.generation if again else 1
    identity = Identity(pid=77, start_tick=7, boot_id=world.clock.boot_id, session=77)
    runner.gone(proved=False, given_up=identity)
    assert rows(world) == [(runner.run_id, generation)]
    if not again:
        assert world.sql("SELECT pid, state, epoch FROM runners") == [(77, "ending", world.epoch)]
        runner.gone()
        assert rows(world) == []
