"""The effects that a run's step makes in mid-step: what its runner says of them, and what they mean for the run.

The node is over only when each is settled. What an attempt leaves unknown is observed by the next one where its code
reaches it. Where nobody can tell, or the code reaches it no more, the run is held, and a person settles each by key.
"""

from __future__ import annotations

import enum

import msgspec

from pwf.protocol.graph import NodeSpec
from pwf.protocol.kinds import Outcome
from pwf.protocol.runner import BeginPart, Finish, PartAnswer, SettlePart, StepError, effect_key
from pwf.store import moves, place
from pwf.store.change import changing
from pwf.store.effect_parts import (
    Occasion,
    begin_part,
    leave_ambiguous,
    listed,
    look_at_part,
    note_end,
    settle_part,
    unknown_parts,
)
from pwf.store.runners import Fence, owned
from pwf.store.state import RunState, graph_of
from pwf.store.tx import Tx

NAMED_MAX = 10  # effects in an event and in the reason of a hold


class PartCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's runner says of an effect in mid-step."""

    fence: Fence
    call: BeginPart | SettlePart


class Left(enum.Enum):
    """What an attempt leaves of the effects that it made."""

    NOTHING = enum.auto()  # that would keep its outcome from counting
    OBSERVE = enum.auto()  # the next attempt can find out
    ASK = enum.auto()  # nobody can


def makes_parts(node: NodeSpec) -> bool:
    """Whether its code makes effects in mid-step."""
    return node.effect is not None and node.effect.mode == "parts"


def occasion_of(run: RunState) -> Occasion:
    """The position of the run, under its present generation."""
    return Occasion(entity_no=run.run_no, generation=run.generation, node=run.node, visit=run.visit)


def part_call(tx: Tx, command: PartCall) -> PartAnswer:
    """Begin or settle one. Raises `ClaimLost` for a stale runner, and for one whose run has ended or is held."""
    call, run = command.call, owned(tx, command.fence)
    node = graph_of(tx, run.definition_id).node(run.node)
    if not makes_parts(node) or call.attempt != run.attempts:
        message = (
            f"attempt {call.attempt} makes no effects; the run is in attempt {run.attempts}, at {run.node!r}"
        )
        return PartAnswer(verdict="refused", error=StepError(code="protocol_rejected", message=message))
    occasion, key = occasion_of(run), effect_key(run.run_id, run.node, run.visit, call.part)
    if isinstance(call, BeginPart):
        answer = look_at_part(tx, occasion, call)
        if answer.verdict != "apply":
            return answer
    facts: dict[str, object] = {"effect": key}
    with changing(tx, run, generation=run.generation, token=command.fence.token):
        if isinstance(call, BeginPart):
            answer, kind = begin_part(tx, occasion, call), "effect_begun"
        else:
            answer, kind = settle_part(tx, occasion, call), "effect_settled"
            facts["status"] = call.status
        if answer.error is not None:
            facts["refused"] = answer.error.message
        moves.note(tx, run, kind, "runner", facts)
    return answer


def what_is_left(
    tx: Tx,
    run: RunState,
    node: NodeSpec,
    outcome: Outcome,
    *,
    could_not_tell: bool = False,
    died: bool = False,
    counts: bool = True,
) -> Left:
    """What keeps the outcome of the present attempt from counting.

    `died`: it took its process with it. `counts`: the outcome would be the step's, else it was merely interrupted.
    """
    open_ = unknown_parts(tx, occasion_of(run))
    if not open_:
        return Left.NOTHING
    if could_not_tell or not all(part.observable for part in open_):
        return Left.ASK
    if any(part.generation == run.generation for part in open_):
        return Left.OBSERVE
    # The code did not reach these. The next try may, if there is one.
    is_over = counts and moves.retry_ms(node, outcome, run.failures + 1, died=died) is None
    return Left.ASK if is_over else Left.NOTHING


def end_of_try(tx: Tx, run: RunState, error: StepError | None) -> None:
    """The attempt is over, by `error`: what it left open knows why, and what may be run again has failed."""
    note_end(tx, occasion_of(run), error)


def leave_parts(tx: Tx, run: RunState, left: Left, message: Finish | None, error: StepError | None) -> bool:
    """The attempt has ended, and effects are unknown. True: they are to be observed, and the caller queues the run.

    False: nobody can tell, and the run is held for a person. Either way the caller parts with the runner.
    """
    keys = [
        effect_key(run.run_id, run.node, run.visit, one.part) for one in unknown_parts(tx, occasion_of(run))
    ]
    facts: dict[str, object] = {
        "effects": keys[:NAMED_MAX],
        "observed": message is not None and message.observed,
    }
    if message is None and error is not None:
        facts |= {"code": error.code, "why": error.message}
    moves.end_unknown(tx, run, message, error, facts)
    if left is Left.OBSERVE:
        return True
    leave_ambiguous(tx, occasion_of(run))
    hold_for_parts(tx, run)
    return False


def hold_for_parts(tx: Tx, run: RunState) -> None:
    """Hold the run, and list the effects that a person must settle."""
    open_ = [one for one in unknown_parts(tx, occasion_of(run)) if one.status == "ambiguous"]
    keys = [effect_key(run.run_id, run.node, run.visit, one.part) for one in open_]
    which = "effect" if len(keys) == 1 else f"{len(keys)} effects:"
    detail = f"the outcome of {which} {listed(keys, NAMED_MAX)} is unknown"
    place.hold(tx, run, "effect_ambiguous", detail)
