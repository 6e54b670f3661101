"""What a session reports: what it has in its history, and its turns.

A message is sent when a report or a turn names it, and not before. A turn that ends without anything accepted gets a
reminder, at most `REMINDERS_MAX`; one that is aborted pauses its run; one that is lost gets a fresh message, which
counts for nothing; `LOST_MAX` of them in a row, without a submission or an update between them, pause the run.
Each report is safe to repeat.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pwf.errors import Conflict
from pwf.protocol.runner import StepError
from pwf.protocol.sessions import (
    STARTS_TURN,
    MessageKind,
    ReportPayload,
    Standing,
    StepReason,
    TurnPayload,
    TurnReported,
)
from pwf.store import moves, place, session_clock
from pwf.store.change import changing
from pwf.store.deadlines import end_parked
from pwf.store.follow_ups import turn_aborted
from pwf.store.queries import load_queries
from pwf.store.session_messages import changed, fresh_step, is_judged, withdraw
from pwf.store.sessions import SessionFence, hold
from pwf.store.state import RunState, graph_of, load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)

REMINDERS_MAX = 2
LOST_MAX = 20  # an agent that dies on a step would be given it for ever
LENGTHY_IDS = 32  # of messages that a report names: some milliseconds
MISSING = "nothing was submitted that was accepted, and the turn has ended"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    fence: SessionFence
    said: ReportPayload


class ReportTurn(msgspec.Struct, frozen=True, kw_only=True):
    fence: SessionFence
    said: TurnPayload


class _Message(NamedTuple):
    message_no: int
    message_id: str
    kind: MessageKind
    is_over: int
    request_id: str | None
    request_revision: int | None
    run_id: str


def report(tx: Tx, command: Report) -> None:
    """Take what the session has and does. From its first report on it is told what is next."""
    fence, said = command.fence, command.said
    hold(tx, fence)
    if len(said.branch) > LENGTHY_IDS:
        tx.lengthy()
    idle = said.idle and not said.input_pending
    for message_id in said.branch:
        message = _message(tx, fence, message_id)
        if message is not None:
            _evidence(tx, message, idle=idle)
    which = {"session_no": fence.session_no}
    for turn_id, message_id in tx.all(Q.open_turns, which):
        if turn_id == said.turn:
            _work_on(tx, fence, _known(tx, fence, message_id))
        elif idle:
            _lose(tx, fence, turn_id, _known(tx, fence, message_id))
    if idle:
        for (message_id,) in tx.all(Q.unturned, which):
            _lose(tx, fence, None, _known(tx, fence, message_id))
    tx.run(Q.reported, {**which, "idle": said.idle, "now": tx.now.wall_ms})
    changed(tx, fence.session_no)


def report_turn(tx: Tx, command: ReportTurn) -> TurnReported:
    """Take the start or the end of a turn, and say what it counts for."""
    fence, said = command.fence, command.said
    hold(tx, fence)
    message = _message(tx, fence, said.message_id)
    if message is None or message.kind not in STARTS_TURN:
        return TurnReported(standing="absent")
    row = tx.one(Q.turn, {"session_no": fence.session_no, "turn_id": said.turn_id})
    if row is not None and row[1] != said.message_id:
        raise Conflict(
            f"turn {said.turn_id!r} is about message {row[1]!r}", hint="give each turn an id of its own"
        )
    known = None if row is None else str(row[0])
    if said.state == "started":
        standing = _started(tx, fence, said.turn_id, known, message)
    else:
        standing = _ended(tx, fence, said, known, message)
    tx.run(Q.seen, {"session_no": fence.session_no, "now": tx.now.wall_ms})
    changed(tx, fence.session_no)
    run = load_run(tx, message.run_id, to_end=True)
    return TurnReported(standing=standing, run_id=run.run_id, revision=run.revision)


# --- turns ----------------------------------------------------------------------------------------------------


def _started(tx: Tx, fence: SessionFence, turn_id: str, known: str | None, message: _Message) -> Standing:
    counts = _counts(tx, message)
    if known is not None:
        return "active" if known == "open" and counts else "settled"
    for other, about in tx.all(Q.open_turns, {"session_no": fence.session_no}):  # of one session one goes on
        if about == message.message_id:
            _close(tx, fence, other, "lost")
        else:
            _lose(tx, fence, other, _known(tx, fence, about))
    counts = counts and not message.is_over
    _evidence(tx, message, idle=False)
    _add_turn(tx, fence, turn_id, message, "open" if counts else "lost")
    if not counts:
        _over(tx, message)
        return "settled"
    _work_on(tx, fence, message)
    return "active"


def _ended(tx: Tx, fence: SessionFence, said: TurnPayload, known: str | None, message: _Message) -> Standing:
    aborted = said.state == "aborted"
    end = "aborted" if aborted else "ended"
    if known is None:  # its start was not heard of; it is never open here: another turn may have begun since
        _evidence(tx, message, idle=False)
        known = "lost" if message.is_over else "open"
        _add_turn(tx, fence, said.turn_id, message, "lost" if message.is_over else end)
    counts = _counts(tx, message) and known != "lost"
    late_abort = aborted and known == "ended"
    if known == "open" or late_abort:
        _close(tx, fence, said.turn_id, end)
    goes_on = tx.one(Q.is_worked_on, {"message_no": message.message_no}) is not None  # in a turn begun since
    if not goes_on:
        _over(tx, message)
        if message.request_id is not None:
            session_clock.stop(tx, message.request_id)
    if aborted and message.request_id is None and known != "lost":
        turn_aborted(tx, message.run_id, _actor(fence))
    if not counts:
        return "settled"
    if message.request_id is not None and (known == "open" or late_abort):
        tx.run(Q.not_lost, {"request_id": message.request_id})
        if aborted:
            _pause(tx, fence, message, "aborted")
        elif not goes_on:
            _remind(tx, fence, message)
    return "active"


def _pause(tx: Tx, fence: SessionFence, message: _Message, turn: str, why: str | None = None) -> None:
    run = load_run(tx, message.run_id)
    with changing(tx, run):
        place.hold(tx, run, "paused", why, waiting=True)
        withdraw(tx, run)
        moves.note(tx, run, "paused", _actor(fence), {"turn": turn})


def _remind(tx: Tx, fence: SessionFence, message: _Message) -> None:
    assert message.request_id is not None
    row = tx.one(Q.request, {"request_id": message.request_id})
    assert row is not None
    if row[2] < REMINDERS_MAX:
        if _fresh(tx, fence, message, "reminder"):
            tx.run(Q.reminded, {"request_id": message.request_id})
        return
    run = load_run(tx, message.run_id)
    if run.hold is not None or is_judged(tx, message.request_id):
        return
    error = StepError(code="missing_submission", message=MISSING, node=run.node)
    with changing(tx, run):
        facts = {"request_id": message.request_id, "by": _actor(fence), "now": tx.now.wall_ms}
        tx.run(Q.give_up, facts)
        end_parked(tx, run, "failed", error, _actor(fence))
    tx.changed("requests")


def _lose(tx: Tx, fence: SessionFence, turn_id: str | None, message: _Message) -> None:
    """The turn about a message goes on no more, and nobody has said how it ended."""
    if turn_id is not None:
        _close(tx, fence, turn_id, "lost")
    counts = _counts(tx, message)
    _over(tx, message)
    if message.request_id is not None:
        session_clock.stop(tx, message.request_id)
        if counts and _are_too_many(tx, message.request_id):
            why = f"{LOST_MAX} turns of session {fence.session_id!r} about this step were lost, one after another"
            _pause(tx, fence, message, "lost", why)
        elif counts:
            _fresh(tx, fence, message, "lost")


def _are_too_many(tx: Tx, request_id: str) -> bool:
    """Whether the turn that was lost just now was one too many."""
    tx.run(Q.one_more_lost, {"request_id": request_id})
    row = tx.one(Q.request, {"request_id": request_id})
    return row is not None and row[3] >= LOST_MAX


def _fresh(tx: Tx, fence: SessionFence, message: _Message, reason: StepReason) -> bool:
    run = load_run(tx, message.run_id)
    assert message.request_id is not None
    assert message.request_revision is not None
    with changing(tx, run):
        made = fresh_step(tx, run, message.request_id, message.request_revision, reason)
        moves.note(tx, run, "turn_over", _actor(fence), {"request": message.request_id, "turn": reason})
    return made


def _work_on(tx: Tx, fence: SessionFence, message: _Message) -> None:
    if message.request_id is None or not _counts(tx, message):
        return
    run = load_run(tx, message.run_id)
    limit_ms = graph_of(tx, run.definition_id).node(run.node).timeout_ms
    session_clock.start(tx, message.request_id, fence.session_no, limit_ms)


# --- what is stored ---------------------------------------------------------------------------------------------


def _counts(tx: Tx, message: _Message) -> bool:
    """Whether a turn about the message counts for anything: a step's only while its run waits for just that."""
    if message.request_id is None:
        return not message.is_over
    row = tx.one(Q.request, {"request_id": message.request_id})
    run = load_run(tx, message.run_id, to_end=True)
    return row is not None and row[:2] == ("pending", message.request_revision) and _waits(run)


def _waits(run: RunState) -> bool:
    return run.status == "waiting" and run.hold is None


def _evidence(tx: Tx, message: _Message, *, idle: bool) -> None:
    starts = message.kind in STARTS_TURN
    facts = {"message_no": message.message_no, "idle": idle, "starts_turn": starts, "now": tx.now.wall_ms}
    tx.run(Q.evidence, facts)
    if message.kind == "follow_up":
        tx.changed("run:" + message.run_id)


def _over(tx: Tx, message: _Message) -> None:
    tx.run(Q.over, {"message_no": message.message_no})


def _add_turn(tx: Tx, fence: SessionFence, turn_id: str, message: _Message, status: str) -> None:
    facts = {"session_no": fence.session_no, "turn_id": turn_id, "now": tx.now.wall_ms}
    tx.run(Q.add_turn, {**facts, "message_no": message.message_no, "status": status})


def _close(tx: Tx, fence: SessionFence, turn_id: str, status: str) -> None:
    facts = {"session_no": fence.session_no, "turn_id": turn_id, "now": tx.now.wall_ms}
    tx.run(Q.end_turn, {**facts, "status": status})


def _message(tx: Tx, fence: SessionFence, message_id: str) -> _Message | None:
    row = tx.one(Q.message, {"message_id": message_id, "session_no": fence.session_no})
    return None if row is None else _Message(*row)


def _known(tx: Tx, fence: SessionFence, message_id: str) -> _Message:
    message = _message(tx, fence, message_id)
    assert message is not None, "a turn keeps its message"
    return message


def _actor(fence: SessionFence) -> str:
    return f"session:{fence.session_id}"
