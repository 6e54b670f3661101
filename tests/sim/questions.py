"""The auditor's model of deadlines: nobody's question is closed early or late, and nobody answers after its time.

The time of a question passes while its run waits and is not held. When exactly it begins and ends lies between what
the daemon has read from the clocks and the commit that is seen a moment later: so two sums are kept, the least and the
most that can have passed. Where somebody set the clock meanwhile nothing is said: a reboot may have had it decide.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from pwf.protocol.frames import Request
from pwf.protocol.kinds import KINDS
from pwf.values import canonical, digest
from tests.sim.model import RunModel
from tests.sim.waits import LATE_MS_MAX, Moment
from tests.sim.workload import DECISION

KEPT_MAX = 100  # answers to one decision that came to nothing
NOBODY = "timeout"  # who has answered when nobody has
_WINNERS = """SELECT a.request_id, a.provenance, a.choice, a.text, a.who, a.at_wall_ms, q.status, q.answered_by
FROM answers a JOIN requests q USING (request_id) WHERE a.won = 1 AND q.run_id = ?"""
_WINNER = "SELECT provenance, choice, digest FROM answers WHERE won = 1 AND request_id = ?"
_DIGEST = """SELECT d.digest FROM decisions d JOIN requests q USING (request_id)
WHERE q.run_id = ? AND q.attempt = ?"""
_KEPT = """SELECT count(a.answer_no), sum(a.choice = ? AND a.digest = ? AND a.won = 0)
FROM decisions d LEFT JOIN answers a USING (request_id) WHERE d.request_id = ? GROUP BY d.request_id"""
_BY = "SELECT answered_by FROM requests WHERE run_id = ? AND attempt = ?"


@dataclass
class Open:
    """A question. `since`: when its time began to pass, at the earliest and at the latest; None: it stands still."""

    attempt: int
    open_ms: int
    steps: int  # of the clock, when it was asked
    least_ms: int = 0
    most_ms: int = 0
    since: tuple[Moment, Moment] | None = None


class Questions:
    """Kept by the auditor."""

    def __init__(self, auditor: Any, world: Any) -> None:
        self._auditor = auditor
        self._world = world
        self._open: dict[str, Open] = {}
        self._won: dict[str, tuple[Any, ...]] = {}  # decision -> its winner, for ever

    def look(self, run: RunModel, attempts: list[tuple[Any, ...]]) -> None:
        """After a commit that changed the run."""
        self._look_at_winners(run)
        known = self._open.get(run.run_id)
        if known is not None and (run.status != "waiting" or run.attempts != known.attempt):
            self._passes(known, going=False)
            self._close(run, known, attempts[known.attempt - 1][3])
            known = None
        if run.status != "waiting":
            return
        if known is None:
            open_ms = self._auditor.model_of(run.definition).nodes[run.node].open_ms
            if open_ms is None:
                return
            steps = self._auditor.waits.earliest().steps
            known = self._open[run.run_id] = Open(run.attempts, open_ms, steps)
            self._look_at_digest(run)
        self._passes(known, going=run.hold is None)

    def overdue(self) -> list[tuple[str, int]]:
        """(run, attempt) of the questions that are still open, though their time is surely over."""
        now = self._auditor.waits.moment()
        return [
            (run_id, known.attempt)
            for run_id, known in self._open.items()
            if known.since is not None
            and known.least_ms + now.true_ms - known.since[1].true_ms > known.open_ms
        ]

    def _look_at_digest(self, run: RunModel) -> None:
        """What a person decides is bound to all that was asked, also to what nobody is shown."""
        node = self._auditor.model_of(run.definition).nodes[run.node]
        if not KINDS[node.kind].chooses:
            return
        prompt, subject = canonical(node.prompt(run.visit)), canonical(node.subject(run.visit))
        asked = {
            "run": run.run_id,
            "node": run.node,
            "visit": run.visit,
            "audience": DECISION.audience,
            "choices": msgspec.to_builtins(DECISION.choices),
            "title": node.id,
            "presentation": digest(prompt),
            "subject": digest(subject),
            "timeout_ms": node.open_ms,
            "default": None if node.default is None else canonical(node.default).decode(),
        }
        found = self._auditor.rows(_DIGEST, run.run_id, run.attempts)
        bound = found == [(digest(canonical(asked)),)]
        self._auditor.check(bound, f"a decision is bound to what was asked: {run} {found}")

    def _passes(self, known: Open, *, going: bool) -> None:
        earliest, latest = self._auditor.waits.earliest(), self._auditor.waits.moment()
        if known.since is not None and not going:
            began_first, began_last = known.since
            known.most_ms += latest.true_ms - began_first.true_ms
            known.least_ms += max(0, earliest.true_ms - began_last.true_ms)
            known.since = None
        elif known.since is None and going:
            known.since = (earliest, latest)

    def _close(self, run: RunModel, known: Open, status: str) -> None:
        del self._open[run.run_id]
        if known.steps != self._world.machine.steps:
            return
        ((by,),) = self._auditor.rows(_BY, run.run_id, known.attempt)
        what = f"the question of {run.run_id}, attempt {known.attempt}, open for {known.open_ms} ms,"
        if by == NOBODY:
            early_ms = known.open_ms - known.most_ms
            self._auditor.check(early_ms <= 0, f"{what} is not closed {early_ms} ms early")
        elif status == "completed":
            late_ms = known.least_ms - known.open_ms
            self._auditor.check(late_ms < 0, f"{what} is not answered by {by} {late_ms} ms late")

    def _look_at_winners(self, run: RunModel) -> None:
        """One answer wins, and never changes; it is that of whoever has closed the request."""
        check = self._auditor.check
        for request_id, provenance, *facts, status, by in self._auditor.rows(_WINNERS, run.run_id):
            winner = (provenance, *facts)
            check(self._won.setdefault(request_id, winner) == winner, f"{request_id} stays {winner}")
            closed = {"person": "settled", "timeout": "settled"}.get(provenance, "cancelled")
            sound = status == closed and (by == NOBODY) == (provenance in ("timeout", "expired"))
            check(sound, f"{request_id} was won by {winner}, and is {status} by {by}")

    def accepted(self, request: Request) -> None:
        """A person was told that their answer has won."""
        payload = json.loads(bytes(request.payload))
        for provenance, choice, seen in self._auditor.rows(_WINNER, payload["decision_id"]):
            won = (provenance, choice, seen) == ("person", payload["choice"], payload["digest"])
            self._auditor.check(won, f"{request} has won: {provenance} {choice}")

    def came_to_nothing(self, request: Request) -> None:
        """A person was told that another answer has won, or that theirs is to another proposal: it is kept."""
        payload = json.loads(bytes(request.payload))
        said = (payload["choice"], payload["digest"], payload["decision_id"])
        for count, kept in self._auditor.rows(_KEPT, *said):
            self._auditor.check(kept or count > KEPT_MAX, f"a late answer leaves a trace: {request}")

    def none_is_late(self) -> None:
        """While nothing fails, a question whose time is over is not still open (T4)."""
        now_ms = self._world.machine.true_ms
        for run_id, known in self._open.items():
            if known.since is None:
                continue
            due_ms = known.since[1].true_ms + max(0, known.open_ms - known.least_ms)
            late_ms = now_ms - max(due_ms, self._world.calm_since_ms)
            self._auditor.check(late_ms < LATE_MS_MAX, f"{run_id} is not asked for {late_ms} ms too long")

    def gone(self, run_id: str) -> None:
        """The run was removed."""
        self._open.pop(run_id, None)
