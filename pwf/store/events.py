"""Reading the append-only history. It is written by `Tx.event`, one event per revision, and never changed."""

from __future__ import annotations

import msgspec

from pwf.protocol.views import EventView
from pwf.store.queries import load_queries
from pwf.store.tx import Row, Tx

Q = load_queries(__file__)


def events_after(tx: Tx, run_id: str, after_revision: int, limit: int) -> tuple[EventView, ...]:
    """The next `limit` events of a run after a revision, oldest first."""
    facts = {"run_id": run_id, "after_revision": after_revision, "limit": limit}
    return tuple(map(_event, tx.all(Q.events_after, facts)))


def events_of_entity(tx: Tx, entity_no: int, after_revision: int, limit: int) -> tuple[EventView, ...]:
    """Those of one entity of any kind, by its number."""
    facts = {"entity_no": entity_no, "after_revision": after_revision, "limit": limit}
    return tuple(map(_event, tx.all(Q.events_of_entity, facts)))


def _event(row: Row) -> EventView:
    revision, kind, actor, generation, at_wall_ms, payload = row
    return EventView(
        revision=revision,
        kind=kind,
        actor=actor,
        generation=generation,
        at_ms=at_wall_ms,
        payload=msgspec.Raw(payload),
    )
