"""Operations of sessions of agents. Holds no state.

Promises: what acts for a session is the connection that has attached it, whatever a payload says; it sees and changes
the session's own runs only, and does nothing that only a person may; no process of a run attaches a session.
"""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from pwf.actors.base.apart import apart
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.actors.sessions.session_coordinator import Attachment, SessionCoordinator, SessionHandle
from pwf.errors import InvalidArgument, Rejected
from pwf.ids import check_key
from pwf.protocol.operations import SubscribePayload
from pwf.protocol.sessions import (
    AttachPayload,
    ClearPayload,
    ReportPayload,
    SessionListPayload,
    SessionRef,
    TurnPayload,
)
from pwf.protocol.transcripts import ENTRY_BYTES_MAX, RecordPayload, TranscriptPayload
from pwf.store.at_run import AtRun, at_run
from pwf.store.read_sessions import Own, own_run, session_list, session_view
from pwf.store.session_turns import Report, ReportTurn, report, report_turn
from pwf.store.sessions import AttachSession, ClearRun, attach, attached, clear
from pwf.store.transcripts import ReadTranscript, Record, record, transcript
from pwf.values import parse_canonical

#: What the connection of a session may ask for; all else is for people and their programs, on connections of their own.
SESSION_MAY = frozenset(
    {
        "daemon.status",
        "workflow.list",
        "workflow.describe",
        "run.start",
        "run.status",
        "run.view",
        "run.events",
        "run.wait",
        "run.pause",
        "run.resume",
        "run.cancel",
        "run.restart",
        "follow_up.queue",
        "follow_up.remove",
        "request.submit",
        "request.update",
        "request.assistant",
        "content.put",
        "content.read",
        "session.attach",
        "session.view",
        "session.report",
        "session.turn",
        "session.record",
        "session.transcript",
        "session.clear",
        "view.subscribe",
        "view.unsubscribe",
    }
)
VIEWS_MAY = frozenset({"run", "session"})


def check_session(session: SessionHandle, operation: str) -> None:
    """Refuse what a session may not do, and everything once another connection has attached it."""
    session.check()
    if operation not in SESSION_MAY:
        raise Rejected(
            f"a session may not ask for {operation}",
            hint=f"it may ask for: {', '.join(sorted(SESSION_MAY))}",
        )


async def check_own(services: Services, asked: Asked[Any]) -> None:
    """Another's run is not there for a session."""
    session = asked.caller.session
    if session is None:
        return
    if isinstance(asked.payload, SubscribePayload) and asked.payload.view not in VIEWS_MAY:
        raise Rejected(f"a session may not follow the view {asked.payload.view!r}")
    if asked.request.run_id is not None:
        await services.store.read(own_run, Own(fence=session.fence, ref=asked.request.run_id))


async def attach_session(services: Services, asked: Asked[AttachPayload]) -> Answer:
    """`session.attach`: from now on this connection acts for the session, and for nothing else."""
    caller, payload = asked.caller, asked.payload
    check_key(payload.session_id, "session id")
    if caller.session is not None:
        if caller.session.session_id != payload.session_id:
            raise Rejected(
                f"this connection acts for session {caller.session.session_id!r}",
                hint="attach another session on a connection of its own",
            )
        return Answer(attached(caller.session.fence), adopted=True)
    if caller.begin is None:
        raise Rejected("a session needs a connection that stays")
    attaching = caller.attaching = trio.Event()
    try:
        await services.people.check_no_run(caller, "attach a session")
        host_pid = payload.host_pid
        agent = caller.peer if host_pid is None else await services.people.ancestor(caller, host_pid)
        command = AttachSession(session_id=payload.session_id, client=payload.client or caller.client_id)
        fence = await services.store.write(attach, command)
        attachment = None
        if agent is not None and caller.peer is not None:
            attachment = Attachment(payload.session_id, agent, caller.peer)
        coordinator = SessionCoordinator(
            services.store, fence, services.attached, attachment, services.claim.claim.epoch, services.log
        )
        caller.session = coordinator.handle
        caller.begin(coordinator.run)
    finally:
        caller.attaching = None
        attaching.set()
    return Answer(attached(fence))


async def list_sessions(services: Services, asked: Asked[SessionListPayload]) -> Answer:
    """`session.list`."""
    return Answer(await services.store.read(session_list, asked.payload))


async def view_session(services: Services, asked: Asked[SessionRef]) -> Answer:
    """`session.view`: a session sees its own only."""
    session_id = meant_session(asked.caller.session, asked.payload.session_id)
    return Answer(await services.store.read(session_view, session_id))


async def report_session(services: Services, asked: Asked[ReportPayload]) -> Answer:
    """`session.report`: answered with what there is for the session now."""
    session = acting(asked)
    await session.do(report, Report(fence=session.fence, said=asked.payload))
    return Answer(await services.store.read(session_view, session.session_id))


async def report_session_turn(services: Services, asked: Asked[TurnPayload]) -> Answer:
    """`session.turn`."""
    session = acting(asked)
    return Answer(await session.do(report_turn, ReportTurn(fence=session.fence, said=asked.payload)))


async def record_entries(services: Services, asked: Asked[RecordPayload]) -> Answer:
    """`session.record`: also about a run that has ended."""
    session, said = acting(asked), asked.payload
    said = await apart(sum(len(bytes(entry.data)) for entry in said.entries), lambda: _canonical(said))
    return Answer(await session.do(record, Record(fence=session.fence, said=said)))


def _canonical(said: RecordPayload) -> RecordPayload:
    entries = []
    for number, entry in enumerate(said.entries, said.at):
        data = parse_canonical(bytes(entry.data), limit=ENTRY_BYTES_MAX, what=f"entry {number}")
        entries.append(msgspec.structs.replace(entry, data=msgspec.Raw(data)))
    return msgspec.structs.replace(said, entries=tuple(entries))


async def read_transcript(services: Services, asked: Asked[TranscriptPayload]) -> Answer:
    """`session.transcript`: what the session of a run has recorded about it."""
    page = asked.payload
    query = AtRun(asked.run_ref, transcript, lambda run_id: ReadTranscript(run_id=run_id, asked=page))
    return Answer(await services.store.read(at_run, query))


async def clear_session(services: Services, asked: Asked[ClearPayload]) -> Answer:
    """`session.clear`."""
    session = acting(asked)
    return Answer(await session.do(clear, ClearRun(fence=session.fence, run_id=asked.payload.run_id)))


def acting(asked: Asked[Any]) -> SessionHandle:
    """The session that the connection acts for."""
    if asked.caller.session is None:
        raise Rejected(
            f"{asked.request.operation} is for a session, and this connection has attached none",
            hint="ask for session.attach first, on this connection",
        )
    return asked.caller.session


def meant_session(own: SessionHandle | None, named: str | None) -> str:
    """The session that a payload names, or that the connection is for."""
    if own is not None:
        if named not in (None, own.session_id):
            raise InvalidArgument("a session sees itself only")
        return own.session_id
    if named is None:
        raise InvalidArgument("which session? this connection has attached none")
    return named


HANDLERS: dict[str, OperationHandler] = {
    "session.attach": attach_session,
    "session.list": list_sessions,
    "session.view": view_session,
    "session.report": report_session,
    "session.turn": report_session_turn,
    "session.record": record_entries,
    "session.transcript": read_transcript,
    "session.clear": clear_session,
}
