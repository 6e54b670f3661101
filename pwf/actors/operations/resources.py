"""Operations on managed resources and their managers. Holds no state.

Promises: nothing is applied before its manager's code is resolved and the spec is checked against it; an apply is
refused when that code has changed meanwhile; only a person lets go of what was not finalized.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import trio

from pwf.actors.base.apart import apart
from pwf.actors.base.changes import REREAD_S
from pwf.actors.code.definitions import Known
from pwf.actors.operations.contents import value_of
from pwf.actors.operations.runs import with_newer_code
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.actors.operations.start import missing
from pwf.actors.operations.workflows import NO_WORKFLOW, lines_of
from pwf.discovery import Found, list_manager_files, project_root
from pwf.errors import Conflict, PwfError
from pwf.protocol.origin import Origin
from pwf.protocol.resources import (
    ApplyPayload,
    DeletePayload,
    ManagerLine,
    ManagerList,
    ManagerListPayload,
    ResourceChanged,
    ResourceEventsPayload,
    ResourceListPayload,
    ResourceRef,
    ResourceSummary,
    ResourceWaited,
    ResourceWaitPayload,
)
from pwf.store.children import stops_of
from pwf.store.once import Done
from pwf.store.read_resources import (
    ResourceEventsQuery,
    ResourceQuery,
    ResourcesQuery,
    managed_counts,
    resource_events,
    resource_list,
    resource_summary,
    resource_view,
)
from pwf.store.resources import (
    ApplyResource,
    ControlResource,
    ResourceMeant,
    apply_resource,
    delete_resource,
    pause_resource,
    reconcile_resource,
    resume_resource,
)
from pwf.store.tx import Tx

WAIT_MS_MAX = 24 * 3_600_000

#: States in which nothing goes on by itself.
NEED_PERSON = frozenset({"paused", "ambiguous", "held"})
PARKED = NEED_PERSON | {"settled", "gone"}


async def apply(services: Services, asked: Asked[ApplyPayload]) -> Answer:
    """`resource.apply`."""
    payload = asked.payload
    spec = await value_of(services, asked, "spec")
    known = await services.definitions.manager(payload.manager, payload.origin)
    graph = known.definition.graph
    assert graph.manager is not None, "a manager's file has a manager"
    warnings = (*known.definition.warnings, *await missing(services, known, payload.origin))
    schema, name = graph.manager.spec_schema, graph.name
    spec = await apart(len(spec), lambda: services.schemas.check_input(name, schema, spec))
    await _refuse_changed(services, payload, known)
    command = ApplyResource(
        code=known.code,
        environment=known.environment,
        manager=name,
        key=payload.key,
        spec=spec,
        dry_run=payload.dry_run,
        expected_revision=asked.request.expected_revision,
        receipt=None if payload.dry_run else await asked.make_receipt(),
        actor=asked.actor,
        state_bytes_max=services.config.max_state_size,
    )
    done = await services.store.write(apply_resource, command)
    services.scheduler.wake()
    result = done.unwrap()
    if warnings:
        result = msgspec.structs.replace(result, warnings=warnings)
    return Answer(result, done.adopted)


async def _refuse_changed(services: Services, payload: ApplyPayload, known: Known) -> None:
    """What is committed is what was checked: code that has changed meanwhile is resolved by the next try."""
    now = await services.definitions.manager(payload.manager, payload.origin)
    if now.definition.definition_id != known.definition.definition_id:
        raise Conflict(
            f"the file of manager {payload.manager!r} has changed while its spec was checked",
            hint="apply it again",
        )


async def list_(services: Services, asked: Asked[ResourceListPayload]) -> Answer:
    """`resource.list`."""
    return Answer(await services.store.read(resource_list, resources_query(asked.payload)))


def resources_query(payload: ResourceListPayload) -> ResourcesQuery:
    """The same for the store, which knows no folders."""
    root = None if payload.cwd is None else str(project_root(Path(payload.cwd)))
    return ResourcesQuery(payload=payload, root=root)


async def get(services: Services, asked: Asked[ResourceRef]) -> Answer:
    """`resource.get`."""
    query = ResourceQuery(which=meant(asked.payload), load=services.scheduler.load())
    return Answer(await with_newer_code(services, await services.store.read(resource_view, query)))


async def events(services: Services, asked: Asked[ResourceEventsPayload]) -> Answer:
    """`resource.events`."""
    query = ResourceEventsQuery(which=meant(asked.payload), payload=asked.payload)
    return Answer(await services.store.read(resource_events, query))


async def reconcile(services: Services, asked: Asked[ResourceRef]) -> Answer:
    """`resource.reconcile`."""
    return await _control(services, asked, reconcile_resource)


async def pause(services: Services, asked: Asked[ResourceRef]) -> Answer:
    """`resource.pause`."""
    return await _control(services, asked, pause_resource)


async def resume(services: Services, asked: Asked[ResourceRef]) -> Answer:
    """`resource.resume`."""
    return await _control(services, asked, resume_resource)


async def delete(services: Services, asked: Asked[DeletePayload]) -> Answer:
    """`resource.delete`."""
    if asked.payload.abandon:
        await services.people.check(asked.caller, "abandon a resource")
    answer = await _control(services, asked, delete_resource, delete=asked.payload)
    changed: Any = answer.result
    for stop in await services.store.read(stops_of, changed.uid):
        await services.scheduler.stop_run(stop.run_id, stop.revision)
    if changed.state == "gone":
        await services.scheduler.stop_reconcile(changed.uid, changed.resource_version)
    return answer


async def _control(
    services: Services,
    asked: Asked[ResourceRef] | Asked[DeletePayload],
    handler: Callable[[Tx, ControlResource], Done[ResourceChanged]],
    delete: DeletePayload | None = None,
) -> Answer:
    command = ControlResource(
        which=meant(asked.payload),
        actor=asked.actor,
        expected_revision=asked.request.expected_revision,
        delete=delete,
        receipt=await asked.make_receipt(),
    )
    done = await services.store.write(handler, command)
    services.scheduler.wake()
    return Answer(done.unwrap(), done.adopted)


async def wait(services: Services, asked: Asked[ResourceWaitPayload]) -> Answer:
    """`resource.wait`: until it is settled, needs a person, or is gone. Woken by commits; re-reads at the 5 s bound."""
    payload = asked.payload
    wait_ms = WAIT_MS_MAX if payload.timeout_ms is None else max(0, min(payload.timeout_ms, WAIT_MS_MAX))
    ends = trio.current_time() + wait_ms / 1_000
    which = meant(payload)
    found = await services.store.glance(resource_summary, which)
    which = ResourceMeant(uid=found.uid)  # this life, whatever is applied under its name later
    with services.changes.watch(f"resource:{found.uid}") as watch:
        while True:
            found = await services.store.glance(resource_summary, which)
            left_s = ends - trio.current_time()
            if (done := has_arrived(found, payload.until)) or left_s <= 0:
                return Answer(ResourceWaited(summary=found, done=done))
            await watch.wait(min(REREAD_S, left_s))


def has_arrived(summary: ResourceSummary, until: str) -> bool:
    """Whether a wait is over. Where a person is needed it is, whatever was waited for."""
    if until == "gone":
        return summary.state == "gone" or summary.state in NEED_PERSON
    if summary.state == "settled":
        return summary.deleting_ms is None and summary.observed_generation == summary.generation
    return summary.state in PARKED


def meant(ref: ResourceRef) -> ResourceMeant:
    """What a client names, for the store."""
    root = str(project_root(Path(ref.cwd))) if ref.cwd else ""
    return ResourceMeant(manager=ref.manager, key=ref.key, uid=ref.uid, root=root)


# --- managers -------------------------------------------------------------------------------------------------


async def managers(services: Services, asked: Asked[ManagerListPayload]) -> Answer:
    """`manager.list`: every file of a manager that is known here, with what is wrong where it is."""
    origin = asked.payload.origin
    files = await trio.to_thread.run_sync(list_manager_files, Path(origin.cwd), services.places.config.parent)
    root = str(project_root(Path(origin.cwd)))
    counts = await services.store.read(managed_counts, root)
    lines = await lines_of(files, lambda found: _line(services, found, origin, counts.get(found.name, 0)))
    return Answer(ManagerList(root=root, managers=lines))


async def _line(services: Services, found: Found, origin: Origin, resources: int) -> ManagerLine | None:
    place: dict[str, Any] = {
        "name": found.name,
        "path": str(found.path),
        "scope": "user" if found.scope == "user" else "project",
        "resources": resources,
    }
    try:
        graph = (await services.definitions.at(found, origin, "resources")).definition.graph
    except PwfError as error:
        if error.code == NO_WORKFLOW:
            return None
        return ManagerLine(**place, error=error.message, hint=error.hint)
    assert graph.manager is not None, "a manager's file has a manager"
    return ManagerLine(**place, doc=graph.doc, every_ms=graph.manager.every_ms, watches=graph.manager.watches)


HANDLERS: dict[str, OperationHandler] = {
    "resource.apply": apply,
    "resource.list": list_,
    "resource.get": get,
    "resource.events": events,
    "resource.reconcile": reconcile,
    "resource.pause": pause,
    "resource.resume": resume,
    "resource.delete": delete,
    "resource.wait": wait,
    "manager.list": managers,
}
