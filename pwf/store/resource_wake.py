"""Wake-ups of managed resources. Whoever does something that a resource waits for calls `wake`, in its own transaction.

Promises: a wake-up is never lost: one that comes during a reconcile brings one more, and one of a resource that is kept
back is owed until nothing keeps it back any more. Several merge into the resource's one row in the queue.
"""

from __future__ import annotations

import msgspec

from pwf.store.queries import load_queries
from pwf.store.state import encode
from pwf.store.tx import Tx, subject

Q = load_queries(__file__)

KIND = "resource"
REASONS_MAX = 8

#: What the row of one that is being reconciled keeps of its wake-ups.
WOKEN, HURRIED = 1, 2

_reasons = msgspec.json.Decoder(list[str])


def wake(tx: Tx, resource_no: int, reason: str, *, hurried: bool = False) -> bool:
    """Have a resource reconciled, once more where it is being reconciled. Whether it is or will be.

    `hurried`: a person or a new spec, which no back-off keeps waiting.
    """
    row = tx.one(Q.wakeable, {"resource_no": resource_no})
    if row is None:
        return False
    kept_back, failures, state, told, uid = row
    if kept_back and state != "live":
        return False  # whatever lets it go on has it reconciled
    reasons = merged([] if told is None else _reasons.decode(told), reason)
    facts = {"resource_no": resource_no, "reasons": encode(reasons)}
    if state == "live":
        tx.run(Q.wake_live, {**facts, "woken": HURRIED if hurried else WOKEN})
    elif state == "ready" or (state == "later" and failures and not hurried):
        tx.run(
            Q.add_reasons, facts
        )  # it keeps its time: else whoever is woken often would always be the last
    else:
        put_in_queue(tx, resource_no, "ready", 0, facts["reasons"])
    tx.changed("queue")
    tx.changed(subject(KIND, str(uid)))
    tx.changed("resources")
    return True


def put_in_queue(tx: Tx, resource_no: int, state: str, delay_ms: int, reasons: object) -> None:
    """Write its row: due now or later."""
    now = tx.now
    facts = {
        "due_wall_ms": now.wall_ms + delay_ms,
        "due_elapsed_ms": now.elapsed_ms + delay_ms,
        "due_boot_id": now.boot_id,
    }
    tx.run(Q.enqueue, {"resource_no": resource_no, "state": state, "reasons": reasons, **facts})


def take_from_queue(tx: Tx, resource_no: int) -> None:
    """Drop its row: nothing is due."""
    tx.run(Q.dequeue, {"resource_no": resource_no})


def merged(reasons: list[str], *more: str) -> list[str]:
    """Each reason once, within a bound."""
    return list(dict.fromkeys([*reasons, *more]))[:REASONS_MAX]
