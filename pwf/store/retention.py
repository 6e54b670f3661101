"""Retention: removes whole trees of ended entities that nothing needs, and then what nothing refers to any more.

A tree is what goes together: a run with all its restarts and forks. It may go when every member has ended before a
moment, by the time of its *end*: a run that was made long ago and ended just now stays, and so does one that still
waits, with all its history. A tree stays as well while its kind needs it (an effect is unsettled: a person has to say
whether it happened), or a process of it is not proved dead. One command removes one tree; each looks at a bounded
number of ends, and a cursor says where the next goes on, from kind to kind. Safe to repeat, and to stop anywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pwf.protocol.operations import PruneResult
from pwf.store.entity_kinds import EntityKind, Retention
from pwf.store.kinds import KINDS
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.run_kind import RUN
from pwf.store.tx import DAEMON_NO, Tx, subject

Q = load_queries(__file__)

LOOK_MAX = 200  # ends that one command looks at
PLAN_MAX = 500  # the same for one read of a plan
UNUSED_MAX = 100

DAY_MS = 24 * 3_600_000


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the order of ends, of one kind after another."""

    kind: str = "run"
    ended_ms: int = -1
    entity_no: int = -1


class PruneTree(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the next tree that ended before `before_ms` (wall time), looking from `after` on."""

    before_ms: int
    after: Place = Place()


class PrunedTree(msgspec.Struct, frozen=True, kw_only=True):
    """What a command removed (or a plan would), and what it left alone: reason -> trees. `after` None: the end."""

    trees: int
    runs: int
    kept: dict[str, int]
    after: Place | None


class _Member(NamedTuple):
    entity_no: int
    name: str
    ended_ms: int | None


def prune_tree(tx: Tx, command: PruneTree) -> PrunedTree:
    """Remove one tree, or look at `LOOK_MAX` ends in vain."""
    return _walk(tx, command, LOOK_MAX, remove=True)


def plan_prune(tx: Tx, query: PruneTree) -> PrunedTree:
    """What `prune_tree` would remove of the next `PLAN_MAX` ends. Changes nothing."""
    return _walk(tx, query, PLAN_MAX, remove=False)


def _walk(tx: Tx, command: PruneTree, limit: int, *, remove: bool) -> PrunedTree:
    after = command.after
    kind = KINDS[after.kind]
    assert kind.retention is not None
    rows = tx.all(
        kind.retention.ended,
        {
            "before_ms": command.before_ms,
            "after_ms": after.ended_ms,
            "after_no": after.entity_no,
            "limit": limit,
        },
    )
    trees = runs = 0
    kept: dict[str, int] = {}
    for ended_ms, entity_no, group in rows:
        after = Place(kind=kind.name, ended_ms=ended_ms, entity_no=entity_no)
        members = [_Member(*row) for row in tx.all(kind.retention.group, {"group": group})]
        if not _is_last(members, after):
            continue  # decided where the last member of the tree has ended, if all have
        if reason := _needed(tx, kind.retention, members):
            kept[reason] = kept.get(reason, 0) + 1
            continue
        trees, runs = trees + 1, runs + len(members) * (kind is RUN)
        if remove:
            for member in members:
                _remove(tx, kind, member)
            return PrunedTree(trees=trees, runs=runs, kept=kept, after=after)
    return PrunedTree(
        trees=trees, runs=runs, kept=kept, after=after if len(rows) == limit else _next_kind(kind.name)
    )


def _next_kind(name: str) -> Place | None:
    kinds = [kind.name for kind in KINDS.values() if kind.retention is not None]
    following = kinds[kinds.index(name) + 1 :]
    return Place(kind=following[0]) if following else None


def _is_last(members: list[_Member], here: Place) -> bool:
    """Whether every member of the tree has ended, and none after this one."""
    return all(
        member.ended_ms is not None and (member.ended_ms, member.entity_no) <= (here.ended_ms, here.entity_no)
        for member in members
    )


def _needed(tx: Tx, retention: Retention, members: list[_Member]) -> str | None:
    for member in members:
        if reason := retention.needed(tx, member.entity_no, member.name):
            return reason
        if tx.one(Q.process_unproved, {"entity_no": member.entity_no}) is not None:
            return "a process is not proved dead"
    return None


def _remove(tx: Tx, kind: EntityKind, member: _Member) -> None:
    """Its kind's own rows first, then what belongs to any entity."""
    assert kind.retention is not None
    kind.retention.remove(tx, member.entity_no, member.name)
    for sql in (Q.drop_holds, Q.drop_events, Q.drop_entity):
        tx.run(sql, {"entity_no": member.entity_no})
    tx.changed(subject(kind.name, member.name))


class RecordPrune(msgspec.Struct, frozen=True, kw_only=True):
    """A prune of epoch `epoch` has come to its end."""

    result: PruneResult
    actor: str
    epoch: int
    receipt: ReceiptKey | None = None


def record_prune(tx: Tx, command: RecordPrune) -> Done[PruneResult]:
    """Write into the daemon's history who removed what, with the receipt. What was removed has been committed."""
    result = command.result

    def act() -> tuple[PruneResult, bool]:
        revision = tx.fence(DAEMON_NO, generation=command.epoch)
        facts = {"before_ms": result.before_ms, "trees": result.trees, "runs": result.runs}
        tx.event(DAEMON_NO, revision, "pruned", command.actor, command.epoch, facts)
        return result, False

    return once(tx, command.receipt, PruneResult, act)


# --- what nothing refers to -----------------------------------------------------------------------------------


class UnusedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Their ids; `after` is where to go on, None at the end."""

    ids: tuple[str, ...]
    after: str | None


def unused_definitions(tx: Tx, after: str) -> UnusedPage:
    """The next definitions, after an id, that no run is bound to."""
    facts = {"after": after, "limit": UNUSED_MAX}
    return _page([str(row[0]) for row in tx.all(Q.unused_definitions, facts)])


def drop_definitions(tx: Tx, ids: tuple[str, ...]) -> int:
    """Drop those that are still unused; how many went. A start that comes later saves its own again."""
    return sum(tx.run(Q.drop_definition, {"definition_id": name}) for name in ids)


def unused_environments(tx: Tx, after: str) -> UnusedPage:
    """The next environments, after an id, that no run has."""
    facts = {"after": after, "limit": UNUSED_MAX}
    return _page([str(row[0]) for row in tx.all(Q.unused_environments, facts)])


def drop_environments(tx: Tx, ids: tuple[str, ...]) -> int:
    """Drop those that are still unused; how many went."""
    return sum(tx.run(Q.drop_environment, {"environment_id": name}) for name in ids)


def gone_runs(tx: Tx, names: tuple[str, ...]) -> tuple[str, ...]:
    """Which of these are no runs and no managed resources, or not any more."""
    return tuple(name for name in names if tx.one(Q.run_known, {"run_id": name}) is None)


def _page(ids: list[str]) -> UnusedPage:
    return UnusedPage(ids=tuple(ids), after=ids[-1] if len(ids) == UNUSED_MAX else None)
