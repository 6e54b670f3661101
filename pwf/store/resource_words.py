"""A person's word on an effect of a managed resource, and all that is known of it before.

Promises: nothing else ever settles an ambiguous effect; once none is left, the resource is reconciled, and its manager
gets what the person said of each.
"""

from __future__ import annotations

import msgspec

from pwf.errors import Conflict, NotFound, Rejected
from pwf.protocol.effects import EffectDetail, Word, read_effect_key
from pwf.protocol.operations import RunChanged
from pwf.protocol.resources import ResourceState
from pwf.protocol.views import EffectView, RunSummary, Status
from pwf.store.custody_rows import has_runner
from pwf.store.effect_detail import KNOWN, kept_of, words_of
from pwf.store.effect_parts import Word as Said
from pwf.store.effect_parts import observe_again, settle_by_word
from pwf.store.effect_rows import one_effect
from pwf.store.effects import ResolveEffect
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.resource_effects import key_of, occasion_of
from pwf.store.resource_state import Event, Resource, load_resource, save
from pwf.store.resource_wake import wake
from pwf.store.state import graph_of
from pwf.store.tx import Tx

Q = load_queries(__file__)

#: A resource's state as the nearest status of a run, where one stands in the place of a run.
STATUS: dict[ResourceState, Status] = {
    "queued": "queued",
    "reconciling": "running",
    "settled": "completed",
    "paused": "paused",
    "ambiguous": "ambiguous",
    "held": "held",
    "gone": "cancelled",
}


def resource_named(tx: Tx, name: str) -> int | None:
    """The number of the resource with this uid; None where there is none."""
    row = tx.one(Q.by_name, {"uid": name})
    return None if row is None else int(row[0])


class ResourceEffectQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One effect of a resource, by its key."""

    resource_no: int
    effect_key: str


def resource_effect_detail(tx: Tx, query: ResourceEffectQuery) -> EffectDetail:
    """Everything that a person needs to decide. Raises `NotFound`."""
    resource = load_resource(tx, query.resource_no)
    _, node, visit, part = read_effect_key(query.effect_key)
    which = {"entity_no": resource.resource_no, "node": node, "visit": visit, "part": part}
    effect = one_effect(tx, resource.resource_no, node, visit, part)
    if effect is None:
        raise NotFound(f"there is no effect {query.effect_key}", hint="pwf effects lists them")
    kept = kept_of(tx, which)
    graph = graph_of(tx, resource.definition_id).graph
    line = graph.manager.line if graph.manager is not None else 0
    known = KNOWN[effect.status] + (f": so {effect.settled_by} said" if effect.settled_by else "")
    return EffectDetail(
        effect=effect,
        run=as_run(resource),
        observable=kept.observable,
        request=kept.request,
        output=kept.output,
        made_at=f"{graph.file}:{line}",
        steps=(),
        known=known,
        words=_words(resource, effect, kept.observable) if effect.status == "ambiguous" else (),
    )


def as_run(resource: Resource) -> RunSummary:
    """The owner of an effect in the form that all have."""
    return RunSummary(
        run_id=resource.uid,
        workflow=resource.manager,
        title=resource.key,
        status=STATUS[resource.state],
        revision=resource.revision,
        generation=resource.generation,
        created_ms=resource.created_wall_ms,
        reason=resource.hold_detail,
    )


def _words(resource: Resource, effect: EffectView, observable: bool) -> tuple[Word, ...]:
    then = "its resource is reconciled"
    return words_of(
        effect.effect_key,
        resource.revision,
        happened=f"{then}: its manager gets the output that you give",
        not_happened=f"{then}: where its manager asks for it, it is applied again",
        observe=f"{then}, and its manager's observer is asked once more" if observable else None,
        give_up=f"{then}: its manager is told that it may have happened",
    )


class ResolveResourceEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The same word as on a run's effect, on one of this resource."""

    resource_no: int
    word: ResolveEffect


def resolve_resource_effect(tx: Tx, command: ResolveResourceEffect) -> Done[RunChanged]:
    """Settle it, or have it observed again; then the resource goes on, if no other is ambiguous."""
    return once(tx, command.word.receipt, RunChanged, lambda: (_resolve(tx, command), False))


def _resolve(tx: Tx, command: ResolveResourceEffect) -> RunChanged:
    resource, word = load_resource(tx, command.resource_no), command.word
    part = _meant(tx, resource, word.effect_key)
    key = key_of(resource, part)
    if word.verdict == "not_happened" and has_runner(tx, resource.resource_no):
        raise Rejected(
            f"processes of resource {resource.label} are not proved dead yet, and {key} may still happen"
        )
    place = {**occasion_of(resource).place, "part": part}
    if word.verdict == "observe":
        settled = observe_again(tx, place)
    else:
        said = Said(
            verdict=word.verdict,  # type: ignore[arg-type]  # not observe
            output=word.output,
            ref=word.ref,
            said_by=word.actor,
            note=word.note,
        )
        settled = settle_by_word(tx, place, said)
    if not settled:
        raise Rejected(f"effect {key} has no observer", hint="say happened, not-happened or give-up")
    facts: dict[str, object] = {"verdict": word.verdict, "effect": key}
    facts |= {name: told for name in ("ref", "note") if (told := getattr(word, name)) is not None}
    left = tx.all(Q.ambiguous, {"resource_no": resource.resource_no})
    if resource.hold == "effect_ambiguous" and not left:
        resource.hold = resource.hold_detail = None
    event = Event("effect_resolved", word.actor, facts)
    save(tx, resource, [event], expected_revision=word.expected_revision)
    wake(
        tx, resource.resource_no, "effect", hurried=True
    )  # also while it is reconciled, which may be over before it asks
    now = load_resource(tx, resource.resource_no)
    return RunChanged(run_id=now.uid, status=STATUS[now.state], revision=now.revision)


def _meant(tx: Tx, resource: Resource, key: str | None) -> str:
    """The part that the word is about."""
    open_ = [str(part) for (part,) in tx.all(Q.ambiguous, {"resource_no": resource.resource_no})]
    lists = "pwf effects --ambiguous lists them"
    if not open_:
        raise Rejected(f"resource {resource.label} has no ambiguous effect", hint=lists)
    if key is None and len(open_) > 1:
        keys = ", ".join(key_of(resource, part) for part in open_)
        raise Rejected(f"resource {resource.label} has several ambiguous effects: {keys}", hint=lists)
    part = open_[0] if key is None else read_effect_key(key)[3]
    if part not in open_:
        raise Conflict(f"effect {key_of(resource, part)} is not ambiguous any more", hint=lists)
    return part
