"""What a fork takes over of the run that it is forked from: the results that its steps may ask for, and nothing else.

Promises: an adopted attempt is a copy of one of that run (`adopted` names it), of generation 0, which no runner has. No
effect, question, lease, printed text or update is taken over. The run itself is not changed.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pwf.errors import NotFound
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
    """Where a new run begins: `visits` has the entry into `node`."""

    node: str
    visits: dict[str, int]
    title: str | None = None


def begin_at(tx: Tx, fork: Fork | None, start: str) -> Begins:
    """The start node; of a fork the node that it goes on from."""
    if fork is None:
        return Begins(start, {start: 1})
    old_no, title, attempts = _old(tx, fork)
    if attempts > LENGTHY_ATTEMPTS:
        tx.lengthy()
    visits = visits_before(tx, old_no, fork.before)
    visits[fork.node] = fork.visit
    return Begins(fork.node, visits, title if fork.titled else None)


def adopt(tx: Tx, run_no: int, fork: Fork) -> tuple[str, ...]:
    """Copy the results, once the new run has its row; what was taken over, as `node` or `node#visit`."""
    old_no = _old(tx, fork)[0]
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


def _old(tx: Tx, fork: Fork) -> tuple[int, str | None, int]:
    row = tx.one(Q.number_of, {"run_id": fork.run_id})
    if row is None:
        raise NotFound(f"there is no run {fork.run_id!r}")
    return int(row[0]), row[1], int(row[2])
