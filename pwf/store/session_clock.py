"""Active time: how long the model of a session has worked on a request, by the clock that stands still in sleep.

It is counted only while a turn about the request is open, and was reported, on a session that is connected: what waits,
is paused, or has no daemon costs nothing. An interval is counted when it ends, and at each sample on the way; one that
was open when the daemon died is counted up to its last sample.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pwf.errors import ClaimLost
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)


def start(tx: Tx, request_id: str, session_no: int, limit_ms: int | None) -> None:
    """The model works on the request from now on, if it did not before."""
    left_ms = None if limit_ms is None else max(0, limit_ms - active_ms(tx, request_id))
    facts = {"request_id": request_id, "session_no": session_no, "now": tx.now.awake_ms, "left_ms": left_ms}
    tx.run(Q.start, facts)
    tx.changed("requests")


def stop(tx: Tx, request_id: str) -> None:
    """It does not any more."""
    row = tx.one(Q.of_request, {"request_id": request_id})
    if row is not None:
        _count(tx, *row)
        tx.run(Q.stop, {"request_id": request_id})


def stop_session(tx: Tx, session_no: int) -> None:
    """The session works on nothing any more: its connection has ended, or is another one."""
    for request_id, _since in tx.all(Q.of_session, {"session_no": session_no}):
        stop(tx, request_id)


def active_ms(tx: Tx, request_id: str) -> int:
    """What was counted."""
    row = tx.one(Q.active_ms, {"request_id": request_id})
    return 0 if row is None else int(row[0])


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Count what a session's model has worked, for the daemon of this epoch."""

    session_no: int
    daemon_epoch: int


def sample(tx: Tx, command: Sample) -> bool:
    """Whether anything is being counted. `ClaimLost` when another daemon serves."""
    if tx.one(Q.serves, {"epoch": command.daemon_epoch}) is None:
        raise ClaimLost(f"another daemon than that of epoch {command.daemon_epoch} serves")
    rows = tx.all(Q.of_session, {"session_no": command.session_no})
    for request_id, since in rows:
        _count(tx, request_id, since)
        tx.run(Q.sampled, {"request_id": request_id, "now": tx.now.awake_ms})
    return bool(rows)


def _count(tx: Tx, request_id: str, since_awake_ms: int) -> None:
    spent_ms = max(0, tx.now.awake_ms - since_awake_ms)
    tx.run(Q.count, {"request_id": request_id, "active_ms": spent_ms})
    tx.run(Q.on_attempt, {"request_id": request_id})


class Limit(NamedTuple):
    """A limit of active time that passes in `left_ms`."""

    left_ms: int
    request_id: str
    run_id: str


def next_limit(tx: Tx) -> Limit | None:
    """The one that passes first."""
    row = tx.one(Q.next_due)
    return None if row is None else Limit(row[2] - tx.now.awake_ms, str(row[0]), str(row[1]))
