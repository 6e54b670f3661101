"""The auditor's model of daemons that die by themselves: which runs are marked for it, and what that means for them.

A mark is for a step that was open. It goes with progress, a resume, and another boot. From the second on a run is
admitted alone, and one that has `DEATHS_MAX` is admitted no more.
"""

from __future__ import annotations

from typing import Any

from tests.sim.model import RunModel

ALONE_FROM = 2
DEATHS_MAX = 7

_MARKS = """SELECT run_id, daemon_deaths, status = 'running'
  AND EXISTS (SELECT 1 FROM attempts a WHERE a.run_no = r.run_no AND a.status = 'active') FROM runs r"""


class Blame:
    """Kept by the auditor."""

    def __init__(self, auditor: Any) -> None:
        self._auditor = auditor
        self._boot_id: str | None = None  # of the last claim
        self._marks: dict[str, tuple[int, int]] = {}
        self._ended: dict[str, int] = {}  # run -> attempts that have ended with an outcome
        self._last: dict[str, int] = {}  # run -> its marks after the last claim, or change of it

    def about_to_claim(self) -> None:
        """A daemon is alone, and takes the claim in the next commit."""
        self._auditor.look(
            None
        )  # the last daemon may have died within a commit that is in the file all the same
        self._marks = {run_id: (marks, is_open) for run_id, marks, is_open in self._auditor.rows(_MARKS)}

    def claimed(self, *, died: bool, boot_id: str, alone: bool) -> None:
        """Its claim is committed. `died`: the daemon before it died by itself. `alone`: nobody else has committed."""
        rebooted = self._boot_id not in (None, boot_id)
        self._boot_id = boot_id
        for run_id, marks, _ in self._auditor.rows(_MARKS):
            self._last[run_id] = marks
            if not alone:
                continue
            before, is_open = self._marks.get(run_id, (0, 0))
            right = 0 if rebooted else before + is_open * died
            self._auditor.check(
                marks == right, f"{run_id} has {right} marks of {before}, died {died}: {marks}"
            )

    def look(self, old: RunModel | None, run: RunModel, attempts: list[tuple[Any, ...]]) -> None:
        """After a commit that changed the run."""
        check = self._auditor.check
        ended = sum(row[3] in ("completed", "failed", "timed_out") for row in attempts)
        progress = ended > self._ended.get(run.run_id, 0)
        self._ended[run.run_id] = ended
        if old is not None:
            before = self._last.get(run.run_id, old.deaths)
            check(run.deaths >= before or run.deaths == 0, f"marks go all at once: {before}, {old} -> {run}")
        self._last[run.run_id] = run.deaths
        if run.status == "running" and (old is None or old.status != "running") and not progress:
            check(run.deaths < DEATHS_MAX, f"a run over which daemons died again and again is held: {run}")
            self._alone(run)

    def _alone(self, run: RunModel) -> None:
        """It has just been admitted."""
        others = self._auditor.rows(
            "SELECT run_id, daemon_deaths FROM runs WHERE status = 'running' AND run_id <> ?", run.run_id
        )
        if run.deaths >= ALONE_FROM:
            self._auditor.check(not others, f"{run} is admitted alone, not beside {others}")
        suspected = [run_id for run_id, deaths in others if deaths >= ALONE_FROM]
        self._auditor.check(not suspected, f"nobody is admitted beside {suspected}: {run}")

    def has_cause(self, run: RunModel) -> bool:
        """Whether the run may be held since daemons died over it."""
        return run.deaths >= DEATHS_MAX
