"""What a start can't read parks its own run: for when a row of one run would keep everybody's from going on.

`alone` (in `broken`) sees to a row that is read for one run. Here it is about rows that are read for many at once: a
text that is no UTF-8, a time that is no number. It is a walk over every row of these tables, so only where something
could not be read.
"""

from __future__ import annotations

from pwf.store.broken import Q as BROKEN
from pwf.store.broken import hold_broken
from pwf.store.queries import load_queries
from pwf.store.soundness import faults, tables
from pwf.store.tx import Tx

Q = load_queries(__file__)

#: What a start, an admission and a recovery read.
TOUCHED = frozenset({"entities", "runs", "run_queue", "runners", "attempts", "requests", "effects"})


def park_unreadable(tx: Tx, _: None = None) -> int:
    """Hold every run as `broken` of which a row can't be read; how many. Safe to repeat."""
    found: dict[int, dict[str, str]] = {}  # table -> what is wrong, of each run
    for table in tables():
        if table.name not in TOUCHED:
            continue
        for row, fault in faults(tx, table):
            facts = dict(zip(table.names, row, strict=True))
            number = facts.get("run_no", facts.get("entity_no"))
            if number is None:
                run = tx.one(BROKEN.number_of, {"run_id": facts.get("run_id")})
                number = None if run is None else run[0]
            if isinstance(number, int) and number > 0:
                found.setdefault(number, {}).setdefault(table.name, fault)
    return sum(_park(tx, number, damaged) for number, damaged in found.items())


def _park(tx: Tx, run_no: int, damaged: dict[str, str]) -> bool:
    """Whether the run was one that could go on."""
    which = {"run_no": run_no}
    if tx.one(Q.may_go_on, which) is None:
        return False
    if "entities" in damaged:  # what names nothing any more is given a name
        tx.run(Q.name_entity, which)
    if "runners" in damaged:  # a process that can't be told any more is looked for by its marker
        tx.run(Q.forget_process, which)
    table, fault = next(iter(damaged.items()))
    hold_broken(tx, run_no, f"a row of {table} is damaged: {fault} (pwf state verify)")
    return True
