"""The ledger's rows as views show them: of a run or a resource, of a status, the newest."""

from __future__ import annotations

from pwf.protocol.effects import EffectList, EffectListPayload
from pwf.protocol.runner import effect_key
from pwf.protocol.views import EffectView
from pwf.store import moves
from pwf.store.queries import load_queries
from pwf.store.tx import Row, Tx

Q = load_queries(__file__)

PAGE_MAX = 1_000
LOOKED = 10_000  # of the newest, for a list of those settled in one way, or without the messages of channels
UNSETTLED = frozenset({"applying", "ambiguous"})
_NAMES = ("type", "mode", "status", "attempts", "ref", "settled_by", "note", "fingerprint")


def effects_of_entity(tx: Tx, entity_no: int) -> tuple[EffectView, ...]:
    """Those of one entity of any kind, newest first."""
    return tuple(map(_effect, tx.all(Q.effects_of_entity, {"entity_no": entity_no})))


def one_effect(tx: Tx, entity_no: int, node: str, visit: int, part: str) -> EffectView | None:
    """The one under this key."""
    row = tx.one(Q.one_effect, {"entity_no": entity_no, "node": node, "visit": visit, "part": part})
    return None if row is None else _effect(row)


def effect_list(tx: Tx, query: EffectListPayload) -> EffectList:
    """The ledger: by status oldest first, or its newest rows. Settled ones are looked for among the newest.

    What is unsettled is listed whatever made it: a person has to know of it.
    """
    limit = max(1, min(query.limit, PAGE_MAX))
    found: list[EffectView] = []
    for status in query.statuses or (None,):
        facts = {"status": status, "limit": limit}
        if status in UNSETTLED:
            found += map(_effect, tx.all(Q.effects_unsettled, facts))
        else:
            looked = limit if status is None and query.messages else LOOKED
            found += map(
                _effect, tx.all(Q.effects_newest, {**facts, "looked": looked, "messages": query.messages})
            )
    if query.statuses:
        found.sort(key=lambda effect: effect.reserved_ms)
    return EffectList(effects=tuple(found[:limit]))


def _effect(row: Row) -> EffectView:
    run_id, outside_name, node, visit, part = row[:5]
    key = effect_key(run_id, node, visit, part)
    outside_key = None if outside_name is None else effect_key(outside_name, node, visit, part)
    *said, error, reserved_ms, settled_ms = row[5:]
    return EffectView(
        effect_key=key,
        outside_key=outside_key,
        run_id=run_id,
        node=node,
        visit=visit,
        error=moves.decode_error(error),
        reserved_ms=reserved_ms,
        settled_ms=settled_ms,
        **dict(zip(_NAMES, said, strict=True)),
    )
