"""Effects of a managed resource: rows of the one ledger, made in a reconcile under keys that its manager names.

Promises: an effect is `applying` on disk before its process hears that it may apply it; what a process leaves open is
observed by the next reconcile that asks for it, or left to a person; then nothing else is done for the resource.
"""

from __future__ import annotations

import msgspec

from pwf.protocol.runner import BeginPart, PartAnswer, SettlePart, StepError, Value, effect_key
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
from pwf.store.resource_retention import asked_for
from pwf.store.resource_state import READY, Event, Resource, note, owned
from pwf.store.runners import Fence
from pwf.store.tx import Tx
from pwf.store.values import keep_for
from pwf.values import INLINE_BYTES_MAX, shortened

NODE = "reconcile"
VISIT = 1
PARTS_MAX = 10_000
NAMED_MAX = 5  # keys in a message


class ReconcilePart(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconciling process says of one effect."""

    fence: Fence
    call: BeginPart | SettlePart


def reconcile_part(tx: Tx, command: ReconcilePart) -> PartAnswer:
    """Begin or settle it. Raises `ClaimLost` where the resource has another owner by now."""
    resource = owned(tx, command.fence)
    occasion = occasion_of(resource)
    call = command.call
    if isinstance(call, BeginPart):
        kept = msgspec.structs.replace(call, request=_kept(tx, resource, call.request))
        answer = look_at_part(tx, occasion, kept)
        if answer.verdict == "apply":
            answer = begin_part(tx, occasion, kept)
        asked_for(tx, resource.resource_no, call.part)
    else:
        output = None if call.output is None else _kept(tx, resource, call.output)
        answer = settle_part(tx, occasion, msgspec.structs.replace(call, output=output))
    status = "applying" if isinstance(call, BeginPart) else call.status
    if answer.verdict in ("apply", "settled"):
        facts = {"effect": key_of(resource, call.part), "status": status}
        note(tx, resource, [Event("effect", "manager", facts)], generation=resource.generation)
    return answer


def after_reconcile(
    tx: Tx,
    resource: Resource,
    error: StepError | None,
    *,
    settled: bool = False,
    lifted: bool = False,
) -> list[Event]:
    """Close what a reconcile left open; under the hold `effect_ambiguous` when only a person can tell what happened.

    `settled`: its manager means to ask for nothing any more. `lifted`: a new spec or a person wants it looked at again
    since it began, or it did not come to its end; what earlier ones left ambiguous is the next one's to find, then.
    The caller saves the resource with these events.
    """
    occasion = occasion_of(resource)
    note_end(tx, occasion, error)
    open_ = unknown_parts(tx, occasion)
    weighed = [one for one in open_ if not lifted or one.generation == resource.generation]
    if not weighed:
        return []
    is_lost = settled or (error is not None and error.code == "effect_ambiguous")
    if not is_lost and all(one.observable and one.status == "applying" for one in weighed):
        return []
    leave_ambiguous(tx, occasion)
    keys = [key_of(resource, one.part) for one in open_]
    named = listed(keys, NAMED_MAX)
    resource.hold, resource.hold_detail = "effect_ambiguous", shortened(named, 1_000)
    message = f"nobody knows whether {named} happened"
    resource.say(READY, "False", "EffectAmbiguous", message, resource.spec_generation, tx.now.wall_ms)
    return [Event("held", "daemon", {"hold": "effect_ambiguous", "effects": keys[:NAMED_MAX]})]


def key_of(resource: Resource, part: str) -> str:
    """What people know an effect by."""
    return effect_key(resource.uid, NODE, VISIT, part)


def occasion_of(resource: Resource) -> Occasion:
    """Its reconciles, under the present generation."""
    return Occasion(
        entity_no=resource.resource_no,
        generation=resource.generation,
        node=NODE,
        visit=VISIT,
        parts_max=PARTS_MAX,
    )


def _kept(tx: Tx, resource: Resource, value: Value) -> Value:
    """A larger value stands by its digest from here on: the process sends it whole."""
    if value.json is None or len(bytes(value.json)) <= INLINE_BYTES_MAX:
        return value
    data = bytes(value.json)
    return Value(digest=keep_for(tx, data, resource.resource_no, resource.generation), size=len(data))
