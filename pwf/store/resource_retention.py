"""What a living resource keeps: effects that its manager still asks for, and a bounded history.

Promises: a settled effect goes only when nobody has asked for it or settled it since a moment (and a day: that it was
asked for is noted to a day); of the events stay the newest `EVENTS_KEPT`, and all that are not older than that moment,
without a gap. Each command removes a bounded number, and finds them by an index: what is not due costs nothing. Safe to
repeat, and to stop anywhere.
"""

from __future__ import annotations

from pwf.store.queries import load_queries
from pwf.store.resource_state import EVENTS_KEPT
from pwf.store.resource_wake import KIND
from pwf.store.tx import Tx, subject

Q = load_queries(__file__)

DAY_MS = 24 * 3_600_000
KEPT_MS = 30 * DAY_MS
REMOVED_MAX = 500  # rows, by one command


def asked_for(tx: Tx, resource_no: int, part: str) -> None:
    """A manager asks for an effect: noted to a day, so that a repeat costs no write."""
    which = {"resource_no": resource_no, "part": part}
    tx.run(Q.asked_for, {**which, "now": tx.now.wall_ms, "since_ms": tx.now.wall_ms - DAY_MS})


def anything_old(tx: Tx, before_ms: int) -> bool:
    """Whether there may be anything to remove. Changes nothing."""
    effect = tx.one(Q.old_effect, {"before_ms": before_ms - DAY_MS})
    return effect is not None or tx.one(Q.to_trim, {"before_ms": before_ms}) is not None


def drop_old_effects(tx: Tx, before_ms: int) -> int:
    """Remove some that nobody has asked for since; how many there were. 0: there are none left."""
    rows = tx.all(Q.old_effects, {"before_ms": before_ms - DAY_MS, "limit": REMOVED_MAX})
    for resource_no, node, visit, part, uid in rows:
        tx.run(Q.drop_effect, {"resource_no": resource_no, "node": node, "visit": visit, "part": part})
        tx.changed(subject(KIND, str(uid)))
    return len(rows)


def trim_events(tx: Tx, before_ms: int) -> int | None:
    """Remove old events of the next resource that has too many; how many went. None: there is none left."""
    row = tx.one(Q.to_trim, {"before_ms": before_ms})
    if row is None:
        return None
    resource_no, revision, uid = int(row[0]), int(row[1]), str(row[2])
    last = revision - EVENTS_KEPT
    which = {"resource_no": resource_no}
    first = 0
    removed = 0
    kept_ms = None
    for number, at_ms in tx.all(Q.oldest_events, {**which, "limit": REMOVED_MAX + 1}):
        first = number
        if number > last:
            break
        if at_ms >= before_ms or removed == REMOVED_MAX:
            kept_ms = at_ms
            break
        removed += 1
    tx.run(Q.drop_events, {**which, "first": first})
    tx.run(Q.trimmed, {**which, "first": first, "kept_ms": kept_ms})
    tx.changed(subject(KIND, uid))
    return removed
