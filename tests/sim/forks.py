"""The auditor's model of forks: what one takes over is what the other run had, and it takes over nothing else.

A fork begins at a visit. It has, of each node, the latest result before that visit and the latest that completed, byte
for byte; no effect and no question of before; and it belongs to the tree of the run that it comes from.
"""

from __future__ import annotations

import json
from typing import Any

from pwf.protocol.frames import Request
from tests.sim.model import ENDS, RunModel

_ROW = """SELECT forked_from, fork_node, fork_visit, tree_root FROM runs WHERE run_id = ?"""
_RESULTS = """SELECT a.attempt, a.node, a.visit, a.status, a.output, a.output_digest, a.adopted
FROM attempts a JOIN runs r USING (run_no) WHERE r.run_id = ? ORDER BY a.attempt"""
_TREE = "SELECT coalesce(tree_root, run_id) FROM runs WHERE run_id = ?"
_OPEN = """SELECT e.node, e.visit FROM effects e JOIN runs r ON r.run_no = e.entity_no WHERE r.run_id = ?1
UNION ALL SELECT node, visit FROM requests WHERE run_id = ?1"""
_HAPPENED = """SELECT e.node, e.visit FROM effects e JOIN runs r ON r.run_no = e.entity_no
WHERE r.run_id = ? AND e.status IN ('applied', 'abandoned')"""
RESULTS = frozenset(ENDS)


class Forks:
    """Kept by the auditor."""

    def __init__(self, auditor: Any) -> None:
        self._auditor = auditor
        self.begins: dict[
            str, tuple[str, dict[str, int]]
        ] = {}  # run -> its first node, and the entries by then
        self.may_repeat: set[str] = set()  # runs of which somebody has asked for a fork that repeats effects

    def look(self, run: RunModel) -> None:
        """A run is seen for the first time."""
        ((old, node, visit, root),) = self._auditor.rows(_ROW, run.run_id)
        if old is None:
            return
        check, rows = self._auditor.check, self._auditor.rows
        check(rows(_TREE, old) == [(root,)], f"{run} belongs to the tree of {old}: {root}")
        before = self._before(old, node, visit)
        wanted = {}
        for attempt in before:
            wanted[attempt[1], False] = attempt
            if attempt[3] == "completed":
                wanted[attempt[1], True] = attempt
        taken = [row for row in rows(_RESULTS, run.run_id) if row[6] is not None]
        right = sorted({attempt[0] for attempt in wanted.values()})
        check([row[6] for row in taken] == right, f"{run} takes over {right} of {old}: {taken}")
        by_number = {attempt[0]: attempt for attempt in before}
        same = all(row[1:6] == by_number[row[6]][1:6] for row in taken)
        check(same, f"{run} has the results of {old} as they were: {taken}")
        strays = set(rows(_OPEN, run.run_id)) & {(row[1], row[2]) for row in taken}
        check(not strays, f"{run} takes over no effect and no question: {strays}")
        entries: dict[str, int] = {}
        for row in taken:
            entries[row[1]] = max(row[2], entries.get(row[1], 0))
        self.begins[run.run_id] = node, entries | {node: visit}

    def _before(self, old: str, node: str, visit: int) -> list[tuple[Any, ...]]:
        """The results that a run had before a visit."""
        attempts = self._auditor.rows(_RESULTS, old)
        first = min((row[0] for row in attempts if (row[1], row[2]) == (node, visit)), default=2**60)
        return [row for row in attempts if row[0] < first and row[3] in RESULTS]

    def told(self, request: Request, result: dict[str, Any], over: frozenset[str]) -> None:
        """A client was told of a fork. `over`: runs that had ended when it asked first."""
        old = result["forked_from"]
        check, payload = self._auditor.check, json.loads(bytes(request.payload))
        check(old == request.run_id, f"{result} is forked as {request} asks")
        check(payload.get("node") in (None, result["node"]), f"{result} goes on where {request} asks")
        begins = self.begins.get(result["run_id"])
        if begins is None or old not in over or old in self._auditor.pruned:
            return
        node, entries = begins
        happened = self._auditor.rows(_HAPPENED, old)
        before = {(row[1], row[2]) for row in self._before(old, node, entries[node])}
        again = [one for one in happened if one not in before]
        asked = old in self.may_repeat or not again  # it may have been another one, whose fork was adopted
        check(asked, f"{result} would repeat {again} of {old}, and nobody has asked for it")
