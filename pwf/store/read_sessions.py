"""Sessions, read: what one sees of itself, which runs and requests are its own, and the list for people."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pwf.errors import Ambiguous, NotFound
from pwf.protocol.runner import StepError
from pwf.protocol.sessions import (
    STARTS_TURN,
    MessageView,
    RunEnd,
    SessionLine,
    SessionList,
    SessionListPayload,
    SessionView,
    TurnView,
)
from pwf.store.queries import load_queries
from pwf.store.read_runs import request_view, summary_of
from pwf.store.requests import resolve_request
from pwf.store.runs import resolve_ref
from pwf.store.sessions import SessionFence
from pwf.store.state import shown_status
from pwf.store.tx import Row, Tx
from pwf.store.values import stored_value

Q = load_queries(__file__)

PAGE_MAX = 1_000
BEFORE_ALL = 2**53
NEWS_MS = 60_000  # how long a run stays in the view of its session after it has ended

_error = msgspec.json.Decoder(StepError)


def session_view(tx: Tx, session_id: str) -> SessionView:
    """What there is for a session; `NotFound` when nobody has attached it."""
    row = tx.one(Q.find, {"session_id": session_id})
    if row is None:
        raise NotFound(
            f"there is no session {session_id!r}", hint="pwf sessions lists those that were attached"
        )
    number, epoch, connected, reported, cleared_no = row
    which = {"session_no": number}
    run_id = _run_of(tx, number, cleared_no)
    asked = None if run_id is None else tx.one(Q.request_of_run, {"run_id": run_id})
    message = tx.one(Q.next_message, which) if reported else None
    turn = tx.one(Q.open_turn, which)
    return SessionView(
        session_id=session_id,
        epoch=epoch,
        connected=bool(connected),
        reported=bool(reported),
        run=None if run_id is None else summary_of(tx, run_id),
        request=None if asked is None else request_view(tx, asked[0]),
        message=None if message is None else _message(tx, message),
        turn=None
        if turn is None
        else TurnView(turn_id=turn[0], message_id=turn[1], started_ms=turn[2], active_ms=turn[3]),
    )


def session_number(tx: Tx, session_id: str) -> int:
    """What its changed key is called by."""
    row = tx.one(Q.find, {"session_id": session_id})
    if row is None:
        raise NotFound(
            f"there is no session {session_id!r}", hint="pwf sessions lists those that were attached"
        )
    return int(row[0])


def _run_of(tx: Tx, session_no: int, cleared_no: int | None) -> str | None:
    """The run that goes on, or the last one while its end is news and nobody has dismissed it."""
    newest = tx.one(Q.newest_run, {"session_no": session_no})
    if newest is None:
        return None
    run_no, run_id, ended_ms = newest
    if ended_ms is None:
        return str(run_id)
    is_news = tx.now.wall_ms - ended_ms < NEWS_MS or tx.one(Q.is_news, {"run_no": run_no}) is not None
    return str(run_id) if is_news and run_no != cleared_no else None


def _message(tx: Tx, row: Row) -> MessageView:
    (message_id, kind, status, reason, why, request_id, request_revision, body, body_digest, sent_ms, run_id,
     revision, run_status, hold, request_status, request_now) = row  # fmt: skip
    if sent_ms is not None and request_id is not None and status == "sent":
        waits = run_status == "waiting" and hold is None and request_now == request_revision
        status = (
            "sent" if request_status == "settled" or (request_status == "pending" and waits) else "cancelled"
        )
    is_end = request_id is None and body is None and body_digest is None
    return MessageView(
        message_id=message_id,
        kind=kind,
        status=status,
        run_id=run_id,
        revision=revision,
        reason=reason,
        why=why,
        request_id=request_id,
        request_revision=request_revision,
        end=_end(tx, run_id) if is_end else None,
        text=None if body is None and body_digest is None else stored_value(tx, body, body_digest),
        starts_turn=kind in STARTS_TURN,
    )


def _end(tx: Tx, run_id: str) -> RunEnd:
    row = tx.one(Q.run_end, {"run_id": run_id})
    assert row is not None
    workflow, status, output, output_digest, error, reason = row
    has_output = output is not None or output_digest is not None
    return RunEnd(
        workflow=workflow,
        status=status,
        output=stored_value(tx, output, output_digest) if has_output else None,
        error=None if error is None else _error.decode(error),
        reason=reason,
    )


# --- whose they are -------------------------------------------------------------------------------------------


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """A reference to a run or a request, by the session that asks."""

    fence: SessionFence
    ref: str


def own_run(tx: Tx, query: Own) -> str:
    """The id of a session's own run; another's is `NotFound`, like one that there is not."""
    return _own(tx, query, "run", resolve_ref, Q.owns_run)


def own_request(tx: Tx, query: Own) -> str:
    """The same of a request."""
    return _own(tx, query, "request", resolve_request, Q.owns_request)


def _own(tx: Tx, query: Own, what: str, resolve: Callable[[Tx, str], str], owns: str) -> str:
    try:
        found = resolve(tx, query.ref)
    except (NotFound, Ambiguous):
        found = ""
    if tx.one(owns, {"id": found, "session_no": query.fence.session_no}) is None:
        raise NotFound(f"session {query.fence.session_id!r} has no {what} {query.ref!r}")
    return found


# --- for people -----------------------------------------------------------------------------------------------


def session_list(tx: Tx, query: SessionListPayload) -> SessionList:
    """A page of the sessions, the one that was made last first."""
    limit = max(1, min(query.limit, PAGE_MAX))
    facts = {"before": BEFORE_ALL if query.cursor is None else query.cursor, "limit": limit}
    rows = tx.all(Q.newest_connected if query.connected else Q.newest, facts)
    following = int(rows[-1][0]) if len(rows) == limit else None
    return SessionList(sessions=tuple(_line(row) for row in rows), next_cursor=following)


def _line(row: Row) -> SessionLine:
    _number, session_id, epoch, connected, client, idle, created_ms, seen_ms, run_id, status, hold = row
    return SessionLine(
        session_id=session_id,
        epoch=epoch,
        connected=bool(connected),
        client=client,
        idle=bool(idle),
        run_id=run_id,
        run_status=None if run_id is None else shown_status(status, hold),  # type: ignore[arg-type]
        created_ms=created_ms,
        seen_ms=seen_ms,
    )
