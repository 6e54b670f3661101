"""Retention: which trees go, which stay and why, and that nothing is left of what went (S3)."""

from pwf.budgets import Budget
from pwf.protocol.operations import PruneResult
from pwf.protocol.runner import AgentReport
from pwf.store import retention
from pwf.store.daemon import ClaimEpoch, claim
from pwf.store.retention import (
    DAY_MS,
    PruneTree,
    RecordPrune,
    plan_prune,
    prune_tree,
    record_prune,
)
from pwf.store.runs import StartRun, start_run
from pwf.store.updates import PublishUpdates, publish_updates
from tests.store.world import MANUAL, graph, key, linear, node

ASK = graph(node("ask", "checkpoint"))
BIG = "x" * 20_000


def ended(world, flow=None, input=None, **more):
    """A run that has completed; its id."""
    runner = world.run(flow or linear(1), input=input, **more)
    runner.finish(BIG)
    runner.leave()
    return runner.run_id


def restarted(world, run_id):
    """A restart of an ended run, queued."""
    return world.start(linear(1), restarted_from=run_id, restart_root=run_id, restart_no=1)


def prune(world, days=30):
    """Everything that ended more than so many days ago; (trees, runs, kept)."""
    query = PruneTree(before_ms=world.clock.wall_ms - days * DAY_MS)
    trees = runs = 0
    kept = {}
    while query is not None:
        found = world.do(prune_tree, query)
        assert found.trees <= 1
        trees, runs = trees + found.trees, runs + found.runs
        for reason, count in found.kept.items():
            kept[reason] = kept.get(reason, 0) + count
        query = None if found.after is None else PruneTree(before_ms=query.before_ms, after=found.after)
    return trees, runs, kept


def run_ids(world):
    return {row[0] for row in world.sql("SELECT run_id FROM runs")}


def pass_days(world, days):
    world.clock.forward(days * DAY_MS)


def test_a_run_that_ended_long_ago_goes_with_everything_that_was_about_it(world):
    sender = world.run(graph(node("send", "action", effect=MANUAL)))
    sender.finish("sent", settled="applied")
    sender.leave()
    worker = world.run(graph(node("review", "agent")), agent="coder", budget=Budget(tokens=1))
    told = AgentReport(attempt=1, agent="coder", conversation="c1")
    world.do(publish_updates, PublishUpdates.told(worker.fence, (told,)))
    worker.finish(1)
    worker.leave()
    asked = world.run(ASK)
    asked.ask()
    asked.leave()
    world.answer(asked.run_id, BIG)
    ended(world)
    pass_days(world, 31)

    assert prune(world) == (4, 4, {})

    for table in (
        "runs",
        "attempts",
        "agent_work",
        "run_budgets",
        "requests",
        "effects",
        "updates",
        "settings",
        "runners",
        "run_queue",
        "content_holds",
    ):
        assert world.sql(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert world.sql("SELECT count(*) FROM entities WHERE kind = 'run'") == [(0,)]
    assert world.sql("SELECT count(*) FROM events WHERE entity_no <> 0") == [(0,)]
    assert world.sql("SELECT sum(runs) FROM run_counts") == [(0,)]


def test_a_run_that_was_made_long_ago_and_ended_a_minute_ago_stays(world):
    runner = world.run(linear(1))
    pass_days(world, 40)
    runner.finish()
    runner.leave()
    world.clock.forward(60_000)
    assert prune(world) == (0, 0, {})
    assert run_ids(world) == {runner.run_id}


def test_a_run_that_has_waited_ninety_days_stays_with_its_request_and_history(world):
    runner = world.run(ASK)
    runner.ask()
    runner.leave()
    before = world.dump()
    pass_days(world, 90)
    assert prune(world) == (0, 0, {})
    assert world.dump() == before


def test_a_held_a_queued_and_a_running_run_stay(world):
    held = world.start(linear(1))
    world.pause(held)
    world.start(linear(1), at_ms=world.clock.wall_ms + 400 * DAY_MS)
    world.run(linear(1))
    pass_days(world, 90)
    assert prune(world) == (0, 0, {})
    assert len(run_ids(world)) == 3


def test_the_time_of_the_end_decides_to_the_millisecond(world):
    ended(world)
    world.clock.forward(30 * DAY_MS)
    assert prune(world) == (0, 0, {})
    world.clock.forward(1)
    assert prune(world) == (1, 1, {})


def test_a_tree_stays_whole_until_the_last_restart_has_ended_long_ago(world):
    first = ended(world)
    pass_days(world, 31)
    second = restarted(world, first)
    assert prune(world) == (0, 0, {})
    runner = world.launch(second)
    runner.finish()
    runner.leave()
    assert prune(world) == (0, 0, {})
    assert run_ids(world) == {first, second}

    pass_days(world, 31)

    assert prune(world) == (1, 2, {})
    assert run_ids(world) == set()


def test_a_tree_with_an_effect_that_nobody_has_decided_stays_and_is_named(world):
    flow = graph(node("send", "action", effect=MANUAL))
    runner = world.run(flow)
    world.cancel(runner.run_id)
    runner.gone(stopped=True)
    assert world.effects(runner.run_id) == [("send", 1, "ambiguous", 1)]
    pass_days(world, 31)
    assert prune(world) == (0, 0, {"an effect is unsettled": 1})

    world.recover(runner.run_id, "happened")

    assert prune(world) == (1, 1, {})


def test_a_tree_whose_process_is_not_proved_dead_stays(world):
    runner = world.run(linear(1))
    world.cancel(runner.run_id)
    runner.gone(proved=False)
    pass_days(world, 31)
    assert prune(world) == (0, 0, {"a process is not proved dead": 1})


def test_one_command_removes_one_tree_and_a_plan_none(world):
    for _ in range(5):
        ended(world)
    pass_days(world, 31)
    query = PruneTree(before_ms=world.clock.wall_ms)
    assert (world.do(plan_prune, query).trees, len(run_ids(world))) == (5, 5)
    assert (world.do(prune_tree, query).trees, len(run_ids(world))) == (1, 4)


def test_the_walk_goes_on_past_more_trees_that_stay_than_one_command_looks_at(world, monkeypatch):
    monkeypatch.setattr(retention, "LOOK_MAX", 3)
    world.checked = False
    flow = graph(node("send", "action", effect=MANUAL))
    for _ in range(7):
        runner = world.run(flow)
        world.cancel(runner.run_id)
        runner.gone(stopped=True)
        world.clock.forward(1)
    last = ended(world)
    pass_days(world, 31)
    assert prune(world) == (1, 1, {"an effect is unsettled": 7})
    assert last not in run_ids(world)


def test_a_repeat_of_a_start_whose_run_was_removed_gets_its_first_answer(world):
    start: StartRun = world.start_command(linear(1), receipt=key())
    run_id = world.do(start_run, start).run_id
    runner = world.launch(run_id)
    runner.finish()
    runner.leave()
    pass_days(world, 2)
    assert prune(world, days=1)[1] == 1

    again = world.done(start_run, start)

    assert (again.adopted, again.unwrap().run_id) == (True, run_id)
    assert run_ids(world) == set()


# --- what nothing refers to -----------------------------------------------------------------------------------


def test_definitions_and_environments_stay_as_long_as_a_run_has_them(world):
    ended(world)
    assert world.do(retention.unused_definitions, "").ids == ()
    pass_days(world, 31)
    assert world.do(retention.unused_environments, "").ids == ()
    prune(world)

    definitions = world.do(retention.unused_definitions, "").ids
    environments = world.do(retention.unused_environments, "").ids

    assert world.do(retention.drop_definitions, definitions) == 1
    assert world.do(retention.drop_environments, environments) == 1


def test_what_a_run_has_taken_since_it_was_looked_for_is_not_dropped(world):
    world.define(linear(1))
    found = world.do(retention.unused_definitions, "").ids
    world.start(linear(1))
    assert world.do(retention.drop_definitions, found) == 0


def test_a_start_whose_definition_was_dropped_just_now_saves_it_again(world):
    world.define(linear(1))
    command = world.start_command(linear(1))
    world.do(retention.drop_definitions, world.do(retention.unused_definitions, "").ids)
    world.do(start_run, command)
    assert world.sql("SELECT definition_id FROM definitions") == [(command.definition_id,)]


def test_a_prune_is_written_into_the_history_once(world):
    epoch = world.do(claim, ClaimEpoch(token="t", lease_ms=1000, pid=1, version="x")).epoch
    result = PruneResult(before_ms=5, trees=2, runs=3)
    command = RecordPrune(result=result, actor="client:ann", epoch=epoch, receipt=key("k", "state.prune"))
    assert not world.done(record_prune, command).adopted
    again = world.done(record_prune, command)
    assert (again.adopted, again.unwrap()) == (True, result)
    rows = world.sql("SELECT actor, CAST(payload AS TEXT) FROM events WHERE kind = 'pruned'")
    assert rows == [("client:ann", '{"before_ms":5,"runs":3,"trees":2}')]
