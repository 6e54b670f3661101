"""Receipts: a repeated command gets its first answer.

A receipt is written in the transaction of its command, for every outcome that a repeat must give again
(accepted, rejected, conflict …), never for an exception or `unavailable`. It lives as long as the run that it
names, and at least 30 days.
"""

from __future__ import annotations

import msgspec

from pwf.errors import Conflict
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)

KEPT_MS = 30 * 24 * 3600 * 1000
LOOK_PAGE = 500


class ReceiptKey(msgspec.Struct, frozen=True, kw_only=True):
    """`scope_key`: the key and what it is scoped to. `payload_digest` tells commands under one key apart."""

    scope_key: str
    operation: str
    payload_digest: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered. `response` is the caller's own encoding of it."""

    outcome: str
    response: bytes
    run_id: str | None
    created_wall_ms: int


def find_receipt(tx: Tx, key: ReceiptKey) -> Receipt | None:
    """The receipt under this key, or None. `Conflict` when another command was sent under it."""
    row = tx.one(Q.receipt, {"scope_key": key.scope_key})
    if row is None:
        return None
    operation, payload_digest, outcome, response, run_id, created_wall_ms = row
    if operation != key.operation:
        raise Conflict(f"the idempotency key was used for {operation} before", hint="use another key")
    if payload_digest != key.payload_digest:
        raise Conflict(
            f"the idempotency key was used before, for {operation} with another payload",
            hint="use another key",
        )
    return Receipt(outcome=outcome, response=response, run_id=run_id, created_wall_ms=created_wall_ms)


def save_receipt(
    tx: Tx, key: ReceiptKey, *, outcome: str, response: bytes, run_id: str | None = None
) -> None:
    """Keep the answer. The caller has called `find_receipt` in the same command and found none."""
    tx.run(
        Q.add_receipt,
        {
            "scope_key": key.scope_key,
            "operation": key.operation,
            "payload_digest": key.payload_digest,
            "outcome": outcome,
            "response": response,
            "run_id": run_id,
            "wall_ms": tx.now.wall_ms,
        },
    )


class OldPage(msgspec.Struct, frozen=True, kw_only=True):
    """Their keys; `after` is where to go on, None at the end."""

    keys: tuple[str, ...]
    after: tuple[int, int] | None


def old_receipts(tx: Tx, after: tuple[int, int]) -> OldPage:
    """Receipts older than 30 days whose run is gone, or that name none, among the next `LOOK_PAGE` by age.

    `after`: a place in that order; before the first it is -1, 0.
    """
    before_ms = tx.now.wall_ms - KEPT_MS
    facts = {"before_ms": before_ms, "after_ms": after[0], "after_no": after[1]}
    rows = tx.all(Q.receipts_before, {**facts, "limit": LOOK_PAGE})
    keys = tuple(str(key) for _no, key, _made_ms, run_exists in rows if not run_exists)
    further = (int(rows[-1][2]), int(rows[-1][0])) if len(rows) == LOOK_PAGE else None
    return OldPage(keys=keys, after=further)


def drop_receipts(tx: Tx, keys: tuple[str, ...]) -> int:
    """Drop those whose run is still gone; how many went."""
    before_ms = tx.now.wall_ms - KEPT_MS
    return sum(tx.run(Q.drop_receipt, {"key": key, "before_ms": before_ms}) for key in keys)
