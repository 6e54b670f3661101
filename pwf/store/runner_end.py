"""The end of a runner's process, settled from the last committed boundary. Safe to repeat.

A runner's exit is no failure of its run: the last committed attempt and its effect decide whether the run goes on,
is held, or fails. A step that takes its process with it is one failed try of that step.
"""

from __future__ import annotations

from functools import partial

from pwf.protocol.graph import NodeSpec
from pwf.protocol.kinds import Outcome
from pwf.protocol.runner import StepError
from pwf.store import moves, place
from pwf.store.broken import isolated
from pwf.store.change import changing
from pwf.store.entity_kinds import RunnerGone
from pwf.store.runners import leave_unknown, only_observes
from pwf.store.state import Graph, RunState, encode, graph_of, load_run
from pwf.store.step_parts import Left, end_of_try, leave_parts, makes_parts, what_is_left
from pwf.store.tx import Tx

CRASHES_MAX = 3  # runner ends in a row without progress, then the hold no_progress
CRASH_BACKOFF_MS = (0, 0, 1_000)
DAEMON_DEATHS_MAX = 7  # twice among others, then five times alone


def settle_run(tx: Tx, command: RunnerGone) -> None:
    """Settle what a run's runner left open, from the last committed boundary. Safe to repeat.

    A run whose rows can't be read is parked as `broken`, so that one recovery settles all others.
    """
    if isolated(tx, command.name, partial(_settle, tx, command)):
        tx.changed("queue")


def _settle(tx: Tx, command: RunnerGone) -> bool:
    """Whether the run may be in the queue, where it was not to be admitted before this."""
    run = load_run(tx, command.name)
    if run.generation == command.generation and run.status == "running":
        with changing(tx, run, generation=command.generation):
            _settle_interrupted(tx, run, command)
    elif run.generation == command.generation and not command.proved and not run.ended and run.hold is None:
        with changing(tx, run, generation=command.generation):
            _hold_unreaped(tx, run)
            moves.note(tx, run, "held", "daemon", {"hold": "process_unreaped"})
    if command.attempt is not None:
        moves.note_traces(tx, run, command.attempt, command.printed, command.survivors)
    return not run.ended


def _settle_interrupted(tx: Tx, run: RunState, command: RunnerGone) -> None:
    graph = graph_of(tx, run.definition_id)
    active = tx.one(moves.Q.active_attempt, {"run_no": run.run_no})
    node = graph.node(run.node)
    timed_out = active is not None and command.timed_out == active[0]
    died = active is not None and command.died
    manual = active is not None and node.effect is not None and node.effect.mode == "manual"
    # A step that ends its own process is a failed try; all other ends are counted here, that of an observation too.
    run.crashes += not (command.stopped or timed_out or (died and not only_observes(run)))
    if manual and command.begun:
        _leave_unknown(tx, run, node, command, timed_out=timed_out)
    elif (
        active is not None
        and makes_parts(node)
        and command.begun
        and _leave_parts(tx, run, node, command, timed_out)
    ):
        pass  # what it left is unknown, which is noted
    elif (timed_out or died) and command.proved:
        _end_try(tx, run, graph, node, command.error if died else None)
    else:  # without proof that the old processes are dead no outcome is committed: the step will run again
        if manual and run.observe is None:  # else an earlier attempt's is still to be observed
            moves.settle_effect(tx, run, "cancelled")
        if active is not None:
            error = None if command.error is None else encode(command.error)
            moves.end_attempt(tx, run, "interrupted", attempt=active[0], error=error)
        facts: dict[str, object] = {"node": run.node, "crashes": run.crashes, "stopped": command.stopped}
        if command.error is not None:
            facts |= {"code": command.error.code, "why": command.error.message}
        moves.note(tx, run, "runner_gone", "daemon", facts)
        _go_on(tx, run, command.error)
    place.release(tx, run)
    if not command.proved and not run.ended and run.hold is None:
        _hold_unreaped(tx, run)


def _leave_unknown(tx: Tx, run: RunState, node: NodeSpec, command: RunnerGone, *, timed_out: bool) -> None:
    """An attempt that could only observe, and took too long for it or ends its process again and again, can't tell."""
    outcome, error = "interrupted", command.error
    if timed_out:
        outcome, error = "timed_out", moves.took_too_long(node)
    elif command.died:
        outcome = "failed"
    observed = only_observes(run) and (timed_out or run.crashes >= CRASHES_MAX)
    if leave_unknown(tx, run, node, None, outcome, error, observed=observed):
        _go_on(tx, run, command.error)


def _leave_parts(tx: Tx, run: RunState, node: NodeSpec, command: RunnerGone, timed_out: bool) -> bool:
    """Whether effects that the step made are unknown: then its attempt is, too, and the run is observed or held."""
    error = moves.took_too_long(node) if timed_out else command.error if command.died else None
    if error is not None and command.proved:
        end_of_try(tx, run, error)
    outcome: Outcome = "timed_out" if timed_out else "failed"
    left = what_is_left(
        tx, run, node, outcome, died=command.died, counts=error is not None and command.proved
    )
    if left is Left.NOTHING:
        return False
    if leave_parts(tx, run, left, None, error or command.error):
        _go_on(tx, run, command.error)
    return True


def _hold_unreaped(tx: Tx, run: RunState) -> None:
    detail = "processes of its last runner could not be shown dead"
    place.hold(tx, run, "process_unreaped", detail, waiting=run.status == "waiting")


def _end_try(tx: Tx, run: RunState, graph: Graph, node: NodeSpec, death: StepError | None) -> None:
    """The attempt is a failed try: it took too long, or took its process with it."""
    outcome, error = ("timed_out", moves.took_too_long(node)) if death is None else ("failed", death)
    facts: dict[str, object] = {"node": run.node, "attempt": run.attempts, "outcome": outcome}
    then = moves.follow(run, node, outcome, None, died=death is not None)
    active_ms = 0 if death is not None else node.timeout_ms or 0
    moves.end_attempt(tx, run, outcome, error=encode(error), active_ms=active_ms)
    if node.effect is not None:
        moves.settle_effect(tx, run, "failed")
    moves.progressed(tx, run)
    moves.take(tx, run, graph, then, outcome, moves.NOTHING, error, go=False)
    moves.note(tx, run, "step_finished", "daemon", moves.after_facts(facts, run, then))


def _go_on(tx: Tx, run: RunState, error: StepError | None) -> None:
    if run.crashes >= CRASHES_MAX:
        detail = f"its runner ended {run.crashes} times in a row at node {run.node!r} without progress"
        if error is not None:
            detail += f"; the last time: {error.message}"
        place.hold(tx, run, "no_progress", detail)
    elif run.daemon_deaths >= DAEMON_DEATHS_MAX:
        deaths = f"the daemon died {run.daemon_deaths} times while node {run.node!r} ran"
        place.hold(tx, run, "no_progress", f"{deaths}, at last with no other run beside it")
    else:
        place.queue(tx, run, delay_ms=CRASH_BACKOFF_MS[run.crashes])
