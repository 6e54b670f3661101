"""The end of a managed resource: it goes once nothing is left to finalize, or when a person lets go of it.

Promises: a resource that goes leaves nothing open in the store; its row stays, as gone, until retention takes it.
"""

from __future__ import annotations

from pwf.store.children import has_child
from pwf.store.queries import load_queries
from pwf.store.resource_queue import dequeue
from pwf.store.resource_state import Event, Resource, set_finalizers
from pwf.store.tx import Tx

Q = load_queries(__file__)


def try_go(tx: Tx, resource: Resource, *, proved: bool) -> list[Event]:
    """Let a resource go that is being deleted, if nothing keeps it; the caller saves it with these events.

    `proved`: no process of it can do anything any more.
    """
    if resource.deleting_wall_ms is None or resource.finalizers or resource.is_live or not proved:
        return []
    if resource.children == "cancel" and has_child(tx, resource.resource_no):
        return []  # those that were there were cancelled; this one was started to clean up
    if has_unsettled(tx, resource.resource_no):
        return []
    return _go(tx, resource, "daemon", {})


def has_unsettled(tx: Tx, resource_no: int) -> bool:
    """Whether nobody knows yet of an effect of it whether that happened."""
    return tx.one(Q.effect_unsettled, {"resource_no": resource_no}) is not None


def abandon(tx: Tx, resource: Resource, actor: str, note: str | None) -> list[Event]:
    """Let go of it whatever is left, and say what that is."""
    facts: dict[str, object] = {"not_finalized": list(resource.finalizers)}
    unsettled = [str(key) for (key,) in tx.all(Q.unsettled_keys, {"resource_no": resource.resource_no})]
    if unsettled:
        facts["unsettled"] = unsettled
        tx.run(Q.abandon_effects, {"resource_no": resource.resource_no, "by": actor, "now": tx.now.wall_ms})
    if note:
        facts["note"] = note
    return [Event("abandoned", actor, facts), *_go(tx, resource, actor, {})]


def _go(tx: Tx, resource: Resource, actor: str, facts: dict[str, object]) -> list[Event]:
    set_finalizers(tx, resource, [])
    dequeue(tx, resource)
    tx.release_lease(resource.resource_no)
    resource.gone_wall_ms = tx.now.wall_ms
    resource.hold = resource.hold_detail = None
    resource.paused = 0
    return [Event("gone", actor, facts)]
