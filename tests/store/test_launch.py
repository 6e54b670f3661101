"""A run is launched in the command that admits it where a process stands by, and admitted in the one that starts it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pwf.errors import Conflict
from pwf.protocol.spawn import Identity
from pwf.store.batch import Job
from pwf.store.custody import standing_runners
from pwf.store.launch import Launched, LaunchTerms, Parked
from pwf.store.queue import Admit, Admitted, AdmittedRun, Standby, StartAdmitted, admit, start_admitted
from pwf.store.runs import environment_of
from pwf.store.state import encode
from pwf.values import digest
from tests.store.world import ENVIRONMENT, IDEMPOTENT, MANUAL, OBSERVED, Runner, graph, key, linear, node

ENVIRONMENT_ID = digest(encode(ENVIRONMENT))
TERMS = LaunchTerms(home_id="home", limits={"value_bytes_max": 7})

_pids = itertools.count(50_000)


def standby(world, flow, environment_id=ENVIRONMENT_ID) -> Standby:
    pid = next(_pids)
    identity = Identity(pid=pid, start_tick=pid * 10, boot_id=world.clock.boot_id, session=pid)
    return Standby(definition_id=world.define(flow), environment_id=environment_id, identity=identity)


def offer(*standbys: Standby, limit: int = 1) -> Admit:
    return Admit(
        limit=limit, epoch=1, owner="daemon:1", lease_ms=30_000, standbys=tuple(standbys), terms=TERMS
    )


def serve(world, admission: AdmittedRun) -> Runner:
    """The process that stood by, once it was told."""
    runner = Runner(world, admission)
    assert isinstance(admission.launched, Launched)
    runner.launched, runner.current = admission.launched, admission.launched.current
    runner.attempt = runner.current.attempt
    return runner


def history(world, run_id: str) -> list[tuple[str, int, int]]:
    """(kind, revision, generation) of every event."""
    text = (
        "SELECT kind, e.revision, generation FROM events e JOIN runs ON run_no = entity_no"
        " WHERE run_id = :run ORDER BY e.revision"
    )
    return world.sql(text, {"run": run_id})


def changed_by(world, handler: Any, command: Any) -> tuple[Any, frozenset[str]]:
    """The command's value, and the keys that its commit has changed."""
    batch = world.writer.run([Job(handler, command)])
    assert batch.answers[0].error is None, batch.answers[0].error
    world.check()
    return batch.answers[0].value, batch.changed


# --- launched with the admission ------------------------------------------------------------------------------


def test_an_environment_has_the_id_that_standbys_are_matched_by(world):
    world.start(linear(1))
    assert world.read(environment_of, ENVIRONMENT_ID) == ENVIRONMENT


def test_a_run_that_finds_a_process_is_launched_in_the_transaction_that_admits_it(world):
    flow = linear(2)
    run_id, ready = world.start(flow), standby(world, flow)
    (admission,) = world.do(admit, offer(ready)).runs
    assert (admission.run_id, admission.identity) == (run_id, ready.identity)
    launch = admission.launched.launch
    assert (launch.node, launch.visit, launch.attempt, launch.generation) == ("a", 1, 1, 1)
    assert (launch.marker, launch.value_bytes_max) == (f"home:{run_id}:1", 7)
    row = world.row(run_id)
    assert (row["status"], row["seq"], row["due_wall_ms"]) == ("running", 0, None)
    assert world.trail(run_id) == ["a.1 active"]
    (standing,) = world.read(standing_runners, None)
    assert standing.identity == ready.identity  # custody, before anybody is told to begin
    assert world.sql("SELECT state, epoch FROM runners") == [("live", 1)]
    runner = serve(world, admission)
    assert runner.finish(1, to="b") == "go"
    assert runner.finish(2) == "end"


def test_each_revision_of_a_launch_with_the_admission_has_its_event(world):
    flow = linear(1)
    run_id = world.start(flow)
    world.do(admit, offer(standby(world, flow)))
    assert history(world, run_id) == [("started", 1, 0), ("admitted", 2, 1), ("launched", 3, 1)]
    assert world.row(run_id)["revision"] == 3


def test_launched_with_the_admission_or_after_it_a_run_is_told_the_same(world):
    flow = graph(node("a", to="b"), node("b", "action", effect=IDEMPOTENT))
    at_once, later = world.start(flow, input=[1]), world.start(flow, input=[1])
    first, second = world.do(admit, offer(standby(world, flow), limit=2)).runs
    assert (first.run_id, second.run_id, second.launched) == (at_once, later, None)
    runner = Runner(world, second)
    runner.begin()
    told = [serve(world, first).launch, runner.launch]
    differing = {"run_id", "generation", "marker", "attempt_started_wall_ms", "value_bytes_max"}
    facts = [{name: getattr(one, name) for name in one.__struct_fields__} for one in told]
    assert {name for name in facts[0] if facts[0][name] != facts[1][name]} <= differing
    assert world.row(at_once)["revision"] == world.row(later)["revision"]


@pytest.mark.parametrize("other", ["definition", "environment"])
def test_a_process_serves_no_run_of_another_definition_or_environment(world, other):
    flow = linear(1)
    run_id = world.start(flow)
    ready = standby(world, linear(2)) if other == "definition" else standby(world, flow, "another")
    (admission,) = world.do(admit, offer(ready)).runs
    assert (admission.run_id, admission.identity, admission.launched) == (run_id, None, None)
    assert world.sql("SELECT state, pid FROM runners") == [("launching", None)]


def test_each_process_is_given_to_one_run(world):
    flow = linear(1)
    for _ in range(3):
        world.start(flow)
    ready = [standby(world, flow), standby(world, flow)]
    runs = world.do(admit, offer(*ready, limit=3)).runs
    assert [one.identity for one in runs] == [ready[0].identity, ready[1].identity, None]


def test_a_run_that_can_not_be_launched_parks_alone_and_leaves_the_process_to_the_next(world):
    flow = linear(1)
    bad, good = world.start(flow), world.start(flow)
    world.sql("UPDATE runs SET visits = CAST('{nonsense' AS BLOB) WHERE run_id = :run", {"run": bad})
    world.checked = False  # it can't be clean any more
    ready = standby(world, flow)
    (admission,) = world.do(admit, offer(ready, limit=2)).runs
    assert (admission.run_id, admission.identity) == (good, ready.identity)
    row = world.sql("SELECT status, hold FROM runs WHERE run_id = :run", {"run": bad})
    assert row == [("held", "broken")]
    assert world.sql("SELECT run_id FROM runners JOIN runs ON run_no = entity_no") == [(good,)]
    assert [kind for kind, *_ in history(world, bad)] == ["started", "held"]  # what was undone left no gap
    assert world.trail(bad) == []


def test_a_manual_effect_is_reserved_in_the_transaction_that_launches_it(world):
    flow = graph(node("send", "action", effect=MANUAL))
    run_id = world.start(flow)
    (admission,) = world.do(admit, offer(standby(world, flow))).runs
    assert world.effects(run_id) == [("send", 1, "applying", 1)]
    runner = serve(world, admission)
    assert runner.finish(1, settled="applied") == "end"
    assert world.effects(run_id) == [("send", 1, "applied", 1)]


def test_an_effect_of_unknown_outcome_is_observed_by_a_process_that_stood_by(world):
    flow = graph(node("send", "action", effect=OBSERVED))
    runner = world.run(flow)
    runner.gone()
    (admission,) = world.do(admit, offer(standby(world, flow))).runs
    launch = admission.launched.launch
    assert (launch.observe, launch.generation, launch.attempt) == (True, 2, 2)


def test_a_run_for_which_a_pause_is_wanted_is_parked_and_not_launched(world):
    flow = linear(1)
    run_id = world.start(flow)
    world.sql("UPDATE runs SET pause_requested = 1 WHERE run_id = :run", {"run": run_id})
    (admission,) = world.do(admit, offer(standby(world, flow))).runs
    assert isinstance(admission.launched, Parked)
    assert (world.status(run_id), world.trail(run_id)) == ("paused", [])
    assert [kind for kind, *_ in history(world, run_id)] == ["started", "admitted", "held"]
    Runner(world, admission).gone(stopped=True)
    world.resume(run_id)
    world.launch(run_id)


def test_a_cancel_after_a_launch_with_the_admission_fences_its_process_off(world):
    flow = linear(2)
    run_id = world.start(flow)
    (admission,) = world.do(admit, offer(standby(world, flow))).runs
    world.cancel(run_id)
    runner = serve(world, admission)
    assert runner.send(runner.finished(1, to="b")) == ["claim_lost"]
    assert world.status(run_id) == "cancelled"


def test_a_timer_that_fires_in_an_admission_has_its_next_step_launched_there(world):
    flow = graph(node("nap", "wait", to="after"), node("after"))
    runner = world.run(flow)
    runner.wait(delay_ms=1_000)
    runner.leave()
    world.clock.forward(1_000)
    (admission,) = world.do(admit, offer(standby(world, flow))).runs
    assert admission.launched.launch.node == "after"
    assert [past.node for past in admission.launched.launch.past] == ["nap"]


# --- ended before it was told ---------------------------------------------------------------------------------


def test_a_manual_effect_whose_runner_was_never_told_has_not_happened(world):
    flow = graph(node("send", "action", effect=MANUAL))
    run_id = world.start(flow)
    (admission,) = world.do(admit, offer(standby(world, flow))).runs
    Runner(world, admission).gone(stopped=True, begun=False)
    assert (world.status(run_id), world.effects(run_id)) == ("queued", [("send", 1, "cancelled", 1)])
    runner = world.launch(run_id)
    assert (runner.launch.observe, world.effects(run_id)) == (False, [("send", 1, "applying", 2)])
    assert runner.finish(1, settled="applied") == "end"
    assert world.trail(run_id) == ["send.1 interrupted", "send.1 completed"]


def test_a_manual_effect_whose_runner_was_told_may_have_happened(world):
    flow = graph(node("send", "action", effect=MANUAL))
    run_id = world.start(flow)
    (admission,) = world.do(admit, offer(standby(world, flow))).runs
    serve(world, admission).gone(stopped=True)
    assert (world.status(run_id), world.effects(run_id)) == ("ambiguous", [("send", 1, "ambiguous", 1)])


def test_a_runner_that_was_never_told_to_observe_leaves_that_to_the_next(world):
    flow = graph(node("send", "action", effect=OBSERVED))
    runner = world.run(flow)
    runner.gone()
    (admission,) = world.do(admit, offer(standby(world, flow))).runs
    Runner(world, admission).gone(stopped=True, begun=False)
    assert world.effects(runner.run_id) == [("send", 1, "applying", 2)]
    assert world.launch(runner.run_id).launch.observe is True


# --- admitted with the start ----------------------------------------------------------------------------------


def test_a_start_with_capacity_is_admitted_and_launched_in_its_own_transaction(world):
    flow = linear(1)
    ready = standby(world, flow)
    both = StartAdmitted(start=world.start_command(flow), admit=offer(ready))
    (done, admitted), changed = changed_by(world, start_admitted, both)
    (admission,) = admitted.runs
    assert (admission.run_id, admission.identity) == (done.result.run_id, ready.identity)
    assert (done.result.status, done.result.revision, done.adopted) == ("queued", 1, False)
    assert history(world, done.result.run_id)[-1] == ("launched", 3, 1)
    assert "queue" not in changed, "it waits for nobody"
    assert f"run:{done.result.run_id}" in changed


def test_a_start_is_admitted_without_a_process_where_none_stands_by(world):
    both = StartAdmitted(start=world.start_command(linear(1)), admit=offer())
    (done, admitted), changed = changed_by(world, start_admitted, both)
    assert [one.run_id for one in admitted.runs] == [done.result.run_id]
    assert admitted.runs[0].launched is None
    assert "queue" not in changed


def test_who_is_before_it_in_the_queue_is_admitted_instead_of_the_run_that_starts(world):
    flow = linear(1)
    first = world.start(flow, priority=5)
    both = StartAdmitted(start=world.start_command(flow), admit=offer(standby(world, flow)))
    (done, admitted), changed = changed_by(world, start_admitted, both)
    assert [one.run_id for one in admitted.runs] == [first]
    assert world.status(done.result.run_id) == "queued"
    assert "queue" in changed, "the run that was started waits"


def test_a_start_for_later_is_not_admitted_and_its_time_is_told(world):
    flow = linear(1)
    at_ms = world.clock.wall_ms + 5_000
    both = StartAdmitted(start=world.start_command(flow, at_ms=at_ms), admit=offer(standby(world, flow)))
    (done, admitted), changed = changed_by(world, start_admitted, both)
    assert (admitted.runs, admitted.next_in_ms) == ((), 5_000)
    assert world.why(done.result.run_id).code == "due_later"
    assert "queue" in changed


def test_a_refused_start_admits_who_waits_and_nobody_else(world):
    flow = linear(1)
    waiting = world.start(flow, run_id="mine", input=1)
    both = StartAdmitted(start=world.start_command(flow, run_id="mine", input=2), admit=offer())
    (done, admitted), _ = changed_by(world, start_admitted, both)
    assert isinstance(done.refusal, Conflict)
    assert [one.run_id for one in admitted.runs] == [waiting]
    (done, admitted), changed = changed_by(world, start_admitted, both)
    assert (admitted.runs, changed) == ((), frozenset())


def test_a_start_that_is_repeated_by_its_receipt_starts_and_launches_nothing(world):
    flow = linear(1)
    start = world.start_command(flow, receipt=key())
    first, _ = world.done(start_admitted, StartAdmitted(start=start, admit=offer(standby(world, flow))))
    before = world.dump()
    again, admitted = world.done(
        start_admitted, StartAdmitted(start=start, admit=offer(standby(world, flow)))
    )
    assert (again.result.run_id, again.adopted, admitted.runs) == (first.result.run_id, True, ())
    assert world.dump() == before


def test_a_start_that_fails_admits_nobody(world):
    flow = linear(1)
    world.start(flow)
    both = StartAdmitted(start=world.start_command(flow, priority=10**9), admit=offer())
    before = world.dump()
    with pytest.raises(Exception, match="priority"):
        world.done(start_admitted, both)
    assert world.dump() == before


def test_a_start_tells_the_queue_of_what_became_due_with_it(world):
    flow = linear(1)
    world.start(flow, run_id="due", at_ms=world.clock.wall_ms + 5, priority=-1)
    world.clock.forward(5)
    both = StartAdmitted(start=world.start_command(flow), admit=offer())
    (done, admitted), changed = changed_by(world, start_admitted, both)
    assert [one.run_id for one in admitted.runs] == [done.result.run_id]
    assert isinstance(admitted, Admitted)
    assert admitted.fired == 1
    assert "queue" in changed, "nobody else knows that this one is ready"


def test_a_start_takes_back_no_other_commands_word_to_the_queue(world):
    flow = linear(1)
    jobs = [
        Job(start_admitted, StartAdmitted(start=world.start_command(flow), admit=offer(limit=0))),
        Job(start_admitted, StartAdmitted(start=world.start_command(flow, priority=1), admit=offer())),
    ]
    batch = world.writer.run(jobs)
    assert [answer.error for answer in batch.answers] == [None, None]
    assert "queue" in batch.changed, "the first one waits"
    world.check()
