"""Follow-ups of a run: prompts for its session, which are sent in order after its success and the turn about its end.

Each is a message to the session from the start, which is named to nobody before it is due. Promises: failure, a cancel
and an aborted turn about the end or a follow-up drop those that are queued; one that was sent is never removed.
"""

from __future__ import annotations

import msgspec

from pwf.errors import NotFound, Rejected, ValueTooLarge
from pwf.protocol.follow_ups import FOLLOW_UP_BYTES_MAX, FOLLOW_UPS_MAX, FollowUpChanged, FollowUpView
from pwf.store import moves
from pwf.store.change import changing
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.session_messages import add_follow_up, drop_follow_ups, session_id_of
from pwf.store.sessions import SessionFence, hold
from pwf.store.state import RunState, load_run
from pwf.store.tx import Tx
from pwf.values import canonical

Q = load_queries(__file__)

SUMMARY_CHARS = 200


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """`actor`: who it is; `person`: a person; `manages`: the manager whose child the run is. `session`: what the
    connection acts for.
    """

    run_id: str
    text: str
    actor: str
    person: bool = True
    manages: bool = False
    session: SessionFence | None = None
    receipt: ReceiptKey | None = None


class Remove(msgspec.Struct, frozen=True, kw_only=True):
    """The same of one that is queued, by its id or its number."""

    run_id: str
    follow_up: str
    actor: str
    person: bool = True
    manages: bool = False
    session: SessionFence | None = None
    receipt: ReceiptKey | None = None


def queue_follow_up(tx: Tx, command: Queue) -> Done[FollowUpChanged]:
    """Put one behind those that are queued."""
    return once(tx, command.receipt, FollowUpChanged, lambda: (_queue(tx, command), False))


def _queue(tx: Tx, command: Queue) -> FollowUpChanged:
    run = _own(tx, command)
    assert run.session_no is not None
    if run.ended:
        raise Rejected(
            f"run {run.run_id} has ended ({run.status}): it takes no follow-up",
            hint=f"pwf show {run.run_id}",
        )
    size = len(command.text.encode())
    if size > FOLLOW_UP_BYTES_MAX:
        raise ValueTooLarge(f"a follow-up has at most {FOLLOW_UP_BYTES_MAX:,} bytes, and this has {size:,}")
    queued, made = tx.one(Q.counted, {"run_no": run.run_no}) or (0, 0)
    if queued >= FOLLOW_UPS_MAX:
        raise Rejected(
            f"{queued} follow-ups of run {run.run_id} are queued, and there may be no more",
            hint=f"pwf follow-up ls {run.run_id}",
        )
    name = f"{run.run_id}.follow_up.{made + 1}"
    with changing(tx, run):
        add_follow_up(tx, run, name, canonical(command.text), command.actor)
        moves.note(tx, run, "follow_up_queued", command.actor, {"follow_up": name})
    return _changed(tx, run, name)


def remove_follow_up(tx: Tx, command: Remove) -> Done[FollowUpChanged]:
    """It is not sent. One that was removed or dropped before is adopted."""
    return once(tx, command.receipt, FollowUpChanged, lambda: _remove(tx, command))


def _remove(tx: Tx, command: Remove) -> tuple[FollowUpChanged, bool]:
    run = _own(tx, command)
    wanted = command.follow_up
    name = f"{run.run_id}.follow_up.{wanted}" if wanted.isdecimal() else wanted
    row = tx.one(Q.one, {"run_no": run.run_no, "message_id": name})
    if row is None:
        raise NotFound(f"run {run.run_id} has no follow-up {wanted!r}", hint=f"pwf follow-up ls {run.run_id}")
    status, queued_by, sent_ms = row
    if not command.person and queued_by != command.actor:
        raise Rejected(f"{name} was queued by {queued_by}: only who queued it, or a person, removes it")
    if sent_ms is not None:
        raise Rejected(f"{name} was sent: it can not be removed any more")
    if status == "cancelled":
        return _changed(tx, run, name), True
    with changing(tx, run):
        tx.run(Q.remove, {"message_id": name, "why": f"removed by {command.actor}"})
        moves.note(tx, run, "follow_up_removed", command.actor, {"follow_up": name})
    return _changed(tx, run, name), False


def turn_aborted(tx: Tx, run_id: str, actor: str) -> None:
    """The turn about the run's end, or about a follow-up, was aborted: those that are queued are not wanted."""
    run = load_run(tx, run_id, to_end=True)
    queued, _made = tx.one(Q.counted, {"run_no": run.run_no}) or (0, 0)
    if queued:
        with changing(tx, run):
            drop_follow_ups(tx, run, "a turn after the run's end was aborted")
            moves.note(tx, run, "follow_ups_dropped", actor, {"turn": "aborted", "dropped": queued})


def follow_ups_of(tx: Tx, run_no: int) -> tuple[FollowUpView, ...]:
    """The newest of a run's, in order."""
    rows = tx.all(Q.of_run, {"run_no": run_no, "limit": FOLLOW_UPS_MAX, "chars": SUMMARY_CHARS + 1})
    return tuple(
        FollowUpView(
            follow_up_id=name,
            status="dropped" if status == "cancelled" else "queued" if status == "pending" else "sent",
            summary=text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1] + "…",
            queued_by=queued_by,
            created_ms=created,
            sent_ms=sent,
            why=why,
        )
        for name, status, text, queued_by, created, sent, why in reversed(rows)
    )


def _own(tx: Tx, command: Queue | Remove) -> RunState:
    """The run, if it has a session and is the actor's own where that is no person."""
    if command.session is not None:
        hold(tx, command.session)
    run = load_run(tx, command.run_id)
    if run.session_no is None:
        gives = f"pwf restart {run.run_id}" if command.manages else "pwf run WORKFLOW"
        raise Rejected(
            f"run {run.run_id} has no session: nobody would get a follow-up",
            hint=f"{gives} --session ID starts a run for a session",
        )
    session_id = session_id_of(tx, run.session_no)
    is_theirs = command.person or command.manages
    if not is_theirs and command.actor not in (f"session:{session_id}", f"run:{run.run_id}"):
        raise Rejected(f"run {run.run_id} is no run of {command.actor}: it has no word on its follow-ups")
    return run


def _changed(tx: Tx, run: RunState, name: str) -> FollowUpChanged:
    assert run.session_no is not None
    session_id = session_id_of(tx, run.session_no)
    return FollowUpChanged(run_id=run.run_id, follow_up_id=name, session=session_id, revision=run.revision)
