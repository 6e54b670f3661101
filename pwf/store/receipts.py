"""Receipts: a repeated command gets its first answer (design, section 8).

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


def prune_receipts(tx: Tx, limit: int = 500) -> int:
    """Drop receipts that are older than 30 days and whose run is gone; how many went."""
    return tx.run(Q.prune_receipts, {"before_wall_ms": tx.now.wall_ms - KEPT_MS, "limit": limit})
