"""`view.subscribe` and `view.unsubscribe`, and the table of what each view shows. Holds no state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple

import msgspec

from pwf.actors.base.changes import ANY_RUN
from pwf.actors.operations.resources import meant, resources_query
from pwf.actors.operations.runs import with_newer_code
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.actors.operations.sessions import meant_session
from pwf.errors import InvalidArgument
from pwf.protocol.operations import (
    VIEWS,
    Nothing,
    RunListPayload,
    SubscribePayload,
    UnsubscribePayload,
    ViewName,
)
from pwf.protocol.resources import ResourceListPayload, ResourceView
from pwf.protocol.views import RunView
from pwf.store.read_resources import ResourceQuery, resource_list, resource_summary, resource_view
from pwf.store.read_runs import RunQuery, list_runs, run_view
from pwf.store.read_sessions import session_number, session_view
from pwf.store.resources import ResourceMeant
from pwf.store.runs import resolve_ref

SUBSCRIPTION_ID_CHARS_MAX = 128


class Shown(NamedTuple):
    """What one subscription follows: the key that wakes it, the state's name among all, how to read it, and whether
    nothing but the store can change it.
    """

    key: str
    state: Hashable
    read: Callable[[], Awaitable[msgspec.Struct]]
    is_calm: Callable[[Any], bool] = lambda _state: False


async def one_run(services: Services, asked: Asked[SubscribePayload]) -> Shown:
    """`run`."""
    run_id = await services.store.read(resolve_ref, asked.run_ref)

    async def read() -> RunView:
        found = await services.store.read(run_view, RunQuery(run_id=run_id, load=services.scheduler.load()))
        return await with_newer_code(services, found)

    return Shown(f"run:{run_id}", run_id, read)


async def list_of_runs(services: Services, asked: Asked[SubscribePayload]) -> Shown:
    """`runs`."""
    query = asked.payload.query or RunListPayload()

    async def read() -> msgspec.Struct:
        return await services.store.read(list_runs, query)

    return Shown(ANY_RUN, msgspec.json.encode(query), read)


async def one_resource(services: Services, asked: Asked[SubscribePayload]) -> Shown:
    """`resource`: the life that is meant now, to its end."""
    if asked.payload.resource is None:
        raise InvalidArgument("the view 'resource' needs a resource")
    found = await services.store.read(resource_summary, meant(asked.payload.resource))

    async def read() -> ResourceView:
        query = ResourceQuery(which=ResourceMeant(uid=found.uid), load=services.scheduler.load())
        return await with_newer_code(services, await services.store.read(resource_view, query))

    return Shown(f"resource:{found.uid}", found.uid, read)


async def list_of_resources(services: Services, asked: Asked[SubscribePayload]) -> Shown:
    """`resources`."""
    payload = asked.payload.resources or ResourceListPayload()
    query = resources_query(payload)

    async def read() -> msgspec.Struct:
        return await services.store.read(resource_list, query)

    return Shown("resources", msgspec.json.encode(payload), read)


async def one_session(services: Services, asked: Asked[SubscribePayload]) -> Shown:
    """`session`."""
    session_id = meant_session(asked.caller.session, asked.payload.session)
    number = await services.store.read(session_number, session_id)

    async def read() -> msgspec.Struct:
        return await services.store.read(session_view, session_id)

    return Shown(f"session:{number}", session_id, read, is_calm=lambda view: view.run is None)


#: How each of `VIEWS` is found. A new view is a row there, for clients, and one here.
SHOWN: dict[ViewName, Callable[[Services, Asked[SubscribePayload]], Awaitable[Shown]]] = {
    "run": one_run,
    "runs": list_of_runs,
    "resource": one_resource,
    "resources": list_of_resources,
    "session": one_session,
}


async def subscribe(services: Services, asked: Asked[SubscribePayload]) -> Answer:
    """`view.subscribe`: snapshot, then patches, on this connection."""
    payload = asked.payload
    if not 1 <= len(payload.id) <= SUBSCRIPTION_ID_CHARS_MAX:
        raise InvalidArgument(f"a subscription's id has 1 to {SUBSCRIPTION_ID_CHARS_MAX} characters")
    if VIEWS[payload.view].needs_run and not asked.request.run_id:
        raise InvalidArgument(f"the view {payload.view!r} needs a run_id")
    shown = await SHOWN[payload.view](services, asked)
    state = (payload.view, shown.state)
    await services.views.subscribe(asked.caller, payload.id, shown.key, state, shown.read, shown.is_calm)
    return Answer(Nothing())


async def unsubscribe(services: Services, asked: Asked[UnsubscribePayload]) -> Answer:
    """`view.unsubscribe`."""
    await services.views.unsubscribe(asked.caller, asked.payload.id)
    return Answer(Nothing())


HANDLERS: dict[str, OperationHandler] = {
    "view.subscribe": subscribe,
    "view.unsubscribe": unsubscribe,
}
