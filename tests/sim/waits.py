"""The auditor's model of time: nothing that waits goes on before its time, and no timer is forgotten.

A relative wait counts true time, in which the machine sleeps and is down, as long as nobody sets the clock between. An
absolute one goes by the wall clock, which may be set: it may be over once the clock has shown its time. What the
daemon has read from the clocks since the last commit is kept, since a commit is seen a moment after it was decided.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pwf.clock import Now
from tests.sim.model import RunModel

DELAY_MS_MAX = 15_000  # of the timers and back-offs that seeds draw
LATE_MS_MAX = 20_000  # the bound of a lost wake-up, restarts, and room
FAILED = ("failed", "timed_out")


class Moment(NamedTuple):
    """When something was seen: no clock that somebody may set is in it, only how often that was done."""

    true_ms: int
    steps: int


class Timer(NamedTuple):
    """What a runner asked for."""

    at: Moment
    delay_ms: int | None
    wall_ms: int | None


class Waits:
    """Kept by the auditor."""

    def __init__(self, auditor: Any, world: Any) -> None:
        self._auditor = auditor
        self._world = world
        self._readings: list[
            tuple[Moment, int]
        ] = []  # of the store's clock, since the last look: (when, wall)
        self._last: Moment | None = None  # of those that belong to commits that were looked at
        self._died_at: Moment | None = None  # a daemon's last, until the next one's first commit is looked at
        self._asked: dict[tuple[str, int], Timer] = {}
        self._queued: dict[str, tuple[int, int]] = {}  # run -> revision, and when its time has truly come
        self._failed: dict[tuple[str, int], Moment] = {}
        self._known: dict[str, int] = {}  # run -> attempts that were looked at
        self._shown_ms: dict[
            str | tuple[str, int], int
        ] = {}  # the latest time that the clock has shown it while it waits
        self._began_wall_ms: dict[str, int] = {}
        self._not_before_ms: dict[str, int] = {}

    def read(self, now: Now) -> None:
        """The daemon reads the clocks."""
        self._readings.append((self.moment(), now.wall_ms))

    def moment(self) -> Moment:
        """Just now."""
        return Moment(self._world.machine.true_ms, self._world.machine.steps)

    def looked(self) -> None:
        """What was read until here belongs to commits that were looked at."""
        latest_ms = self._latest_wall_ms()
        for waiting, shown_ms in self._shown_ms.items():
            self._shown_ms[waiting] = max(shown_ms, latest_ms)
        self._last = self._readings[-1][0] if self._readings else self._last
        self._died_at = None
        self._readings.clear()

    def begins(self) -> None:
        """A daemon starts. What the one before committed as it died may be seen only now."""
        self._died_at = self._died_at or (self._readings[0][0] if self._readings else self._last)

    def _shown(self, waiting: str | tuple[str, int]) -> int:
        return max(self._shown_ms.pop(waiting, 0), self._latest_wall_ms())

    def earliest(self) -> Moment:
        """When the last commit may have been decided first."""
        if self._died_at is not None:
            return self._died_at
        return self._readings[0][0] if self._readings else self.moment()

    def earliest_wall_ms(self) -> int:
        """What the clock showed at the earliest when the last commit was decided."""
        walls = [wall_ms for _, wall_ms in self._readings]
        return min(walls, default=self._world.machine.now().wall_ms)

    def _latest_wall_ms(self) -> int:
        walls = [wall_ms for _, wall_ms in self._readings]
        return max(walls, default=self._world.machine.now().wall_ms)

    # --- too early --------------------------------------------------------------------------------------------

    def timer_asked(self, run_id: str, message: Any) -> None:
        """A runner is about to ask for a timer."""
        timer = Timer(self.moment(), message.delay_ms, message.wall_ms)
        self._asked.setdefault((run_id, message.attempt), timer)
        self._shown_ms.setdefault((run_id, message.attempt), 0)

    def starts_at(self, run_id: str, at_ms: int) -> None:
        """A client has asked for a start at a wall time."""
        self._not_before_ms[run_id] = at_ms
        self._start_in_time(run_id)

    def _start_in_time(self, run_id: str) -> None:
        began_ms = self._began_wall_ms.get(run_id)
        if began_ms is not None:
            early_ms = self._not_before_ms.get(run_id, 0) - began_ms
            self._auditor.check(early_ms <= 0, f"run {run_id} does not start {early_ms} ms too early")

    def look(self, run: RunModel, attempts: list[tuple[Any, ...]]) -> None:
        """After a commit that changed the run."""
        if run.run_id not in self._began_wall_ms:
            self._shown_ms.setdefault(run.run_id, 0)
            if attempts:
                self._began_wall_ms[run.run_id] = self._shown(run.run_id)
                self._start_in_time(run.run_id)
        nodes = self._auditor.model_of(run.definition).nodes
        for number, node, visit, status, *_ in attempts[max(0, self._known.get(run.run_id, 0) - 2) :]:
            key = (run.run_id, number)
            timer = self._asked.get(key)
            if timer is not None and status == "completed":
                self._fired_in_time(key, timer)
                del self._asked[key]
                self._shown_ms.pop(key, None)
            if status in FAILED:
                self._failed.setdefault(key, self.earliest())
            before = self._failed.get((run.run_id, number - 1))
            if before is not None and number > self._known.get(run.run_id, 0):
                failures = _failures(attempts[: number - 1], node, visit)
                if failures:
                    self._tried_in_time(key, before, nodes[node].backoff_ms * 2 ** (failures - 1))
        self._known[run.run_id] = len(attempts)
        self._note_queued(run)

    def _fired_in_time(self, key: tuple[str, int], timer: Timer) -> None:
        if timer.delay_ms is not None:
            now = self.moment()
            early_ms = timer.at.true_ms + timer.delay_ms - now.true_ms
            early_ms = early_ms if timer.at.steps == now.steps else 0
        else:
            early_ms = (timer.wall_ms or 0) - self._shown(key)
        self._auditor.check(early_ms <= 0, f"the timer {key} does not fire {early_ms} ms too early: {timer}")

    def _tried_in_time(self, key: tuple[str, int], failed: Moment, backoff_ms: int) -> None:
        now = self.moment()
        early_ms = failed.true_ms + backoff_ms - now.true_ms
        fine = early_ms <= 0 or failed.steps != now.steps
        self._auditor.check(fine, f"attempt {key} waits for its back-off of {backoff_ms} ms, {early_ms} more")

    # --- too late ---------------------------------------------------------------------------------------------

    def _note_queued(self, run: RunModel) -> None:
        if run.queue != "later" or run.due_elapsed_ms is None:
            self._queued.pop(run.run_id, None)
            return
        machine = self._world.machine
        left_ms = run.due_elapsed_ms - machine.now().elapsed_ms
        if run.run_id not in self._queued or left_ms <= DELAY_MS_MAX:
            self._queued[run.run_id] = (run.revision, machine.true_ms + min(left_ms, DELAY_MS_MAX))

    def none_is_late(self, runs: dict[str, RunModel]) -> None:
        """While nothing fails, a timer whose time has come is not still waiting (T2, T4)."""
        for run_id, (revision, due_ms) in self._queued.items():
            late_ms = self._world.machine.true_ms - max(due_ms, self._world.calm_since_ms)
            run = runs[run_id]
            waits = run.queue == "later" and run.revision == revision and run.status == "queued"
            if waits and late_ms >= LATE_MS_MAX:  # a row that waits for capacity now counts no revision
                queued = self._auditor.rows(
                    "SELECT state FROM run_queue JOIN runs USING (run_no) WHERE run_id = ?", run_id
                )
                self._auditor.check(queued != [("later",)], f"no timer is late by {late_ms} ms: {run}")

    def gone(self, run_id: str) -> None:
        """The run was removed."""
        self._queued.pop(run_id, None)


def _failures(before: list[tuple[Any, ...]], node: str, visit: int) -> int:
    """How often this visit has failed, where its last try did; 0 where that ended otherwise."""
    tries = [row[3] for row in before if (row[1], row[2]) == (node, visit)]
    if not tries or tries[-1] not in FAILED:
        return 0
    return sum(status in FAILED for status in tries)
