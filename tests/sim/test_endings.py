"""Each rule of the auditor's model of endings is broken once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pwf.protocol.kinds import KINDS
from pwf.store.deadlines import time_out
from tests.sim.stage import Stage, breaks
from tests.sim.workload import NodeModel

QUESTION = next(kind for kind, facts in KINDS.items() if facts.has_deadline and not facts.chooses)


def works(stage, runner):
    """A process of the run is still at work."""
    marker = f"home:{runner.run_id}:{runner.fence.generation}"
    process = SimpleNamespace(marker=marker, run_id=runner.run_id, at_work=True)
    stage.machine.living = lambda: iter([process])


def remove(stage):
    for table in ("attempts", "run_queue", "runners", "runs"):
        stage.store.sql(f"DELETE FROM {table}")
    stage.store.sql("DELETE FROM entities WHERE kind = 'run'")


def test_custody_that_ends_while_a_process_works_is_seen(stage):
    works(stage, stage.run())
    stage.store.sql("DELETE FROM runners")
    with breaks("custody of"):
        stage.auditor.endings.look_at_custody()


def time_out_step(stage):
    """The daemon does, and the auditor sees it."""
    stage.doctor("UPDATE attempts SET status = 'timed_out', ended_wall_ms = 1")
    (run,) = stage.auditor.runs.values()
    attempts = stage.auditor.said.look(run, stage.auditor.attempts(run.run_id))
    with breaks("is told of timed_out at a after the end of"):
        stage.auditor.endings.look(run, attempts)


def test_an_outcome_that_a_daemon_decides_while_the_process_works_is_seen(stage):
    works(stage, stage.run())
    time_out_step(stage)


@pytest.fixture
def question(tmp_path):
    """A stage whose only node asks, and its runner, which has not left yet when the time is over."""
    stage = Stage(tmp_path, NodeModel("a", QUESTION, open_ms=500))
    runner = stage.run()
    works(stage, runner)
    assert runner.ask(kind=KINDS[QUESTION].asks, timeout_ms=500) == "park"
    stage.look()
    yield stage, runner
    stage.close()


def hear(stage, runner):
    stage.auditor.endings.asked(runner.run_id, runner.fence.generation, runner.attempt)


def test_the_time_of_a_question_may_be_over_before_its_runner_has_left(question):
    stage, runner = question
    hear(stage, runner)
    stage.store.clock.forward(500)
    stage.store.do(time_out)
    stage.look()
    assert stage.auditor.runs[runner.run_id].status == "timed_out"


def test_a_question_that_no_runner_has_asked_is_no_end_of_its_step(question):
    stage, _ = question
    stage.store.clock.forward(500)
    stage.store.do(time_out)
    with breaks("is told of timed_out at a after the end of"):
        stage.look()


def test_a_step_that_is_timed_out_while_its_question_is_open_is_seen(question):
    stage, runner = question
    hear(stage, runner)
    time_out_step(stage)


def ended(stage):
    runner = stage.run()
    stage.finish(runner, {"n": 1})
    stage.look()
    return runner


@pytest.mark.parametrize("early_ms", [0, 5_000])
def test_a_run_that_goes_although_every_prune_names_an_earlier_moment_is_seen(stage, early_ms):
    ended(stage)
    stage.sent("state.prune", {"before_ms": stage.store.clock.wall_ms - early_ms})
    remove(stage)
    with breaks("not before"):
        stage.look()


def test_a_run_that_goes_while_its_process_works_is_seen(stage):
    runner = ended(stage)
    stage.sent("state.prune", {"before_ms": stage.store.clock.wall_ms + 1})
    works(stage, runner)
    remove(stage)
    with breaks("no run goes whose process works"):
        stage.look()


def test_recovery_that_takes_what_a_supervisor_of_its_own_daemon_has_is_seen(stage):
    with breaks("recovery leaves home:r:1 to its own daemon's supervisor"):
        stage.auditor.endings.recovers("home:r:1", is_held=True)
