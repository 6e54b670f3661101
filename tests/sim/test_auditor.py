"""Each rule of the auditor is broken once, by a small planted fault in the history, the store or an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import apsw
import msgspec
import pytest
from msgspec.structs import replace

from pwf.errors import Conflict
from pwf.protocol.frames import Event
from pwf.protocol.graph import MountSpec
from pwf.protocol.runner import WaitUntil
from tests.sim import deaths
from tests.sim.deaths import BATCHES_MAX, Wounds
from tests.sim.model import path_fault
from tests.sim.stage import Stage, answer, breaks
from tests.sim.watcher import Followed
from tests.sim.workload import NodeModel
from tests.store.world import value

SETTLED = "UPDATE effects SET status = :status, settled_wall_ms = 1"


@pytest.fixture
def stage_of(tmp_path):
    made: list[Stage] = []

    def make(*nodes: NodeModel) -> Stage:
        made.append(Stage(tmp_path, *nodes))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


def step(name: str = "a", kind: Any = "compute", to: str | None = None, **more: Any) -> NodeModel:
    return NodeModel(name, kind, ways={} if to is None else {"completed": to}, **more)


# --- repeats ------------------------------------------------------------------------------------------------


def told(stage, request, outcome, **result):
    stage.auditor.answered(request, answer(request, outcome, **result))


def test_an_accepted_repeat_that_names_another_run_is_seen(stage_of):
    stage = stage_of(step())
    one, two = (stage.store.start(stage.graph, input={}) for _ in range(2))
    stage.look()
    request = stage.sent("run.start", {"workflow": "flow", "input": {}})
    told(stage, request, "accepted", run_id=one)
    told(stage, request, "adopted", run_id=one)
    with breaks("gets its first answer"):
        told(stage, request, "adopted", run_id=two)


def test_a_repeat_that_is_accepted_a_second_time_is_seen(stage_of):
    stage = stage_of(step())
    run_id = stage.store.start(stage.graph, input={})
    stage.look()
    request = stage.sent("run.start", {"workflow": "flow", "input": {}})
    told(stage, request, "accepted", run_id=run_id)
    with breaks("gets its first answer"):
        told(stage, request, "accepted", run_id=run_id)


def test_a_command_that_is_done_at_another_revision_than_it_expected_is_seen(stage_of):
    stage = stage_of(step())
    run_id = stage.store.start(stage.graph, input={})
    stage.look()
    request = stage.request("run.pause", {}, run_id, expected_revision=7)
    stage.auditor.sent(request)
    stage.store.pause(run_id)
    stage.look()
    with breaks("is done at the revision that was seen"):
        stage.auditor.answered(request, answer(request, "accepted", revision=2, run_id=run_id))


# --- effects ------------------------------------------------------------------------------------------------


def effect_stage(stage_of, mode="idempotent"):
    stage = stage_of(step(kind="action", effect=mode))
    return stage, stage.run()


@pytest.mark.parametrize(
    ("mode", "status"), [("manual", "rejected"), ("manual", "cancelled"), ("idempotent", "cancelled")]
)
def test_an_effect_that_is_told_as_not_done_and_happened_is_seen(stage_of, mode, status):
    stage, runner = effect_stage(stage_of, mode)
    stage.outside.apply(f"{runner.run_id}:a:1")
    stage.doctor(SETTLED, status=status)
    with breaks(f"is told as {status}, and did not happen"):
        stage.look()


@pytest.mark.parametrize("mode", ["manual", "idempotent"])
def test_an_effect_that_is_told_as_applied_and_never_happened_is_seen(stage_of, mode):
    stage, _ = effect_stage(stage_of, mode)
    stage.doctor(SETTLED, status="applied")
    with breaks("is told as applied, and happened"):
        stage.look()


def test_a_manual_effect_that_is_called_failed_is_seen(stage_of):
    stage, _ = effect_stage(stage_of, "manual")
    stage.doctor(SETTLED, status="failed")
    with breaks("no manual effect is failed"):
        stage.look()


def test_an_effect_that_changes_without_being_begun_anew_is_seen(stage_of):
    stage, _ = effect_stage(stage_of)
    stage.doctor(SETTLED, status="failed")
    stage.look()
    stage.doctor("UPDATE effects SET status = 'applying', settled_wall_ms = NULL")
    with breaks("changes only when it is begun anew"):
        stage.look()


def test_an_ambiguous_effect_that_is_settled_without_a_persons_word_is_seen(stage_of):
    stage, _ = effect_stage(stage_of, "manual")
    stage.doctor("UPDATE effects SET status = 'ambiguous'")
    stage.look()
    stage.doctor(SETTLED, status="rejected")
    with breaks("only a person's word settles"):
        stage.look()


def test_a_process_that_applies_what_is_settled_is_seen(stage_of):
    stage, runner = effect_stage(stage_of)
    stage.doctor(SETTLED, status="cancelled")
    stage.look()
    with breaks("no process applies"):
        stage.auditor.ledger.applies(f"{runner.run_id}:a:1", "idempotent", ended=False)


def test_an_ended_run_whose_effect_is_still_being_applied_is_seen(stage_of):
    stage, runner = effect_stage(stage_of)
    stage.sent("run.cancel", run_id=runner.run_id)
    stage.store.cancel(runner.run_id)
    stage.doctor("UPDATE effects SET status = 'applying', settled_wall_ms = NULL")
    with breaks("an ended run applies nothing"):
        stage.look()


def test_another_request_under_a_key_that_is_no_conflict_is_seen(stage_of):
    stage, runner = effect_stage(stage_of, "parts")
    answered = runner.part("p")
    stage.look()
    with breaks("another request is a conflict"):
        stage.auditor.ledger.answered(f"{runner.run_id}:a:1/p", answered, 1, strange=True)


def test_an_effect_that_a_step_may_apply_without_a_row_is_seen(stage_of):
    stage, runner = effect_stage(stage_of, "parts")
    answered = runner.part("p")
    with breaks("has its row before it is applied"):
        stage.auditor.ledger.answered(f"{runner.run_id}:a:1/q", answered, 1, strange=False)


def test_an_effect_that_has_the_generation_of_an_earlier_process_is_seen(stage_of):
    stage, runner = effect_stage(stage_of, "parts")
    answered = runner.part("p")
    stage.look()
    with breaks("was begun by"):
        stage.auditor.ledger.answered(f"{runner.run_id}:a:1/p", answered, 2, strange=False)


@pytest.mark.parametrize(
    ("lost", "rule"), [("observable = 0", "a person is asked for"), ("error = NULL", "does not say why")]
)
def test_what_a_try_has_left_open_without_an_observer_or_a_reason_is_seen(stage_of, lost, rule):
    stage, runner = effect_stage(stage_of, "parts")
    runner.part("p", observable=True)
    stage.look()
    runner.fail()
    stage.look()
    stage.doctor(f"UPDATE effects SET {lost}")
    with breaks(rule):
        stage.look()


def test_an_effect_that_a_step_was_told_is_applied_and_that_is_lost_is_seen(stage_of):
    stage, runner = effect_stage(stage_of, "parts")
    runner.part("p", mode="idempotent")
    stage.outside.apply(f"{runner.run_id}:a:1/p")
    runner.settle("p")
    stage.look()
    stage.auditor.ledger.settled(f"{runner.run_id}:a:1/p")
    stage.doctor("UPDATE effects SET status = 'failed', output = NULL, output_crc32 = NULL")
    with breaks("was told to be applied"):
        stage.auditor.ledger.hold()


def test_a_hold_that_does_not_list_all_that_is_unknown_is_seen(stage_of):
    stage, runner = effect_stage(stage_of, "parts")
    for part in ("p", "q"):
        runner.part(part, observable=False)
    stage.look()
    runner.gone()
    stage.doctor("UPDATE effects SET status = 'applying' WHERE part = 'q'")
    with breaks("a hold lists all that is unknown"):
        stage.look()


def test_a_node_that_is_left_while_an_effect_of_it_is_open_is_seen(stage_of):
    stage = stage_of(step(kind="action", effect="parts", to="b"), step("b"))
    runner = stage.run()
    runner.part("p", mode="idempotent")
    stage.outside.apply(f"{runner.run_id}:a:1/p")
    runner.settle("p")
    runner.finish({"go": "on"}, to="b")
    stage.doctor(
        "UPDATE effects SET status = 'applying', settled_wall_ms = NULL, output = NULL, output_crc32 = NULL"
    )
    with breaks("a node is over when each of its effects is settled"):
        stage.look()


# --- time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relative", [True, False])
def test_a_timer_that_fires_early_is_seen(stage_of, relative):
    stage = stage_of(step(kind="wait"))
    runner = stage.run()
    now = stage.machine.now()
    times = {"delay_ms": 10_000} if relative else {"wall_ms": now.wall_ms + 10_000}
    message = runner.make(WaitUntil, **times)
    stage.auditor.waits.timer_asked(runner.run_id, message)
    runner.send(message)
    runner.leave()
    stage.look()
    stage.store.clock.forward(9_000)
    stage.doctor("UPDATE run_queue SET due_elapsed_ms = min(due_elapsed_ms, 0), due_wall_ms = 0")
    stage.look()
    stage.store.admit()
    with breaks("does not fire 1000 ms too early"):
        stage.look()


def test_a_retry_that_does_not_wait_is_seen(stage_of):
    stage = stage_of(step(retries=1, backoff_ms=5_000))
    runner = stage.run()
    runner.fail()
    runner.leave()
    stage.look()
    stage.doctor("UPDATE run_queue SET state = 'ready'")
    stage.store.clock.forward(1_000)
    stage.store.launch(runner.run_id)
    with breaks("waits for its back-off of 5000 ms, 4000 more"):
        stage.look()


def test_a_run_that_starts_before_its_time_is_seen(stage_of):
    stage = stage_of(step())
    run_id = stage.store.start(stage.graph, input={})
    stage.look()
    stage.auditor.waits.starts_at(run_id, stage.machine.now().wall_ms + 500)
    stage.store.launch(run_id)
    with breaks("does not start 500 ms too early"):
        stage.look()


# --- holds --------------------------------------------------------------------------------------------------


def test_a_pause_that_nobody_asked_for_is_seen(stage_of):
    stage = stage_of(step())
    run_id = stage.store.start(stage.graph)
    stage.look()
    stage.store.pause(run_id)
    with breaks("only a client, or a limit of an agent, pauses a run"):
        stage.look()


def test_a_hold_that_is_lifted_by_nobody_is_seen(stage_of):
    stage = stage_of(step())
    run_id = stage.store.start(stage.graph)
    stage.sent("run.pause", run_id=run_id)
    stage.store.pause(run_id)
    stage.look()
    stage.store.resume(run_id)
    with breaks("only the act that a hold names lifts it"):
        stage.look()


@pytest.mark.parametrize(
    "hold", ["process_unreaped", "load_failed", "effect_ambiguous", "no_progress", "restored"]
)
def test_a_hold_without_its_cause_is_seen(stage_of, hold):
    stage = stage_of(step())
    stage.store.start(stage.graph)
    stage.look()
    stage.store.sql("DELETE FROM run_queue")
    stage.doctor("UPDATE runs SET status = 'held', hold = :hold", hold=hold)
    with breaks("a hold has its cause"):
        stage.look()


def test_an_act_that_was_over_before_the_hold_does_not_lift_it(stage_of):
    stage = stage_of(step())
    run_id = stage.store.start(stage.graph)
    stage.look()
    told(stage, stage.sent("run.resume", run_id=run_id), "adopted", run_id=run_id)
    stage.sent("run.pause", run_id=run_id)
    stage.store.pause(run_id)
    stage.look()
    stage.store.resume(run_id)
    with breaks("only the act that a hold names lifts it"):
        stage.look()


# --- values -------------------------------------------------------------------------------------------------


def test_an_output_that_no_runner_has_sent_is_seen(stage_of):
    stage = stage_of(step(to="b"), step("b"))
    runner = stage.run()
    runner.finish({"n": 1}, to="b")
    with breaks("is what was sent for it"):
        stage.look()


def test_an_output_of_another_generation_is_seen(stage_of):
    stage = stage_of(step(to="b"), step("b"))
    runner = stage.run()
    stage.auditor.said.finish_sent(runner.run_id, 2, 1, b'{"n":1}')
    runner.finish({"n": 1}, to="b")
    with breaks("is what was sent for it"):
        stage.look()


def test_a_stored_output_that_changes_is_seen(stage_of):
    stage = stage_of(step(to="b"), step("b"))
    runner = stage.run()
    stage.finish(runner, {"n": 1}, to="b")
    stage.look()
    stage.doctor("UPDATE attempts SET output = x'32' WHERE attempt = 1")
    with breaks("never changes"):
        stage.look()


def test_a_content_that_is_not_its_digests_is_seen(stage_of):
    stage = stage_of(step(to="b"), step("b"))
    runner = stage.run()
    stage.auditor.said.finish_sent(runner.run_id, 1, 1, b'"long"')
    runner.finish("long", to="b")
    digest = "0" * 64
    stage.store.sql("INSERT INTO contents VALUES (:digest, 6, 1, 0)", {"digest": digest})
    stage.store.sql("INSERT INTO content_chunks VALUES (:digest, 0, x'226c6f6e6722', 0)", {"digest": digest})
    stage.store.sql(
        "UPDATE attempts SET output = NULL, output_digest = :digest WHERE attempt = 1", {"digest": digest}
    )
    with breaks("is whole"):
        stage.look()


def test_a_run_that_ends_with_another_output_is_seen(stage_of):
    stage = stage_of(step())
    runner = stage.run()
    stage.finish(runner, {"n": 1})
    stage.doctor("UPDATE runs SET output = x'32'")
    with breaks("ends with the output of its last step"):
        stage.look()


def test_a_past_output_that_is_another_or_missing_is_seen(stage_of):
    stage = stage_of(step(to="b"), step("b"))
    runner = stage.run()
    stage.finish(runner, {"n": 1}, to="b")
    stage.look()
    runner.gone()
    launch = stage.store.launch(runner.run_id).launch
    stage.look()
    said, run = stage.auditor.said, stage.auditor.runs[runner.run_id]
    said.launched(launch, run, stale=False)
    wrong = replace(launch.past[0], output=value({"n": 2}))
    with breaks("has the output of a:1 as it was"):
        said.launched(replace(launch, past=(wrong,)), run, stale=False)
    with breaks("is told of every output"):
        said.launched(replace(launch, past=()), run, stale=False)
    with breaks("has the input of its run"):
        said.launched(replace(launch, input=value({"n": 3})), run, stale=False)
    with breaks("counts as its run does"):
        said.launched(replace(launch, entries={"a": {"a.x": 1}}), run, stale=False)


def test_an_included_workflow_that_takes_more_steps_than_it_may_is_seen():
    spec = MountSpec(workflow="child", max_steps=1, exits={"x": ("m.x",)})
    nodes = {"m": step("m", to="m.x", mount=spec), "m.x": step("m.x", to="m.x")}
    model: Any = SimpleNamespace(nodes=nodes, start="m", max_steps=100)
    run: Any = SimpleNamespace(status="running", max_steps=None, node="m.x", visit=2)
    done = [(1, "m", 1, "completed", b"1", 1, None), (2, "m.x", 1, "completed", b"1", 1, None)]
    assert (
        path_fault(model, run, [*done, (3, "m.x", 2, "active", None, 1, None)])
        == "attempt 3 began after the end"
    )
    assert path_fault(model, run, done) == "the run should have ended as failed"


# --- views --------------------------------------------------------------------------------------------------


def view(stage, run_id):
    return msgspec.json.decode(msgspec.json.encode(stage.store.view(run_id)))


def test_a_view_of_what_never_was_is_seen(stage_of):
    stage = stage_of(step())
    run_id = stage.run().run_id
    document = view(stage, run_id)
    stage.auditor.shown(run_id, document)
    document["summary"]["status"] = "queued"
    with breaks("was .* at revision"):
        stage.auditor.shown(run_id, document)
    document = view(stage, run_id) | {"steps": []}
    with breaks("every step"):
        stage.auditor.shown(run_id, document)


def test_a_view_that_is_old_at_rest_is_seen(stage_of):
    stage = stage_of(step())
    runner = stage.run()
    document = view(stage, runner.run_id)
    stage.finish(runner, {"n": 1})
    stage.look()
    with breaks("sees its end"):
        stage.auditor.shown_at_rest(runner.run_id, document)


def test_events_of_a_view_with_a_gap_are_seen(stage_of):
    stage = stage_of(step())
    followed = Followed(SimpleNamespace(auditor=stage.auditor), stage.run().run_id)
    with breaks("events of a view are consecutive"):
        followed.take(Event(subscription="s", kind="snapshot", revision=2))


# --- history and removal ------------------------------------------------------------------------------------


def test_a_revision_without_an_event_is_seen(stage_of):
    stage = stage_of(step())
    stage.run()
    stage.store.sql("UPDATE entities SET revision = revision + 1 WHERE kind = 'run'")
    with breaks("has an event for each revision"):
        stage.look()


def remove(stage):
    """Behind everybody's back."""
    for table in ("attempts", "run_queue", "runners", "runs"):
        stage.store.sql(f"DELETE FROM {table}")
    stage.store.sql("DELETE FROM entities WHERE kind = 'run'")


def test_a_run_that_disappears_although_nobody_prunes_is_seen(stage_of):
    stage = stage_of(step())
    run_id = stage.store.start(stage.graph)
    stage.sent("run.cancel", run_id=run_id)
    stage.store.cancel(run_id)
    stage.look()
    remove(stage)
    with breaks("nobody has pruned"):
        stage.look()


def test_a_run_that_disappears_before_its_end_is_seen(stage_of):
    stage = stage_of(step())
    stage.run()
    stage.sent("state.prune")
    remove(stage)
    with breaks("only an ended run is removed"):
        stage.look()


# --- backups ------------------------------------------------------------------------------------------------


def test_a_backup_that_lacks_what_somebody_was_told_is_seen(stage_of, tmp_path):
    stage = stage_of(step())
    stage.store.start(stage.graph, input={})
    stage.look()
    copy = tmp_path / "copy.db"
    apsw.Connection(str(stage.database)).execute("VACUUM INTO ?", (str(copy),))
    stage.auditor.look_at_backup(copy)
    run_id = stage.store.start(stage.graph, input={})
    stage.look()
    told(stage, stage.sent("run.start", {"workflow": "flow", "input": {}}), "accepted", run_id=run_id)
    with breaks("is there"):
        stage.auditor.look_at_backup(copy)


# --- deaths -------------------------------------------------------------------------------------------------


def test_a_fault_of_the_disk_excuses_the_death_that_it_causes_and_no_later_one():
    wounds = Wounds()
    assert not deaths.excused("StoreBroken", wounds, taken_over=False)
    wounds.hit("io_error")
    assert deaths.excused("StoreBroken", wounds, taken_over=False)
    for _ in range(BATCHES_MAX + 1):
        wounds.batch()
    assert not deaths.excused("StoreBroken", wounds, taken_over=False)


def test_a_lost_claim_excuses_a_death_only_where_another_daemon_has_it():
    wounds = Wounds()
    wounds.hit("io_error")
    assert not deaths.excused("ClaimLost", wounds, taken_over=False)
    assert deaths.excused("ClaimLost", wounds, taken_over=True)


def test_an_error_that_no_fault_makes_is_never_excused():
    wounds = Wounds()
    wounds.hit("io_error")
    assert not deaths.excused(Conflict.__name__, wounds, taken_over=True)
