"""Sessions of agents: attached, let go and listed.

A session is an entity without a lease: its generation is its epoch, and an attach takes the next one, whoever had it.
What acts for a session passes `hold` first, in its own transaction.
"""

from __future__ import annotations

import msgspec

from pwf.errors import ClaimLost, NotFound
from pwf.protocol.sessions import SessionAttached, SessionLine, SessionList, SessionListPayload, SessionView
from pwf.store.queries import load_queries
from pwf.store.tx import Row, Tx, subject

Q = load_queries(__file__)

KIND = "session"
PAGE_MAX = 1_000
BEFORE_ALL = 2**53


class SessionFence(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection acts for: a session, in the epoch that its attach was given."""

    session_no: int
    session_id: str
    epoch: int


class AttachSession(msgspec.Struct, frozen=True, kw_only=True):
    """A connection takes a session over, which is made if there is none of that id."""

    session_id: str
    client: str


def attach(tx: Tx, command: AttachSession) -> SessionFence:
    """The next epoch: whatever acts in an earlier one fails from here on."""
    row = tx.one(Q.find, {"session_id": command.session_id})
    facts = {"client": command.client, "now": tx.now.wall_ms}
    if row is None:
        number = tx.create_entity(KIND, command.session_id)
        tx.event(number, 1, "created", "client", 0, {})
        tx.run(Q.add, {**facts, "session_no": number, "session_id": command.session_id})
    else:
        number = int(row[0])
        tx.run(Q.attach, {**facts, "session_no": number})
    # No lease stays: nobody's is waited for, and no attach changes what people see of a session but its epoch.
    epoch = tx.take_lease(number, token=tx.ids.token(), owner=KIND, until_awake_ms=0, counted=False)[1]
    tx.release_lease(number)
    _changed(tx, command.session_id)
    return SessionFence(session_no=number, session_id=command.session_id, epoch=epoch)


def attached(fence: SessionFence) -> SessionAttached:
    """The answer to an attach."""
    return SessionAttached(session_id=fence.session_id, epoch=fence.epoch)


def detach(tx: Tx, fence: SessionFence) -> None:
    """Its connection has ended. One of an earlier epoch changes nothing."""
    which = {"session_no": fence.session_no, "epoch": fence.epoch, "now": tx.now.wall_ms}
    if tx.run(Q.detach, which):
        _changed(tx, fence.session_id)


def hold(tx: Tx, fence: SessionFence) -> None:
    """Raise `ClaimLost` unless the epoch is still the session's."""
    if tx.one(Q.holds, {"session_no": fence.session_no, "epoch": fence.epoch}) is None:
        raise ClaimLost(
            f"session {fence.session_id!r} was attached by another connection",
            hint="attach it again; only one connection acts for a session",
        )


def _changed(tx: Tx, session_id: str) -> None:
    tx.changed(subject(KIND, session_id))
    tx.changed("sessions")


# --- read -----------------------------------------------------------------------------------------------------


def session_list(tx: Tx, query: SessionListPayload) -> SessionList:
    """A page of the sessions, the one that was made last first."""
    limit = max(1, min(query.limit, PAGE_MAX))
    facts = {"before": BEFORE_ALL if query.cursor is None else query.cursor, "limit": limit}
    rows = tx.all(Q.newest_connected if query.connected else Q.newest, facts)
    following = int(rows[-1][0]) if len(rows) == limit else None
    return SessionList(sessions=tuple(_line(row) for row in rows), next_cursor=following)


def _line(row: Row) -> SessionLine:
    _number, session_id, epoch, connected, client, idle, created_ms, seen_ms = row
    return SessionLine(
        session_id=session_id,
        epoch=epoch,
        connected=bool(connected),
        client=client,
        idle=bool(idle),
        created_ms=created_ms,
        seen_ms=seen_ms,
    )


def session_view(tx: Tx, session_id: str) -> SessionView:
    """What there is for a session; `NotFound` when nobody has attached it."""
    row = tx.one(Q.find, {"session_id": session_id})
    if row is None:
        raise NotFound(
            f"there is no session {session_id!r}", hint="pwf sessions lists those that were attached"
        )
    return SessionView(session_id=session_id, epoch=row[1], connected=bool(row[2]), reported=bool(row[3]))
