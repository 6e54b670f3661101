"""Managed resources, as one kind of entity: what recovery, restore, retention and verify do with them."""

from __future__ import annotations

from functools import partial

from pwf.protocol.runner import StepError
from pwf.store.entity_kinds import EntityKind, Retention, RunnerGone
from pwf.store.queries import load_queries
from pwf.store.reconcile_result import failed, hold_unreaped, put_back
from pwf.store.resource_broken import isolated_resource
from pwf.store.resource_end import has_unsettled
from pwf.store.resource_queue import dequeue
from pwf.store.resource_rules import RESOURCE_RULES
from pwf.store.resource_state import Event, drop_finalizers, load_resource, save
from pwf.store.resource_wake import KIND, take_from_queue
from pwf.store.tx import Tx

Q = load_queries(__file__)

COPIED = "its database was copied or restored, and what it did after that is unknown"
DIED = StepError(code="runner_crashed", message="the process that reconciled it ended without a result")


def _settle(tx: Tx, gone: RunnerGone) -> None:
    """The process of a reconcile has ended without a result that counts: it is put back, or has failed."""
    isolated_resource(tx, gone.entity_no, partial(_settle_one, tx, gone))
    tx.changed("queue")  # one whose process was not proved dead before may be admitted now


def _settle_one(tx: Tx, gone: RunnerGone) -> None:
    resource = load_resource(tx, gone.entity_no)
    if resource.generation != gone.generation or resource.gone_wall_ms is not None:
        return
    if not gone.proved:
        if resource.hold is None:
            hold_unreaped(tx, resource)
    elif not resource.is_live:
        return
    elif gone.stopped:
        put_back(tx, resource)
    else:
        failed(tx, resource, gone.error or DIED)


def _hold_copied(tx: Tx) -> None:
    """Keep back every resource that would go on: what happened after the copy was made is unknown."""
    for (number,) in tx.all(Q.not_gone):
        isolated_resource(tx, int(number), partial(_hold_one, tx, int(number)))


def _hold_one(tx: Tx, number: int) -> None:
    resource = load_resource(tx, number)
    before = f" (before, it was held as {resource.hold})" if resource.hold is not None else ""
    resource.hold, resource.hold_detail = "restored", COPIED + before
    resource.paused = 0  # whoever resumes it has looked
    dequeue(tx, resource)
    save(tx, resource, [Event("held", "daemon", {"hold": "restored"})])


def _needed(tx: Tx, number: int, _uid: str) -> str | None:
    if has_unsettled(tx, number):
        return "an effect is unsettled"
    if tx.one(Q.child, {"resource_no": number}) is not None:
        return "a run that it started is kept"
    return None


def _remove(tx: Tx, number: int, uid: str) -> None:
    which = {"resource_no": number}
    drop_finalizers(tx, number)  # what is there all the same must not keep the walk from going on
    take_from_queue(tx, number)
    for sql in (Q.drop_effects, Q.drop_children):
        tx.run(sql, which)
    removed = tx.run(Q.drop_resource, which)
    assert removed == 1, f"resource {uid} is not gone"
    tx.changed("resources")


RESOURCE = EntityKind(
    name=KIND,
    table="resources",
    key="resource_no",
    settle=_settle,
    unattended=Q.unattended,
    hold_copied=_hold_copied,
    retention=Retention(ended=Q.ended_before, group=Q.itself, needed=_needed, remove=_remove),
    rules=RESOURCE_RULES,
)
