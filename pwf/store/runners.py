"""Between a run and its runner: who owns it, and what becomes of an effect of unknown outcome.

A runner's launch is in `launch`, what it says is decided in `transitions`, its end in `runner_end`.
"""

from __future__ import annotations

import msgspec

from pwf.errors import ClaimLost
from pwf.protocol.graph import NodeSpec
from pwf.protocol.kinds import KINDS
from pwf.protocol.runner import Finish, StepError
from pwf.store import moves, place
from pwf.store.custody_rows import runner_is_ending
from pwf.store.queries import load_queries
from pwf.store.state import RunState, load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor shows with each write."""

    run_id: str
    entity_no: int
    generation: int
    token: str


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that the runner is in; the supervisor enforces its deadline.

    `stops_itself`: the step runs in an event loop, so that the runner can end it at its time, and is given time for it.
    """

    attempt: int
    node: str
    timeout_ms: int | None
    applying: bool  # a manual effect is being applied
    stops_itself: bool = False


def unknown_error(tx: Tx, run: RunState, node: NodeSpec) -> StepError | None:
    """Why the attempt ended whose effect is to be observed. One whose runner we ended has left no word."""
    row = tx.one(Q.unknown_error, {"run_no": run.run_no, "node": run.node, "visit": run.visit})
    if row is not None:
        return moves.decode_error(row[0])
    return moves.took_too_long(node) if run.observe == "timed_out" else None


def current_of(run: RunState, node: NodeSpec) -> Current:
    manual = node.effect is not None and node.effect.mode == "manual"
    return Current(
        attempt=run.attempts,
        node=run.node,
        timeout_ms=node.timeout_ms,
        applying=manual,
        stops_itself=node.is_async or KINDS[node.kind].stops_itself,
    )


def owned(tx: Tx, fence: Fence, *, expected_status: str = "running") -> RunState:
    """Load a run that is still the supervisor's; `ClaimLost` when it is not."""
    run = load_run(tx, fence.run_id)
    if run.generation != fence.generation or run.lease_token != fence.token or run.status != expected_status:
        raise ClaimLost(f"run {run.run_id} is {run.shown_status} in generation {run.generation} by now")
    return run


# --- shared by what a runner says and by its end --------------------------------------------------------------


def part(tx: Tx, run: RunState) -> None:
    """The run is parked: the runner has nothing more to do for it."""
    place.release(tx, run)
    runner_is_ending(tx, run.run_no, run.generation)


def only_observes(run: RunState) -> bool:
    """Whether the present attempt observes an effect whose outcome is still to be reported, and does nothing else."""
    return run.observe in ("failed", "timed_out")


def leave_unknown(
    tx: Tx,
    run: RunState,
    node: NodeSpec,
    message: Finish | None,
    outcome: str,
    error: StepError | None = None,
    *,
    observed: bool,
) -> bool:
    """A manual effect may or may not have happened. True: it is to be observed, and the caller queues the run.

    False: nobody can tell, and the run is held for a person. Either way the caller parts with the runner.
    `observed`: the attempt was an observation, which could not tell. `error`: why the attempt ended.
    """
    assert node.effect is not None
    facts: dict[str, object] = {"effect": run.effect_key, "observed": observed}
    if message is None and error is not None:
        facts |= {"code": error.code, "why": error.message}
    if message is None and only_observes(run):
        error = None  # what is to be reported is how the effect's own attempt ended
    elif not observed:
        run.observe = "run" if outcome == "interrupted" else outcome
    moves.end_unknown(tx, run, message, error, facts)
    if node.effect.observable and not observed:
        moves.settle_effect(tx, run, "applying")
        return True
    moves.settle_effect(tx, run, "ambiguous")
    what = "observe() could not tell" if observed else "the node has no observe function"
    place.hold(tx, run, "effect_ambiguous", f"the outcome of effect {run.effect_key} is unknown: {what}")
    return False
