"""Managed resources as clients see them: a line of a list, the whole document, the history."""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.protocol.resources import (
    RESOURCES_PAGE,
    ResourceEventPage,
    ResourceEventsPayload,
    ResourceHold,
    ResourceList,
    ResourceListPayload,
    ResourceSummary,
    ResourceView,
)
from pwf.protocol.runner import Value
from pwf.store import moves
from pwf.store.children import children_of
from pwf.store.effect_rows import effects_of_entity
from pwf.store.events import events_of_entity
from pwf.store.explain import Load
from pwf.store.explain_resource import explain_resource
from pwf.store.queries import load_queries
from pwf.store.resource_state import READY, Resource, load_resource
from pwf.store.resources import ResourceMeant, find_resource
from pwf.store.runs import environment_of
from pwf.store.tx import Tx
from pwf.store.values import value_of, value_size

Q = load_queries(__file__)

PAGE_MAX = 1_000
LOOKED_MAX = 10_000  # rows that a list of some states looks at


def summary_of(resource: Resource, now_ms: int, elapsed_ms: int, boot_id: str) -> ResourceSummary:
    """The line of a list."""
    ready = resource.condition(READY)
    due_ms = None
    if resource.queue_state in ("later", "ready"):
        due_ms = resource.due_wall_ms
        if resource.due_elapsed_ms is not None and resource.due_boot_id == boot_id:
            due_ms = now_ms + max(0, resource.due_elapsed_ms - elapsed_ms)
    return ResourceSummary(
        uid=resource.uid,
        manager=resource.manager,
        key=resource.key,
        root=resource.root,
        state=resource.state,
        resource_version=resource.revision,
        generation=resource.spec_generation,
        observed_generation=resource.observed_generation,
        ready="Unknown" if ready is None else ready.status,
        reason="" if ready is None else ready.reason,
        message="" if ready is None else ready.message,
        hold=_hold(resource),
        hold_detail=resource.hold_detail,
        due_ms=due_ms,
        failures=resource.failures,
        deleting_ms=resource.deleting_wall_ms,
        created_ms=resource.created_wall_ms,
        gone_ms=resource.gone_wall_ms,
    )


def _hold(resource: Resource) -> ResourceHold | None:
    if resource.hold is not None:
        return resource.hold  # type: ignore[return-value]
    return "paused" if resource.paused else None


class ResourceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One resource, with what its reason depends on besides its rows."""

    which: ResourceMeant
    load: Load = Load()


def resource_view(tx: Tx, query: ResourceQuery) -> ResourceView:
    """`resource.get`."""
    resource = find_resource(tx, query.which)
    return _view(tx, resource, query.load)


def resource_summary(tx: Tx, which: ResourceMeant) -> ResourceSummary:
    """Only its line."""
    return _summary(tx, find_resource(tx, which))


def _summary(tx: Tx, resource: Resource) -> ResourceSummary:
    found = summary_of(resource, tx.now.wall_ms, tx.now.elapsed_ms, tx.now.boot_id)
    child = tx.one(Q.child, {"resource_no": resource.resource_no})
    return found if child is None else msgspec.structs.replace(found, child=str(child[0]))


def _view(tx: Tx, resource: Resource, load: Load) -> ResourceView:
    summary = _summary(tx, resource)
    children = children_of(tx, resource.resource_no, RESOURCES_PAGE)
    row = tx.one(Q.definition, {"definition_id": resource.definition_id})
    path = "" if row is None else str(row[0])
    return ResourceView(
        summary=summary,
        explanation=explain_resource(resource, summary, load, tx.now.wall_ms),
        spec=_value(tx, resource.spec, resource.spec_digest),
        status=_value(tx, resource.status, resource.status_digest),
        conditions=tuple(resource.conditions),
        finalizers=tuple(resource.finalizers),
        children=children,
        effects=effects_of_entity(tx, resource.resource_no),
        reconciles=resource.reconciles,
        reconciled_ms=resource.reconciled_wall_ms,
        error=moves.decode_error(resource.error),
        controls=_controls(resource),
        path=path,
        definition_id=resource.definition_id,
        interpreter=environment_of(tx, resource.environment_id).interpreter,
    )


def _value(tx: Tx, inline: bytes | None, digest: str | None) -> Value:
    return value_of(inline, digest, None if digest is None else value_size(tx, digest))


def _controls(resource: Resource) -> tuple[str, ...]:
    if resource.gone_wall_ms is not None:
        return ()
    found = ["resume"] if resource.is_kept_back and resource.hold != "effect_ambiguous" else []
    if not resource.paused:
        found.append("pause")
        if resource.hold in (None, "effect_ambiguous"):
            found.append("reconcile")
    found.append("abandon" if resource.deleting_wall_ms is not None else "delete")
    return tuple(found)


class ResourcesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`root`: only those of this project."""

    payload: ResourceListPayload
    root: str | None = None


def resource_list(tx: Tx, query: ResourcesQuery) -> ResourceList:
    """Newest first."""
    asked = query.payload
    limit = max(1, min(asked.limit, PAGE_MAX))
    before = asked.cursor if asked.cursor is not None else 2**62
    wants_gone = "gone" in asked.states
    found: list[ResourceSummary] = []
    looked = 0
    while len(found) < limit and looked < LOOKED_MAX:
        facts = {"before": before, "limit": RESOURCES_PAGE}
        rows = tx.all(Q.newest if wants_gone else Q.newest_alive, facts)
        for number, manager, root in rows:
            before, looked = int(number), looked + 1
            if (asked.manager or manager) != manager or (query.root or root) != root:
                continue
            summary = _summary(tx, load_resource(tx, before))
            if not asked.states or summary.state in asked.states:
                found.append(summary)
                if len(found) == limit:
                    break
        if len(rows) < RESOURCES_PAGE and (not rows or before == int(rows[-1][0])):
            return ResourceList(resources=tuple(found))
    return ResourceList(resources=tuple(found), next_cursor=before)


class ResourceEventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    which: ResourceMeant
    payload: ResourceEventsPayload


def resource_events(tx: Tx, query: ResourceEventsQuery) -> ResourceEventPage:
    """The history, oldest first."""
    resource = find_resource(tx, query.which)
    limit = max(1, min(query.payload.limit, PAGE_MAX))
    events = events_of_entity(tx, resource.resource_no, query.payload.after_revision, limit)
    more = events[-1].revision if len(events) == limit else None
    return ResourceEventPage(uid=resource.uid, events=events, next_after=more)


class OfResource(msgspec.Struct, frozen=True, kw_only=True):
    """A value by its digest, of a resource by its number."""

    resource_no: int
    digest: str


def resource_refers(tx: Tx, query: OfResource) -> bool:
    """Whether the value is the resource's, or one of its children's outputs."""
    return tx.one(Q.refers, {"resource_no": query.resource_no, "digest": query.digest}) is not None


class CountsByState(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of `daemon.status`. `live`: being reconciled now."""

    alive: int
    queued: int
    live: int
    kept_back: int


def resource_counts(tx: Tx, _: Any = None) -> CountsByState:
    """Counts that cost no look at the resources themselves."""
    alive, due, live, kept_back = tx.one(Q.counts) or (0, 0, 0, 0)
    return CountsByState(alive=alive, queued=due, live=live, kept_back=kept_back)


def managed_counts(tx: Tx, root: str) -> dict[str, int]:
    """How many living resources each manager of a project has."""
    return {str(manager): int(count) for manager, count in tx.all(Q.by_manager, {"root": root})}
