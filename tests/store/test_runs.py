"""Runs are started once, adopted where equal, and found by what people type."""

import msgspec
import pytest

from pwf.errors import Ambiguous, ClaimLost, Conflict, InvalidArgument, NotFound, Rejected
from pwf.store.control import Control, cancel, pause
from pwf.store.runs import (
    environment_of,
    resolve_ref,
    start_run,
)
from tests.store.world import ENVIRONMENT, Runner, graph, key, linear, node

OTHER = graph(node("x"), name="other")
ELSEWHERE = msgspec.structs.replace(ENVIRONMENT, root="/elsewhere")


# --- start and adoption ---------------------------------------------------------------------------------------


def test_a_started_run_is_queued_and_due(world):
    run_id = world.start(linear(2), input={"a": [1, 2]})
    view = world.view(run_id)
    assert (view.summary.status, view.summary.node, view.summary.revision) == ("queued", "a", 1)
    assert bytes(view.input.json) == b'{"a":[1,2]}'
    assert (view.interpreter, view.root) == (ENVIRONMENT.interpreter, "/project")


def test_code_is_stored_with_the_first_run_of_it_and_by_no_start_that_is_refused_or_adopted(world):
    stored = "SELECT definition_id FROM definitions"
    command = world.start_command(linear(2), run_id="mine")
    with pytest.raises(InvalidArgument):
        world.do(start_run, msgspec.structs.replace(command, priority=10**9))
    assert world.sql(stored) == []
    world.do(start_run, command)
    world.do(start_run, world.start_command(linear(3), run_id="mine"))
    assert world.sql(stored) == [(command.definition_id,)]


def test_a_start_with_an_equal_id_and_equal_facts_adopts(world):
    command = world.start_command(linear(2), input=1, run_id="mine")
    world.do(start_run, command)
    world.pause("mine")
    before = world.dump()
    done = world.done(start_run, command)
    assert (done.adopted, done.result.run_id, done.result.status) == (True, "mine", "paused")
    assert done.result.code_is_older is False
    assert world.dump() == before


def test_adoption_says_when_the_code_is_older(world):
    world.start(linear(2), run_id="mine")
    newer = world.start_command(linear(3), run_id="mine")
    assert world.done(start_run, newer).result.code_is_older is True


@pytest.mark.parametrize(
    ("flow", "facts", "why"),
    [
        (OTHER, {"input": 9}, "its workflow is 'flow', not 'other'"),
        (linear(2), {"input": 1, "environment": ELSEWHERE}, "its project is '/project', not '/elsewhere'"),
        (linear(2), {"input": 2}, "its input is another"),
        (linear(2), {"input": 1, "max_steps": 7}, "its max_steps is as written, not 7"),
        (
            linear(2),
            {"input": 1, "restarted_from": "p", "restart_root": "p", "restart_no": 1},
            "it is no restart",
        ),
    ],
)
def test_a_conflict_names_the_first_fact_that_differs(world, flow, facts, why):
    world.start(linear(2), input=1, run_id="mine")
    command = world.start_command(flow, run_id="mine", **facts)
    before = world.dump()
    with pytest.raises(Conflict, match=f"run 'mine' exists, but {why}"):
        world.do(start_run, command)
    assert world.dump() == before


@pytest.mark.parametrize("run_id", ["", ".hidden", "a b", "x" * 129, "ä", "a/b", "-x", "a\n"])
def test_an_id_that_may_be_none_is_refused_before_any_row(world, run_id):
    command = world.start_command(linear(1), run_id=run_id)
    with pytest.raises(InvalidArgument):
        world.do(start_run, command)
    assert world.sql("SELECT count(*) FROM runs") == [(0,)]


@pytest.mark.parametrize("facts", [{"at_ms": -1}, {"at_ms": 2**70}, {"priority": 2**70}])
def test_a_number_that_no_row_can_hold_is_refused_before_any_row(world, facts):
    command = world.start_command(linear(1), **facts)
    with pytest.raises(InvalidArgument):
        world.do(start_run, command)
    assert world.sql("SELECT count(*) FROM runs") == [(0,)]


def test_a_large_input_is_kept_by_its_digest_and_compared_by_value(world):
    text = "x" * 100_000
    command = world.start_command(linear(1), input=text, run_id="big")
    world.do(start_run, command)
    assert world.done(start_run, command).adopted is True
    assert world.launch("big").launch.input.size == 100_002
    with pytest.raises(Conflict):
        world.do(start_run, world.start_command(linear(1), input=text + "y", run_id="big"))


# --- receipts -------------------------------------------------------------------------------------------------


def test_a_key_sent_again_gives_its_first_run(world):
    command = world.start_command(linear(2), receipt=key())
    first = world.do(start_run, command)
    world.launch(first.run_id)
    before = world.dump()
    again = world.done(start_run, command)
    assert (again.adopted, again.result) == (True, first)
    assert world.dump() == before


@pytest.mark.parametrize(
    ("flow", "facts", "why"),
    [
        (linear(2), {"input": 2}, "its input is another"),
        (OTHER, {"input": 1}, "its workflow is 'flow', not 'other'"),
        (linear(2), {"input": 1, "run_id": "that"}, "its id is not 'that'"),
    ],
)
def test_a_key_with_another_start_is_a_conflict_that_names_the_fact(world, flow, facts, why):
    first = world.start(linear(2), input=1, receipt=key(payload="p1"))
    command = world.start_command(flow, receipt=key(payload="p2"), **facts)
    before = world.dump()
    with pytest.raises(Conflict, match=f"has started run '{first}' before, but {why}"):
        world.do(start_run, command)
    assert world.dump() == before


def test_a_key_of_another_operation_is_a_conflict(world):
    run_id = world.start(linear(1), receipt=key())
    with pytest.raises(Conflict, match=r"used for run\.start before"):
        world.cancel(run_id, receipt=key(operation="run.cancel"))
    assert world.status(run_id) == "queued"


def test_a_refusal_is_repeated_although_it_would_be_possible_by_now(world):
    command = Control(run_id="later", receipt=key(operation="run.pause"))
    refusal = world.done(pause, command).refusal
    assert isinstance(refusal, NotFound)
    world.start(linear(1), run_id="later")
    again = world.done(pause, command).refusal
    assert (type(again), again.message, again.hint) == (NotFound, refusal.message, refusal.hint)
    assert world.status("later") == "queued"


def test_an_accepted_command_sent_again_is_adopted_with_its_first_result(world):
    run_id = world.start(linear(1))
    command = Control(run_id=run_id, receipt=key(operation="run.pause"))
    first = world.do(pause, command)
    world.resume(run_id)
    again = world.done(pause, command)
    assert (again.adopted, again.result) == (True, first)
    assert world.status(run_id) == "queued"  # not paused once more


def test_an_exception_leaves_no_receipt(world):
    command = world.start_command(linear(1), run_id="a b", receipt=key())
    with pytest.raises(InvalidArgument):
        world.do(start_run, command)
    assert world.sql("SELECT * FROM receipts") == []
    world.do(start_run, msgspec.structs.replace(command, run_id="ab"))


def test_a_refused_command_has_written_nothing_but_its_receipt(world):
    run_id = world.start(linear(1))
    world.cancel(run_id)
    before = world.dump()
    done = world.done(cancel, Control(run_id=run_id, receipt=key(operation="run.cancel")))
    assert done.adopted is True
    refusal = world.done(pause, Control(run_id=run_id, receipt=key("k2", "run.pause"))).refusal
    assert isinstance(refusal, Rejected)
    after = world.dump()
    receipts = after.pop("receipts")
    assert [row[4] for row in receipts] == ["accepted", "refused"]
    before.pop("receipts")
    assert after == before


# --- references -----------------------------------------------------------------------------------------------


def resolve(world, ref):
    return world.do(resolve_ref, ref)


def test_a_run_is_found_by_id_and_by_unique_prefix(world):
    for run_id in ("abc1", "abc2", "abd", "ab", "zzz"):
        world.start(linear(1), run_id=run_id)
    assert resolve(world, "abc1") == "abc1"
    assert resolve(world, "ab") == "ab"  # the whole id counts before those that it begins
    assert resolve(world, "abd") == "abd"
    assert resolve(world, "z") == "zzz"
    with pytest.raises(Ambiguous, match=r"beginning of several runs: abc1, abc2$"):
        resolve(world, "abc")
    with pytest.raises(Ambiguous, match=r"ab, abc1, abc2, …$"):
        resolve(world, "a")


@pytest.mark.parametrize(
    "ref", ["", "nope", "%", "_", "ä", "A", "\x7f", "x" * 500, "@", "@first", "a' OR 1=1"]
)
def test_a_reference_to_no_run_is_not_found(world, ref):
    world.start(linear(1), run_id="a")
    with pytest.raises(NotFound):
        resolve(world, ref)


def test_last_is_the_newest_run_and_last_failed_the_newest_that_failed(world):
    for ref in ("@last", "@last-failed"):
        with pytest.raises(NotFound, match=f"there is no run for {ref}"):
            resolve(world, ref)
    runner = world.run(linear(1))
    runner.fail()
    failed = runner.run_id
    late = world.run(linear(1, timeout_ms=5))
    late.gone(timed_out=1)
    good = world.run(linear(1))
    good.finish()
    assert resolve(world, "@last") == good.run_id
    assert resolve(world, "@last-failed") == late.run_id != failed


def test_last_of_a_project_is_never_that_of_another_and_where_there_is_none_the_newest_of_all_is_named(world):
    def failed_run(root):
        runner = world.run(linear(1), environment=msgspec.structs.replace(ENVIRONMENT, root=root))
        runner.fail()
        return runner.run_id

    here, there = failed_run("/here"), failed_run("/there")
    for name in ("@last", "@last-failed"):
        assert (resolve(world, f"{name}:/here"), resolve(world, f"{name}:/there")) == (here, there)
        with pytest.raises(NotFound, match=f"no run for {name} in the project /new") as none:
            resolve(world, f"{name}:/new")
        assert none.value.hint == f"pwf ls lists the runs; the newest of all projects is {there}"


def test_the_environment_of_a_run_is_recorded_once_for_all_that_share_it(world):
    for _ in range(3):
        world.start(linear(1))
    ((environment_id,),) = world.sql("SELECT environment_id FROM environments")
    assert world.do(environment_of, environment_id) == ENVIRONMENT
    with pytest.raises(NotFound):
        world.do(environment_of, "none")


# --- ownership ------------------------------------------------------------------------------------------------


def test_generations_only_grow_and_each_owner_has_one_of_its_own(world):
    runner = world.run(linear(2))
    seen = [(runner.fence.generation, runner.fence.token)]
    for _ in range(3):
        runner.gone(stopped=True)
        runner = world.launch()
        seen.append((runner.fence.generation, runner.fence.token))
    assert [generation for generation, _ in seen] == [1, 2, 3, 4]
    assert len({token for _, token in seen}) == 4


def test_only_the_owner_may_begin(world):
    run_id = world.start(linear(1))
    (admission,) = world.admit()
    runner = Runner(world, admission)
    world.cancel(run_id)
    before = world.dump()
    with pytest.raises(ClaimLost, match="is cancelled"):
        runner.begin()
    assert world.dump() == before
