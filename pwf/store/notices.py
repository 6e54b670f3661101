"""Notices: kept with the attempts that made them, listed for people.

A notice is a mark of a completed attempt, whose output is its text: so it is written in the transaction that ends the
attempt, once, and goes with its run.
"""

from __future__ import annotations

import msgspec

from pwf.errors import InvalidArgument, NotFound
from pwf.protocol.notices import NoticeKind, NoticeList, NoticeListPayload, NoticeView
from pwf.store.moves import Stored
from pwf.store.queries import load_queries
from pwf.store.session_messages import tell
from pwf.store.state import RunState
from pwf.store.tx import Row, Tx
from pwf.store.values import load_value

Q = load_queries(__file__)

PAGE_MAX = 200  # of texts of 16 KiB, as many as a frame takes
PAGE_BYTES_MAX = 700 * 1024
AFTER_ALL = (2**53, 2**53, 2**53)


def note_notice(tx: Tx, run: RunState, kind: NoticeKind, output: Stored) -> None:
    """The attempt that has just completed is one. The run's session, where it has one, is told, too."""
    tx.run(Q.note, {"run_no": run.run_no, "attempt": run.attempts, "notice": kind})
    if run.session_no is not None:
        text = load_value(tx, output.inline, output.digest)
        tell(tx, run, f"{run.run_id}.{run.attempts}.notice", text)


def notice_list(tx: Tx, query: NoticeListPayload) -> NoticeList:
    """A page of notices, newest first. `query.run`: an exact id."""
    at, number, attempt = _place(query.cursor)
    limit = max(1, min(query.limit, PAGE_MAX))
    facts = {"run_id": query.run, "at": at, "number": number, "attempt": attempt, "limit": limit + 1}
    rows = tx.all(Q.newest if query.run is None else Q.of_run, facts)
    found: list[NoticeView] = []
    size = 0
    for row in rows[:limit]:
        notice = _notice(tx, row)
        size += len(notice.text.encode()) * 2  # what JSON may make of it
        if found and size > PAGE_BYTES_MAX:
            break
        found.append(notice)
    if len(found) == len(rows):
        return NoticeList(notices=tuple(found))
    *_, ended_ms, run_no = rows[len(found) - 1]
    return NoticeList(notices=tuple(found), next_cursor=f"{ended_ms}.{run_no}.{found[-1].attempt}")


def notice_view(tx: Tx, run_id: str, attempt: int) -> NoticeView:
    """The one of this attempt. Raises `NotFound`."""
    row = tx.one(Q.one, {"run_id": run_id, "attempt": attempt})
    if row is None:
        raise NotFound(f"attempt {attempt} of run {run_id} made no notice")
    return _notice(tx, row)


def _place(cursor: str | None) -> tuple[int, ...]:
    if cursor is None:
        return AFTER_ALL
    parts = cursor.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 17 for part in parts):
        raise InvalidArgument("the cursor is none of this list", hint="take next_cursor of a page")
    return tuple(map(int, parts))


def _notice(tx: Tx, row: Row) -> NoticeView:
    run_id, workflow, title, node, visit, attempt, kind, output, digest, ended_ms, _run_no = row
    value = msgspec.json.decode(load_value(tx, output, digest))
    return NoticeView(
        run_id=run_id,
        workflow=workflow,
        title=title,
        node=node,
        visit=visit,
        attempt=attempt,
        kind=kind,
        text=value if isinstance(value, str) else msgspec.json.encode(value).decode(),
        at_ms=ended_ms,
    )
