"""Sessions of agents: attached and let go.

A session is an entity without a lease: its generation is its epoch, and an attach takes the next one, whoever had it.
What acts for a session passes `hold` first, in its own transaction.
"""

from __future__ import annotations

import msgspec

from pwf.errors import ClaimLost, NotFound, Rejected
from pwf.protocol.sessions import Cleared, SessionAttached
from pwf.store import session_clock
from pwf.store.queries import load_queries
from pwf.store.session_messages import changed
from pwf.store.tx import Tx

Q = load_queries(__file__)

KIND = "session"


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
        session_clock.stop_session(tx, number)
        tx.run(Q.attach, {**facts, "session_no": number})
    # No lease stays: nobody's is waited for, and no attach changes what people see of a session but its epoch.
    epoch = tx.take_lease(number, token=tx.ids.token(), owner=KIND, until_awake_ms=0, counted=False)[1]
    tx.release_lease(number)
    changed(tx, number)
    return SessionFence(session_no=number, session_id=command.session_id, epoch=epoch)


def attached(fence: SessionFence) -> SessionAttached:
    """The answer to an attach."""
    return SessionAttached(session_id=fence.session_id, epoch=fence.epoch)


def detach(tx: Tx, fence: SessionFence) -> None:
    """Its connection has ended. One of an earlier epoch changes nothing."""
    which = {"session_no": fence.session_no, "epoch": fence.epoch, "now": tx.now.wall_ms}
    if tx.run(Q.detach, which):
        session_clock.stop_session(tx, fence.session_no)
        changed(tx, fence.session_no)


def hold(tx: Tx, fence: SessionFence) -> None:
    """Raise `ClaimLost` unless the epoch is still the session's."""
    if tx.one(Q.holds, {"session_no": fence.session_no, "epoch": fence.epoch}) is None:
        raise ClaimLost(
            f"session {fence.session_id!r} was attached by another connection",
            hint="attach it again; only one connection acts for a session",
        )


class ClearRun(msgspec.Struct, frozen=True, kw_only=True):
    """A session dismisses the end of a run from its view."""

    fence: SessionFence
    run_id: str


def clear(tx: Tx, command: ClearRun) -> Cleared:
    """Nothing else changes: a message about it is still to be sent."""
    fence = command.fence
    hold(tx, fence)
    row = tx.one(Q.run_of, {"run_id": command.run_id, "session_no": fence.session_no})
    if row is None:
        raise NotFound(f"session {fence.session_id!r} has no run {command.run_id!r}")
    if row[1] is None:
        raise Rejected(f"run {command.run_id} goes on", hint="only a run that has ended can be dismissed")
    tx.run(Q.clear, {"session_no": fence.session_no, "run_no": row[0]})
    changed(tx, fence.session_no)
    return Cleared(run_id=command.run_id)
