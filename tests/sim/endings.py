"""The auditor's model of what ends for good: processes whose run is settled, and runs that are removed.

Nothing is committed of a process that is thought dead while it still works; the time of a question may be over before
the process that asked it has left, since asking was its last word on the step. A run goes with its whole tree, when a
prune that is under way names a moment after its end.
"""

from __future__ import annotations

import json
from typing import Any

from pwf.protocol.frames import Request
from tests.sim.model import DIED, ENDS, RunModel
from tests.sim.questions import NOBODY

_CUSTODY = """SELECT coalesce(r.run_id, e.name), p.generation FROM runners p JOIN entities e USING (entity_no)
LEFT JOIN runs r ON r.run_no = p.entity_no WHERE r.run_id IS NOT NULL OR e.kind = 'resource'"""
NEVER_MS = 2**62
SURELY_OVER_MS = (
    10_000  # a time limit of which two more are enough to end a step, as long as nothing of these is slow
)
SLOW = (
    "stall_every_s",
    "disk_full_every_s",
    "io_error",
    "call_fault_every_s",
    "lock_every_s",
    "batch_lost",
    "undone",
)
_TIME_OVER = "SELECT 1 FROM requests WHERE run_id = ? AND attempt = ? AND answered_by = ?"
_OF_TREE = "SELECT run_id FROM runs WHERE ?1 IN (restarted_from, restart_root, forked_from, tree_root)"


class Endings:
    """Kept by the auditor."""

    def __init__(self, auditor: Any, world: Any) -> None:
        self._auditor = auditor
        self._world = world
        self._custody: set[tuple[str, int]] = set()  # (run or resource, generation)
        self._said: set[tuple[str, int, int]] = set()  # (run, generation, attempt) that its runner has ended
        self._asked: set[tuple[str, int, int]] = set()  # the same, that its runner has asked a question
        self._over: set[tuple[str, int]] = set()  # attempts that were looked at
        self._ended_wall_ms: dict[str, int] = {}
        self._prunes: dict[
            str, tuple[int, int | None]
        ] = {}  # request -> its moment, and the commit of its answer

    # --- processes --------------------------------------------------------------------------------------------

    def finish_sent(self, run_id: str, generation: int, attempt: int) -> None:
        """A runner says how a step has ended."""
        self._said.add((run_id, generation, attempt))

    def asked(self, run_id: str, generation: int, attempt: int) -> None:
        """A runner asks a question, with which its step has ended."""
        self._asked.add((run_id, generation, attempt))

    def recovers(self, marker: str, *, is_held: bool) -> None:
        """A daemon's recovery is about to end a runner. `is_held`: a supervisor of this daemon has it."""
        self._auditor.check(not is_held, f"recovery leaves {marker} to its own daemon's supervisor")

    def look_at_custody(self) -> None:
        """After each commit: custody ends with the proof that nothing works any more."""
        now = {(owner, generation) for owner, generation in self._auditor.rows(_CUSTODY)}
        for owner, generation in sorted(self._custody - now):
            working = self._working(owner, generation)
            self._auditor.check(not working, f"custody of {owner}:{generation} ends after {working}")
        self._custody = now

    def look(self, run: RunModel, attempts: list[tuple[Any, ...]]) -> None:
        """After a commit that changed the run."""
        if run.status in ENDS:
            self._ended_wall_ms.setdefault(run.run_id, self._auditor.waits.earliest_wall_ms())
        for number, node, _, status, _, generation, code in attempts[-3:]:
            if generation == 0:
                continue  # taken over from another run
            decided = status == "timed_out" or (status == "failed" and code == DIED)
            if not decided or (run.run_id, number) in self._over:
                continue
            self._over.add((run.run_id, number))
            if not self._has_ended(run.run_id, generation, number):
                working = self._working(run.run_id, generation)
                fine = not working
                self._auditor.check(
                    fine, f"{run.run_id} is told of {status} at {node} after the end of {working}"
                )

    def _has_ended(self, run_id: str, generation: int, attempt: int) -> bool:
        """By its runner's own word. A question counts only where its time was over, not the step's."""
        key = (run_id, generation, attempt)
        return key in self._said or (
            key in self._asked and bool(self._auditor.rows(_TIME_OVER, run_id, attempt, NOBODY))
        )

    def _working(self, owner: str, generation: int) -> list[str]:
        end = f":{owner}:{generation}"
        living = self._world.machine.living()
        return [process.marker for process in living if process.at_work and process.marker.endswith(end)]

    def overran(self, process: Any, timeout_ms: int, life: Any) -> None:
        """A step goes on long after its time is over: its daemon has had trouble, or the process could not be ended."""
        world = self._world
        slow = world.mix.bounds is not None or any(map(world.mix.rate, SLOW))
        served = life is not None and life is world.life and life.epoch == process.epoch
        if timeout_ms >= SURELY_OVER_MS and served and not slow and not process.killed:
            fine = process.immortal_until > 0 or life.draining
            self._auditor.check(fine, f"a step whose time is over is ended: {process}")

    # --- what is removed --------------------------------------------------------------------------------------

    def sent(self, request: Request) -> None:
        """A client sends a command."""
        if request.operation == "state.prune":
            before_ms = json.loads(bytes(request.payload)).get("before_ms", NEVER_MS)
            self._prunes[request.request_id] = (before_ms, None)  # one that was put off is asked for again

    def answered(self, request: Request) -> None:
        """A client has its answer: a repeat removes nothing more."""
        before_ms, at = self._prunes.get(request.request_id, (0, None))
        if request.operation == "state.prune" and at is None:
            self._prunes[request.request_id] = (before_ms, self._auditor.commits)

    def gone(self, run_id: str) -> None:
        """The run was removed."""
        check = self._auditor.check
        now = self._auditor.commits
        moments = [before_ms for before_ms, at in self._prunes.values() if at is None or at >= now - 1]
        ended_ms = self._ended_wall_ms.pop(run_id, 0)
        check(
            any(ended_ms < moment for moment in moments),
            f"{run_id} ended at {ended_ms}, not before {moments}",
        )
        rest = self._auditor.rows(_OF_TREE, run_id)
        check(not rest, f"{run_id} goes with its whole tree: {rest}")
        living = [process for process in self._world.machine.living() if process.run_id == run_id]
        working = [process.marker for process in living if process.at_work]
        check(not working, f"no run goes whose process works: {working}")
