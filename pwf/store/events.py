"""Reading the append-only history. It is written by `Tx.event`, one event per revision, and never changed."""

from __future__ import annotations

import msgspec

from pwf.protocol.views import EventView
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)


def events_after(tx: Tx, run_id: str, after_revision: int, limit: int) -> tuple[EventView, ...]:
    """The next `limit` events of a run after a revision, oldest first."""
    rows = tx.all(Q.events_after, {"run_id": run_id, "after_revision": after_revision, "limit": limit})
    return tuple(
        EventView(
            revision=revision,
            kind=kind,
            actor=actor,
            generation=generation,
            at_ms=at_wall_ms,
            payload=msgspec.Raw(payload),
        )
        for revision, kind, actor, generation, at_wall_ms, payload in rows
    )
