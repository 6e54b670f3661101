"""A step over which the daemon dies again and again does not repeat without end."""

import pytest

from pwf.store.custody import runners_gone, standing_runners
from pwf.store.daemon import ClaimEpoch
from pwf.store.home import ClaimHome, claim_home
from pwf.store.queue import ALONE_AFTER_MS, look
from tests.store.resource_world import Resources
from tests.store.world import MANUAL, OBSERVED, Runner, graph, linear, node

AMONG, ALONE = 2, 5


def claims(world, *, died):
    """The next daemon. `died`: the one before it, neither in order nor by a signal of others."""
    number = world.epoch
    claim = ClaimEpoch(token=f"t{number}", lease_ms=30_000, pid=number, version="x")
    world.epoch = world.do(claim_home, ClaimHome(claim=claim, device=1, inode=7, died=died)).epoch


def dies(world, *runners, died=True):
    """The daemon dies while these work, and its successor settles them."""
    claims(world, died=died)
    standing = world.read(standing_runners, None)
    assert {found.name for found in standing} == {runner.run_id for runner in runners}
    world.do(runners_gone, tuple(one.gone(proved=True, stopped=True) for one in standing))


def admitted(world, limit=4):
    """All that is admitted now."""
    runners = [Runner(world, admission) for admission in world.admit(limit)]
    for runner in runners:
        runner.begin()
    return runners


def deaths(world, run_id):
    return world.sql("SELECT daemon_deaths FROM runs WHERE run_id = :run", {"run": run_id})[0][0]


@pytest.fixture
def served(world):
    claims(world, died=False)
    return world


def test_a_run_that_was_marked_five_times_alone_is_held_and_names_the_node(served):
    runner = served.run(linear(2))
    for count in range(1, AMONG + ALONE):
        dies(served, runner)
        assert deaths(served, runner.run_id) == count
        (runner,) = admitted(served)
    dies(served, runner)
    view = served.view(runner.run_id)
    assert view.summary.hold == "no_progress"
    assert "the daemon died 7 times while node 'a' ran" in view.summary.reason
    assert admitted(served) == []
    served.resume(runner.run_id)
    assert deaths(served, runner.run_id) == 0
    (runner,) = admitted(served)
    dies(served, runner)
    assert served.row(runner.run_id)["status"] == "queued"


def test_a_run_that_was_marked_twice_is_admitted_alone_and_the_others_after_it(served):
    guilty, bystander = served.run(linear(1)), served.run(linear(1))
    dies(served, guilty, bystander)
    dies(served, *admitted(served))
    new = served.start(linear(1))
    for expected in (guilty.run_id, bystander.run_id):
        (runner,) = admitted(served)
        assert runner.run_id == expected
        assert admitted(served) == [], "while it runs nothing else is admitted"
        assert runner.finish() == "end"
        runner.leave()
    assert [runner.run_id for runner in admitted(served)] == [new]


def test_a_look_finds_work_exactly_when_an_admission_would(served):
    """Else the daemon asks without a pause while it is alone, or forgets it when nobody else is due."""
    guilty, bystander = served.run(linear(1)), served.run(linear(1))
    dies(served, guilty, bystander)
    dies(served, *admitted(served))
    for _ in range(2):
        assert served.read(look, None).due_now
        (runner,) = admitted(served)
        assert not served.read(look, None).due_now, "others are kept back while it runs"
        runner.finish()
        runner.leave()
    assert not served.read(look, None).due_now


def test_it_waits_for_what_runs_and_after_a_while_keeps_others_back(served):
    runner = served.run(linear(1))
    dies(served, runner)
    dies(served, *admitted(served))
    served.pause(runner.run_id)
    long = served.run(linear(1))
    served.resume(runner.run_id)
    assert served.why(runner.run_id).code == "alone"
    next_ = served.start(linear(1))
    assert [one.run_id for one in admitted(served)] == [next_], "others go on meanwhile"
    served.start(linear(1))
    served.clock.forward(ALONE_AFTER_MS)
    assert admitted(served) == []
    assert long.finish() == "end"


def test_alone_is_beside_no_reconcile_either(served):
    resources = Resources(served)
    runner = served.run(linear(1))
    dies(served, runner)
    dies(served, *admitted(served))
    served.pause(runner.run_id)
    reconcile = resources.launch(resources.apply().uid)
    served.resume(runner.run_id)
    assert admitted(served) == [], "the reconcile has to end first"
    reconcile.end()
    assert [one.run_id for one in admitted(served)] == [runner.run_id]


def test_an_attempt_that_ends_clears_the_mark(served):
    runner = served.run(linear(2))
    dies(served, runner)
    (runner,) = admitted(served)
    assert runner.finish(1, to="b") == "go"
    assert deaths(served, runner.run_id) == 0


def test_a_step_that_dies_itself_clears_the_mark_too(served):
    runner = served.run(linear(1))
    dies(served, runner)
    (runner,) = admitted(served)
    runner.die()
    assert deaths(served, runner.run_id) == 0


def test_who_had_no_open_step_is_not_marked(served):
    asking = served.run(graph(node("ask", "checkpoint")))
    asking.ask()
    asking.leave()
    waiting = served.run(graph(node("nap", "wait")))
    waiting.wait(delay_ms=60_000)
    waiting.leave()
    queued = served.start(linear(1))
    claims(served, died=True)
    assert [deaths(served, run_id) for run_id in (asking.run_id, waiting.run_id, queued)] == [0, 0, 0]


def test_ends_in_order_or_by_a_signal_of_others_mark_nobody(served):
    runner = served.run(linear(1))
    for _ in range(AMONG + ALONE):
        dies(served, runner, died=False)
        (runner,) = admitted(served)
    assert deaths(served, runner.run_id) == 0


def test_what_died_in_another_boot_counts_no_more(served):
    runner = served.run(linear(1))
    for _ in range(AMONG):
        dies(served, runner)
        (runner,) = admitted(served)
    served.reboot()
    dies(served, runner)
    assert deaths(served, runner.run_id) == 0


def test_a_manual_effect_that_is_not_observed_is_ambiguous_at_the_first_death(served):
    runner = served.run(graph(node("send", "action", effect=MANUAL)))
    dies(served, runner)
    assert served.status(runner.run_id) == "ambiguous"


def test_an_observation_over_which_the_daemon_dies_is_held_too(served):
    runner = served.run(graph(node("send", "action", effect=OBSERVED)))
    for _ in range(AMONG + ALONE - 1):
        dies(served, runner)
        (runner,) = admitted(served)
    dies(served, runner)
    assert served.view(runner.run_id).summary.hold == "no_progress"
