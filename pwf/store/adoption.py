"""What a fork takes over of the run that it is forked from: the results that its steps may ask for, and nothing else.

Promises: an adopted attempt is a copy of one of that run (`adopted` names it), of generation 0, which no runner has. No
effect, question, lease, printed text or update is taken over. The run itself is not changed.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pwf.errors import NotFound
from pwf.protocol.mounts import Entries, enter, mounts_of
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)

LENGTHY_ATTEMPTS = 64  # that are looked through


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Go on at the `visit` of `node` with what `run_id` had before its attempt `before`. `titled`: its title fits."""

    run_id: str
    node: str
    visit: int
    before: int
    titled: bool = True


class Begins(NamedTuple):
    """Where a new run begins: `visits` has the entry into `node`, and `entries` those of included workflows."""

    node: str
    visits: dict[str, int]
    title: str | None
    entries: Entries


def begin_at(tx: Tx, fork: Fork | None, start: str) -> Begins:
    """The start node; of a fork the node that it goes on from."""
    if fork is None:
        return Begins(start, {start: 1}, None, {})
    old = _old(tx, fork)
    if old.attempts > LENGTHY_ATTEMPTS:
        tx.lengthy()
    visits = visits_before(tx, old.run_no, fork.before)
    visits[fork.node] = fork.visit
    return Begins(
        fork.node, visits, old.title if fork.titled else None, _entries_at(tx, old, fork.node, visits)
    )


def adopt(tx: Tx, run_no: int, fork: Fork) -> tuple[str, ...]:
    """Copy the results, once the new run has its row; what was taken over, as `node` or `node#visit`."""
    old_no = _old(tx, fork).run_no
    count = tx.run(Q.adopt, {"run_no": run_no, "old_no": old_no, "before": fork.before})
    tx.run(Q.count_adopted, {"run_no": run_no, "attempts": count})
    rows = tx.all(Q.adopted, {"run_no": run_no})
    return tuple(dict.fromkeys(visit_name(node, visit) for node, visit in rows))


def visits_before(tx: Tx, run_no: int, attempt: int) -> dict[str, int]:
    """How often a run had entered each node before an attempt."""
    return dict(tx.all(Q.visits_before, {"run_no": run_no, "before": attempt}))


def visit_name(node: str, visit: int) -> str:
    """What people call a visit, and type."""
    return node if visit == 1 else f"{node}#{visit}"


class _Old(NamedTuple):
    run_no: int
    title: str | None
    attempts: int


def _old(tx: Tx, fork: Fork) -> _Old:
    row = tx.one(Q.number_of, {"run_id": fork.run_id})
    if row is None:
        raise NotFound(f"there is no run {fork.run_id!r}")
    return _Old(*row)


def _entries_at(tx: Tx, old: _Old, node: str, visits: dict[str, int]) -> Entries:
    """What each included workflow counts from, for a run that goes on at `node` after these visits.

    As the attempt of its include says: of earlier entries a fork has not all attempts, and can not count them again.
    """
    entries: Entries = {}
    for mount in {mount for visited in visits for mount in mounts_of(visited)}:
        if mount == node:  # it is entered anew
            enter(entries, visits, mount)
            continue
        place = {"run_no": old.run_no, "node": mount, "visit": visits.get(mount, 0)}
        row = tx.one(Q.counted_from, place)
        if row is not None:
            entries[mount] = msgspec.json.decode(row[0], type=dict[str, int])
    return entries
