"""The auditor's model of holds: each has a cause that was there, and only the act that it names lifts it."""

from __future__ import annotations

from typing import Any

from tests.sim.model import ENDS, RunModel

#: hold -> the client's command that lifts it. A run that is cancelled is not held any more either.
LIFTED_BY = {
    "paused": "run.resume",
    "no_progress": "run.resume",
    "process_unreaped": "run.resume",
    "load_failed": "run.resume",
    "environment_missing": "run.resume",
    "effect_ambiguous": "effect.resolve",
}
COUNTS_ANEW = frozenset(hold for hold, act in LIFTED_BY.items() if act == "run.resume") - {"paused"}
REFUSED = frozenset({"load_failed", "environment_missing"})
CRASHES_MIN = (
    3  # runners that ended without progress, before the daemon gives up; the first may have had some
)


class Holds:
    """Kept by the auditor."""

    def __init__(self, auditor: Any) -> None:
        self._auditor = auditor
        self._held: dict[str, tuple[str, int]] = {}  # run -> its hold, and the commit at which it was seen
        self._refused: set[tuple[str, str]] = set()
        self._limited: set[str] = set()
        self._unproved: set[str] = set()
        self._generation: dict[str, int] = {}  # run -> the generation of the last outcome, or of a resume

    def launch_refused(self, run_id: str, hold: str) -> None:
        """The world refused to launch a run, for a reason that holds it."""
        self._refused.add((run_id, hold))

    def asks(self, run_id: str) -> None:
        """An agent of the run has met a usage limit, and a person is to be asked."""
        self._limited.add(run_id)

    def unproved(self, run_id: str) -> None:
        """A process of the run could not be shown dead in time."""
        self._unproved.add(run_id)

    def look(self, old: RunModel | None, run: RunModel, attempts: list[Any], *, ambiguous: bool) -> None:
        """After a commit that changed the run."""
        check, might = self._auditor.check, self._auditor.steering.might
        outcomes = [row[5] for row in attempts if row[3] not in ("active", "interrupted", "unknown")]
        last = max(outcomes, default=0)
        self._generation[run.run_id] = max(last, self._generation.get(run.run_id, 0))
        if run.pause_requested or run.hold == "paused":
            may = might(run.run_id, "run.pause") or run.run_id in self._limited
            check(may, f"only a client, or a limit of an agent, pauses a run: {run}")
        hold, since = self._held.get(run.run_id, (None, 0))
        if run.hold == hold:
            return
        if hold is not None and run.hold is None and not _ends(old, run):
            lifted = might(run.run_id, LIFTED_BY[hold], since)
            check(lifted, f"only the act that a hold names lifts it: {old} -> {run}")
        if hold in COUNTS_ANEW and might(run.run_id, "run.resume", since):
            self._generation[run.run_id] = run.generation if old is None else old.generation
        if run.hold is None:
            del self._held[run.run_id]
            return
        check(self._has_cause(run, ambiguous), f"a hold has its cause: {run}; {attempts}")
        self._held[run.run_id] = (run.hold, self._auditor.commits)

    def _has_cause(self, run: RunModel, ambiguous: bool) -> bool:
        hold = run.hold or ""
        if hold == "paused":
            return True  # was looked at
        if hold == "effect_ambiguous":
            return ambiguous
        if hold in REFUSED:
            return (run.run_id, hold) in self._refused
        if hold == "process_unreaped":
            return run.run_id in self._unproved
        if hold == "no_progress":
            ended = run.generation - self._generation[run.run_id] >= CRASHES_MIN - 1
            return ended or bool(self._auditor.blame.has_cause(run))
        return False  # nothing in this world is the cause of any other


def _ends(old: RunModel | None, run: RunModel) -> bool:
    """Whether the run ended under its hold: it was cancelled, or its last question was answered."""
    answered = old is not None and old.status == "waiting"
    return run.status == "cancelled" or (answered and run.status in ENDS)
