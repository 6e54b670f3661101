"""Sessions, as one kind of entity: what becomes of them with their daemon, how long they are kept, what verify checks.

A session is never over by itself. It goes when nobody has seen it for as long as ended runs are kept.
"""

from __future__ import annotations

from pwf.store.entity_kinds import EntityKind, Retention
from pwf.store.queries import load_queries
from pwf.store.session_rules import SESSION_RULES
from pwf.store.sessions import KIND
from pwf.store.tx import Tx

Q = load_queries(__file__)


def _daemon_ended(tx: Tx, died: bool, rebooted: bool) -> int:
    tx.run(Q.all_gone)
    tx.run(Q.nothing_worked_on)
    return 0


def _needed(tx: Tx, session_no: int, session_id: str) -> str | None:
    return None if tx.one(Q.owns, {"session_no": session_no}) is None else "a run of it is kept"


def _remove(tx: Tx, session_no: int, session_id: str) -> None:
    removed = tx.run(Q.drop_session, {"session_no": session_no})
    assert removed == 1, f"session {session_id} is connected"
    tx.changed("sessions")


SESSION = EntityKind(
    name=KIND,
    table="sessions",
    key="session_no",
    daemon_ended=_daemon_ended,
    retention=Retention(ended=Q.ended_before, group=Q.itself, needed=_needed, remove=_remove),
    rules=SESSION_RULES,
)
