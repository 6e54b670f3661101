"""Retention: removes whole trees of ended runs that nothing needs, and then what nothing refers to any more.

A tree is a run with all its restarts. It may go when every run of it has ended before a moment, by the time of
its *end*: a run that was made long ago and ended just now stays, and so does one that still waits, with all its
history. A tree stays as well while an effect of it is unsettled (a person has to say whether it happened), or a
process of it is not proved dead. One command removes one tree; each looks at a bounded number of runs, and a
cursor says where the next goes on. Safe to repeat, and to stop anywhere.
"""

from __future__ import annotations

import msgspec

from pwf.protocol.operations import PruneResult
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.tx import DAEMON_NO, Tx

Q = load_queries(__file__)

LOOK_MAX = 200  # ended runs that one command looks at
PLAN_MAX = 500  # the same for one read of a plan
DEFINITION_AGE_MS = 24 * 3_600_000  # a definition is saved a little before its first run refers to it
UNUSED_MAX = 100

DAY_MS = 24 * 3_600_000


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the order of ends."""

    ended_ms: int = -1
    run_no: int = -1


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


def prune_tree(tx: Tx, command: PruneTree) -> PrunedTree:
    """Remove one tree, or look at `LOOK_MAX` runs in vain."""
    return _walk(tx, command, LOOK_MAX, remove=True)


def plan_prune(tx: Tx, query: PruneTree) -> PrunedTree:
    """What `prune_tree` would remove of the next `PLAN_MAX` ended runs. Changes nothing."""
    return _walk(tx, query, PLAN_MAX, remove=False)


def _walk(tx: Tx, command: PruneTree, limit: int, *, remove: bool) -> PrunedTree:
    after = command.after
    rows = tx.all(
        Q.ended_before,
        {
            "before_ms": command.before_ms,
            "after_ms": after.ended_ms,
            "after_no": after.run_no,
            "limit": limit,
        },
    )
    trees = runs = 0
    kept: dict[str, int] = {}
    for ended_ms, run_no, root in rows:
        after = Place(ended_ms=ended_ms, run_no=run_no)
        members = tx.all(Q.tree, {"root": root})
        if not _is_last(members, after):
            continue  # decided where the last run of the tree has ended, if all have
        run_ids = [str(member[0]) for member in members]
        if reason := _needed(tx, run_ids):
            kept[reason] = kept.get(reason, 0) + 1
            continue
        trees, runs = trees + 1, runs + len(run_ids)
        if remove:
            for run_id in run_ids:
                _remove(tx, run_id)
            return PrunedTree(trees=trees, runs=runs, kept=kept, after=after)
    return PrunedTree(trees=trees, runs=runs, kept=kept, after=after if len(rows) == limit else None)


def _is_last(members: list[tuple[str, int, int | None]], here: Place) -> bool:
    """Whether every run of the tree has ended, and none after this one."""
    return all(
        ended_ms is not None and (ended_ms, run_no) <= (here.ended_ms, here.run_no)
        for _run_id, run_no, ended_ms in members
    )


def _needed(tx: Tx, run_ids: list[str]) -> str | None:
    for run_id in run_ids:
        if tx.one(Q.effect_unsettled, {"run_id": run_id}) is not None:
            return "an effect is unsettled"
        if tx.one(Q.process_unproved, {"run_id": run_id}) is not None:
            return "a process is not proved dead"
    return None


def _remove(tx: Tx, run_id: str) -> None:
    which = {"run_id": run_id}
    for sql in (Q.drop_holds, Q.drop_updates, Q.drop_effects, Q.drop_requests, Q.drop_attempts):
        tx.run(sql, which)
    tx.run(Q.drop_events, which)
    tx.run(Q.drop_entity, which)
    tx.run(Q.drop_queue, which)
    removed = tx.run(Q.drop_run, which)
    assert removed == 1, f"run {run_id} is not an ended run"
    tx.changed("run:" + run_id)


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


class Unused(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for the next unused rows of a kind, after an id."""

    after: str = ""


class UnusedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Their ids; `after` is where to go on, None at the end."""

    ids: tuple[str, ...]
    after: str | None


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """Drop those of these that are still unused."""

    ids: tuple[str, ...]


def unused_definitions(tx: Tx, query: Unused) -> UnusedPage:
    """Definitions that no run is bound to, and that are older than a day."""
    before_ms = tx.now.wall_ms - DEFINITION_AGE_MS
    facts = {"after": query.after, "before_ms": before_ms, "limit": UNUSED_MAX}
    return _page([str(row[0]) for row in tx.all(Q.unused_definitions, facts)])


def drop_definitions(tx: Tx, command: Drop) -> int:
    """How many went. Whoever remembers that one of them was saved must forget it before."""
    return sum(tx.run(Q.drop_definition, {"definition_id": name}) for name in command.ids)


def unused_environments(tx: Tx, query: Unused) -> UnusedPage:
    """Environments that no run has."""
    facts = {"after": query.after, "limit": UNUSED_MAX}
    return _page([str(row[0]) for row in tx.all(Q.unused_environments, facts)])


def drop_environments(tx: Tx, command: Drop) -> int:
    """How many went."""
    return sum(tx.run(Q.drop_environment, {"environment_id": name}) for name in command.ids)


def _page(ids: list[str]) -> UnusedPage:
    return UnusedPage(ids=tuple(ids), after=ids[-1] if len(ids) == UNUSED_MAX else None)
