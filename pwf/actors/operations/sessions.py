"""Operations of sessions of agents. Holds no state.

Promises: what acts for a session is the connection that has attached it, whatever a payload says; no process of a run
attaches one.
"""

from __future__ import annotations

from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.actors.sessions.session_coordinator import SessionCoordinator, SessionHandle
from pwf.errors import InvalidArgument, Rejected
from pwf.ids import check_key
from pwf.protocol.sessions import AttachPayload, SessionListPayload, SessionRef
from pwf.store.sessions import AttachSession, attach, attached, session_list, session_view

#: What the connection of a session may ask for; all else is for people and their programs, on connections of their own.
SESSION_MAY = frozenset(
    {"daemon.status", "workflow.list", "workflow.describe", "session.attach", "session.view"}
)


def check_session(session: SessionHandle, operation: str) -> None:
    """Refuse what a session may not do, and everything once another connection has attached it."""
    session.check()
    if operation not in SESSION_MAY:
        raise Rejected(
            f"a session may not ask for {operation}",
            hint=f"it may ask for: {', '.join(sorted(SESSION_MAY))}",
        )


async def attach_session(services: Services, asked: Asked[AttachPayload]) -> Answer:
    """`session.attach`: from now on this connection acts for the session, and for nothing else."""
    caller, payload = asked.caller, asked.payload
    check_key(payload.session_id, "session id")
    if caller.session is not None:
        caller.session.check()
        if caller.session.session_id != payload.session_id:
            raise Rejected(
                f"this connection acts for session {caller.session.session_id!r}",
                hint="attach another session on a connection of its own",
            )
        return Answer(attached(caller.session.fence), adopted=True)
    if caller.begin is None:
        raise Rejected("a session needs a connection that stays")
    await services.people.check_no_run(caller, "attach a session")
    command = AttachSession(session_id=payload.session_id, client=payload.client or caller.client_id)
    fence = await services.store.write(attach, command)
    coordinator = SessionCoordinator(services.store, fence, services.attached, caller.peer, services.log)
    caller.session = coordinator.handle
    caller.begin(coordinator.run)
    return Answer(attached(fence))


async def list_sessions(services: Services, asked: Asked[SessionListPayload]) -> Answer:
    """`session.list`."""
    return Answer(await services.store.read(session_list, asked.payload))


async def view_session(services: Services, asked: Asked[SessionRef]) -> Answer:
    """`session.view`: a session sees its own only."""
    return Answer(await services.store.read(session_view, meant(asked.caller.session, asked.payload)))


def meant(own: SessionHandle | None, ref: SessionRef) -> str:
    """The session that a payload names, or that the connection is for."""
    if own is not None:
        if ref.session_id not in (None, own.session_id):
            raise InvalidArgument("a session sees itself only")
        return own.session_id
    if ref.session_id is None:
        raise InvalidArgument("which session? this connection has attached none")
    return ref.session_id


HANDLERS: dict[str, OperationHandler] = {
    "session.attach": attach_session,
    "session.list": list_sessions,
    "session.view": view_session,
}
