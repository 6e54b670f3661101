"""How the session of a run stands: whether it is attached, and what it has of what the run waits for."""

from __future__ import annotations

import msgspec

from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)


class SessionStanding(msgspec.Struct, frozen=True, kw_only=True):
    """`turn_since_ms`: since when a turn about the run is open. `unseen`: it has not seen the newest step yet.

    `queued`: follow-ups that are still to be sent.
    """

    session_id: str
    connected: bool
    reported: bool
    seen_ms: int
    turn_since_ms: int | None
    unseen: bool
    queued: int


def session_standing(tx: Tx, session_no: int | None, run_no: int) -> SessionStanding | None:
    """None where the run has no session."""
    row = None if session_no is None else tx.one(Q.standing, {"session_no": session_no, "run_no": run_no})
    if row is None:
        return None
    session_id, connected, reported, seen_ms, turn_since_ms, unseen, queued = row
    return SessionStanding(
        session_id=session_id,
        connected=bool(connected),
        reported=bool(reported),
        seen_ms=seen_ms,
        turn_since_ms=turn_since_ms,
        unseen=bool(unseen),
        queued=queued,
    )
