"""Messages to sessions: made and withdrawn where a run is placed (`placed`), in the transaction that makes it true.

A run with an origin session has one step message for each revision of its open request, unless something was submitted
that is being judged, and one terminal message once it has ended. A message is sent when its session was seen to have
it, and not before. Its follow-ups are messages that nobody is told of before they are due. `is_over`: nothing more
comes of it; of one that starts a turn, once that turn is over.
"""

from __future__ import annotations

import zlib

from pwf.protocol.kinds import REQUESTS
from pwf.protocol.sessions import MessageKind, StepReason
from pwf.store import session_clock
from pwf.store.queries import load_queries
from pwf.store.state import RunState
from pwf.store.tx import Tx
from pwf.store.values import store_value

Q = load_queries(__file__)


def changed(tx: Tx, session_no: int) -> None:
    """What the session sees is different, and what its run waits for with it."""
    tx.changed(f"session:{session_no}")
    for (run_id,) in tx.all(Q.run_going_on, {"session_no": session_no}):
        tx.changed("run:" + run_id)


def changed_by(tx: Tx, run: RunState) -> None:
    """The same, by a run of it, which needs no looking for."""
    tx.changed(f"session:{run.session_no}")
    tx.changed("run:" + run.run_id)


def placed(tx: Tx, run: RunState) -> None:
    """The run of a session was put somewhere: say to the session what that means."""
    changed_by(tx, run)
    for (request_id,) in tx.all(Q.requests_worked_on, {"run_id": run.run_id}):
        if run.status != "waiting" or run.hold is not None:
            session_clock.stop(tx, request_id)
    if run.status != "waiting":
        withdraw(tx, run)
    elif run.hold is None:
        _tell_request(tx, run)
    if run.ended:
        tx.run(Q.lose_turns, {"run_no": run.run_no, "now": tx.now.wall_ms})
        _add(tx, run, "terminal", f"{run.run_id}.terminal")
        if run.status != "completed":
            drop_follow_ups(tx, run, f"the run ended: {run.status}")


def withdraw(tx: Tx, run: RunState) -> None:
    """Nothing that was said of the run's requests counts any more."""
    tx.run(Q.withdraw, {"run_no": run.run_no})


def _tell_request(tx: Tx, run: RunState) -> None:
    """The run waits for its request: the session knows of it as it is now, or is told."""
    row = tx.one(Q.open_request, {"run_id": run.run_id})
    if row is None:
        return
    request_id, kind, revision = row
    facts = REQUESTS[kind]
    which = {"request_id": request_id, "revision": revision}
    if tx.one(Q.is_told, which) is not None or is_judged(tx, request_id):
        return
    withdraw(tx, run)
    tx.run(Q.lose_turns, {"run_no": run.run_no, "now": tx.now.wall_ms})
    if facts.answered_by == "session":
        fresh_step(tx, run, request_id, revision, "initial" if revision == 1 else "resumed")
    elif facts.decided:
        _add(tx, run, "proposal", f"{request_id}.{revision}.proposal", request=(request_id, revision))


def fresh_step(
    tx: Tx, run: RunState, request_id: str, revision: int, reason: StepReason, why: str | None = None
) -> bool:
    """A step message more, unless one waits to be sent or the run stands still; whether there is one."""
    which = {"request_id": request_id, "revision": revision, "reason": reason}
    stands_still = run.status != "waiting" or run.hold is not None
    if stands_still or tx.one(Q.is_pending, which) is not None or is_judged(tx, request_id):
        return False
    made = tx.one(Q.made, which) or (0,)
    suffix = f".{made[0] + 1}" if made[0] else ""
    name = f"{request_id}.{revision}.{reason}{suffix}"
    _add(tx, run, "step", name, request=(request_id, revision), reason=reason, why=why)
    return True


def rejected(tx: Tx, run: RunState, request_id: str, revision: int, why: str) -> None:
    """What was submitted was rejected: whoever works on it has heard, else the session is told."""
    if run.session_no is not None and tx.one(Q.is_worked_on, {"request_id": request_id}) is None:
        fresh_step(tx, run, request_id, revision, "rejected", why)


def tell(tx: Tx, run: RunState, message_id: str, text: bytes) -> None:
    """Words for the session of a run. They start no turn."""
    _add(tx, run, "notification", message_id, body=text)


def add_follow_up(tx: Tx, run: RunState, message_id: str, text: bytes, actor: str) -> None:
    """A prompt for after the run's success, behind those that are queued."""
    _add(tx, run, "follow_up", message_id, body=text, queued_by=actor)


def drop_follow_ups(tx: Tx, run: RunState, why: str) -> None:
    """None that is queued is sent."""
    tx.run(Q.drop_follow_ups, {"run_no": run.run_no, "why": why})


def is_judged(tx: Tx, request_id: str) -> bool:
    """Whether something is being judged that was submitted for a request."""
    return tx.one(Q.is_judged, {"request_id": request_id}) is not None


def _add(
    tx: Tx,
    run: RunState,
    kind: MessageKind,
    message_id: str,
    *,
    request: tuple[str | None, int | None] = (None, None),
    reason: StepReason | None = None,
    why: str | None = None,
    body: bytes | None = None,
    queued_by: str | None = None,
) -> None:
    assert run.session_no is not None
    stays = body is None or kind == "follow_up"  # so that the message has its text
    inline, digest = (body, None) if stays or body is None else store_value(tx, body)
    tx.run(
        Q.add,
        {
            "message_id": message_id,
            "session_no": run.session_no,
            "run_no": run.run_no,
            "kind": kind,
            "request_id": request[0],
            "request_revision": request[1],
            "reason": reason,
            "why": why,
            "queued_by": queued_by,
            "body": inline,
            "body_crc32": None if inline is None else zlib.crc32(inline),
            "body_digest": digest,
            "now": tx.now.wall_ms,
        },
    )
    changed_by(tx, run)


def session_id_of(tx: Tx, session_no: int) -> str:
    """What a session is known by."""
    row = tx.one(Q.session_of, {"session_no": session_no})
    assert row is not None, "a run keeps its session"
    return str(row[0])
