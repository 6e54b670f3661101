"""The auditor: its own small model of what may happen, which shares no code with the store.

It reads the tables with its own SQL after every commit, hears what clients and runners were told, and what the
outside world was done to. Each `check` is a rule of docs/states.md or of the design; the first broken one ends the
seed.
"""

from __future__ import annotations

import hashlib
import traceback
from pathlib import Path
from typing import Any

import apsw
import trio

from pwf.protocol.frames import Request, Response
from pwf.protocol.runner import WAITING_MARKER
from tests.sim import deaths
from tests.sim.blame import Blame
from tests.sim.code import CodeRules
from tests.sim.endings import Endings
from tests.sim.forks import Forks
from tests.sim.holds import Holds
from tests.sim.ledger import Ledger
from tests.sim.model import DIED, ENDS, RunModel, path_fault
from tests.sim.promises import Promises
from tests.sim.questions import Questions
from tests.sim.said import Said
from tests.sim.settings import SettingsRules
from tests.sim.steering import Steering
from tests.sim.waits import Waits

ENDED = frozenset(ENDS)
SHOWN_AS = {"paused": "paused", "effect_ambiguous": "ambiguous"}  # other holds: held
NEVER_SAID = frozenset({"supervisor.failed", "runner.refused", "runner.protocol", "request.failed"})

SPINS_MAX = 12_000  # points of the store in one minute; busy seeds stay below a quarter of it

_RUN = """SELECT r.run_id, r.workflow, r.status, r.hold, r.node, r.visit, r.attempts, r.pause_requested, r.output,
  r.output_digest, e.revision, e.generation, e.lease_token, q.state, q.due_elapsed_ms, p.state, p.generation,
  (SELECT count(*) FROM requests WHERE run_id = r.run_id AND status = 'pending'), r.daemon_deaths,
  r.max_steps, r.definition_id
FROM runs r JOIN entities e ON e.entity_no = r.run_no LEFT JOIN run_queue q ON q.run_no = r.run_no
LEFT JOIN runners p ON p.entity_no = r.run_no WHERE r.run_id = ?"""
_STANDINGS = """SELECT coalesce('run:' || r.run_id, e.kind || iif(e.name = '', '', ':' || e.name)), e.revision,
  e.generation
FROM entities e LEFT JOIN runs r ON r.run_no = e.entity_no"""
_ATTEMPTS = """SELECT a.attempt, a.node, a.visit, a.status, a.output, a.generation, a.output_digest,
  CASE WHEN a.error IS NOT NULL THEN json_extract(CAST(a.error AS TEXT), '$.code') END
FROM attempts a JOIN runs r ON r.run_no = a.run_no WHERE r.run_id = ? ORDER BY a.attempt"""

_CHILD_OF_DELETED = """SELECT 1 FROM runs c JOIN resources r ON r.resource_no = c.called_by
WHERE c.run_id = ? AND (r.deleting_wall_ms IS NOT NULL OR r.gone_wall_ms IS NOT NULL)"""

#: The steps that a process left without an outcome; where settings overtook a step, its run goes on without that one.
_LEFT_BEHIND = """SELECT a.node, a.status FROM attempts a JOIN runs r USING (run_no)
WHERE r.run_id = ? AND a.generation = ? AND a.status = 'interrupted'
  AND NOT EXISTS (SELECT 1 FROM events e WHERE e.entity_no = r.run_no AND e.kind = 'settings_overtook')"""


class Violation(Exception):
    """A rule is broken."""


class Auditor:
    """One per world."""

    def __init__(self, world: Any) -> None:
        self.commits = 0
        self.steering = Steering(lambda: self.commits)
        self.ledger = Ledger(self, world.outside)
        self.waits = Waits(self, world)
        self.questions = Questions(self, world)
        self.forks = Forks(self)
        self.holds = Holds(self)
        self.said = Said(self, world)
        self.promises = Promises(self)
        self.endings = Endings(self, world)
        self.blame = Blame(self)
        self.code = CodeRules(self, world)
        self.settings = SettingsRules(self)
        self.acknowledged: set[str] = set()  # runs that a client was told of
        self.runs: dict[str, RunModel] = {}
        self.liars: set[str] = set()  # runs whose runner has lied
        self._world = world
        self._connection: apsw.Connection | None = None
        self._revisions: dict[str, tuple[int, int]] = {}
        self.pruned: set[str] = set()
        self._epoch = 0
        self._epochs: set[int] = set()
        self._was_taken_over = False
        self._seen: dict[tuple[str, int], tuple[str, str, str | None]] = {}  # what each revision showed
        self._minute, self._spins = 0, 0

    def check(self, holds: object, rule: str) -> None:
        """Raise `Violation`, and end the seed, when a rule does not hold."""
        if not holds:
            self._world.fail(rule)
            raise Violation(rule)

    def time_passes(self) -> None:
        """The store is not busy all the time: nobody spins."""
        minute = int(trio.current_time() // 60)
        self._spins = self._spins + 1 if minute == self._minute else 0
        self._minute = minute
        self.check(self._spins < SPINS_MAX, f"nobody spins in minute {minute}")

    # --- looking at the file --------------------------------------------------------------------------------

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Read what is committed."""
        if self._connection is None:
            connection = apsw.Connection(str(self._world.database), flags=apsw.SQLITE_OPEN_READWRITE)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.pragma("query_only", True)
            self._connection = connection
        return self._connection.execute(sql, parameters).fetchall()

    def detach(self) -> None:
        """Close the auditor's own connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def look_at_backup(self, file: Path) -> None:
        """A copy that was made while others write: all that anybody was told until now is in it."""
        own, self._connection = self._connection, apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            self.promises_hold()
        finally:
            self._connection.close()
            self._connection = own

    def look(self, life: Any) -> None:
        """After each commit: everything that changed, against the model."""
        self.commits += 1
        if life is not None and life.scheduler is not None:
            # A reconcile may exceed it.
            used, capacity = life.scheduler.used, self._world.mix.capacity + self._world.managers.active
            self.check(used <= capacity, f"{used} runners are no more than the capacity of {capacity}")
            self._world.managers.look()
        present = set()
        for entity_id, revision, generation in self.rows(_STANDINGS):
            present.add(entity_id)
            before = self._revisions.get(entity_id, (0, 0))
            if (revision, generation) != before:
                fenced = life is not None and 0 < life.epoch < self._epoch
                self.check(not fenced, f"a daemon that was taken over from writes nothing: {entity_id}")
                uncounted = (
                    entity_id.startswith(("resource:", "channel:", "session:")) and revision == before[0]
                )
                self.check(
                    revision > before[0] or uncounted,
                    f"the revision of {entity_id} only grows: {before} -> {revision}",
                )
                self.check(generation >= before[1], f"the generation of {entity_id} never falls")
                self._revisions[entity_id] = (revision, generation)
                if entity_id.startswith("run:"):
                    self._look_at_run(entity_id[4:])
        self._look_at_removed(present)
        self.endings.look_at_custody()
        self.waits.looked()

    def _look_at_removed(self, present: set[str]) -> None:
        """Only runs that have ended go, all that is said of them with them, and only when somebody prunes."""
        gone = self._revisions.keys() - present
        for name in [name for name in sorted(gone) if name.startswith("submission:")]:
            run_id = name.removeprefix("submission:").rpartition("/")[0]
            self.check(f"run:{run_id}" in gone, f"a submission goes with its run alone: {name}")
            del self._revisions[name]
        for name in [name for name in sorted(gone) if name.startswith(("resource:", "session:"))]:
            self.check(self.steering.might("", "state.prune"), f"nobody has pruned: {name}")
            del self._revisions[name]
        for name in sorted(self._revisions.keys() - present):
            run = self.runs.get(name.removeprefix("run:"))
            self.check(run is not None and run.status in ENDED, f"only an ended run is removed: {name} {run}")
            assert run is not None
            self.check(self.steering.might("", "state.prune"), f"nobody has pruned: {name}")
            self.ledger.gone(run.run_id)
            self.waits.gone(run.run_id)
            self.questions.gone(run.run_id)
            self.endings.gone(run.run_id)
            del self._revisions[name], self.runs[run.run_id]
            self.pruned.add(run.run_id)

    def model_of(self, definition: str) -> Any:
        """The plain model of a workflow, as it stood in its file once."""
        return self._world.model_of(definition)

    def attempts(self, run_id: str) -> list[tuple[Any, ...]]:
        """Every attempt of a run, in order."""
        return self.rows(_ATTEMPTS, run_id)

    def _look_at_run(self, run_id: str) -> None:
        new = RunModel(*self.rows(_RUN, run_id)[0])
        self._world.note(
            "run", id=run_id, at=f"{new.node}:{new.visit}", is_=new.status, hold=new.hold, rev=new.revision
        )
        self.check(run_id not in self.pruned, f"a run that was removed does not come back: {new}")
        self._one_rule(new)
        old = self.runs.get(run_id)
        if old is not None:
            same = (old.status, old.output, old.output_digest) == (new.status, new.output, new.output_digest)
            ended = old.status in ENDED
            self.check(same or not ended, f"run {run_id} ended as {old.status} and never changes: {new}")
            begun = old.pause_requested and new.pause_requested and new.attempts > old.attempts
            self.check(not begun, f"a pause takes effect at the next boundary: {old} -> {new}")
        else:
            self.forks.look(new)
        self.code.look(old, new)
        self.runs[run_id] = new
        status = SHOWN_AS.get(new.hold, "held") if new.hold is not None else new.status
        self._seen[run_id, new.revision] = (status, new.node, new.hold)
        ambiguous = self.ledger.look(new)
        attempts = self.said.look(new, self.attempts(run_id))
        self.holds.look(old, new, attempts, ambiguous=ambiguous)
        self.waits.look(new, attempts)
        self.questions.look(new, attempts)
        self.settings.look(new, attempts)
        self.endings.look(new, attempts)
        self.blame.look(old, new, attempts)
        fault = path_fault(self.model_of(new.definition), new, attempts, self.forks.begins.get(run_id))
        self.check(fault is None, f"run {run_id} goes only where its graph leads: {fault}; {attempts}")
        self._deaths_happened(new, attempts)
        if new.status == "cancelled":
            may = self.steering.might(run_id, "run.cancel") or bool(self.rows(_CHILD_OF_DELETED, run_id))
            self.check(may, f"only a client cancels run {run_id}")
        self._look_at_history(new)

    def _look_at_history(self, run: RunModel) -> None:
        """One event for each revision, none missing."""
        ((count, last),) = self.rows(
            "SELECT count(*), max(revision) FROM events JOIN runs ON run_no = entity_no WHERE run_id = ?",
            run.run_id,
        )
        whole = (count, last) == (run.revision, run.revision)
        self.check(whole, f"{run} has an event for each revision: {count}, the last {last}")

    def _deaths_happened(self, run: RunModel, attempts: list[tuple[Any, ...]]) -> None:
        """A step fails of a death only when its own process ended, and neither by the daemon's hand nor with it."""
        nodes = self.model_of(run.definition).nodes
        dead = [process for process in self._world.machine.everyone() if process.died]
        for _, node, _, status, _, generation, code in attempts:
            if not generation or code != DIED or status not in ("failed", "unknown"):
                continue
            marker = f":{run.run_id}:{generation}"
            if nodes[node].effect in (
                "manual",
                "parts",
            ):  # what is reported after an observation was another process
                marker = f":{run.run_id}:"
            died = any(one.promised == run.run_id or marker in one.marker for one in dead)
            self.check(died, f"a process of {marker} ended by itself at {node}: {attempts}")

    def _one_rule(self, run: RunModel) -> None:
        """No run is non-terminal without a live owner, a due time, an open request or a hold with a reason."""
        owned = run.lease_token is not None
        asked = run.requests_open
        sound = {
            "queued": run.queue in ("ready", "later") and not owned and not asked and run.hold is None,
            "running": run.queue == "live"
            and owned
            and run.runner_generation == run.generation
            and not asked,
            "waiting": run.queue is None and not owned and asked == 1,
            "held": run.queue is None and not owned and not asked and run.hold is not None,
        }.get(run.status, run.queue is None and not owned and not asked and run.hold is None)
        self.check(sound, f"the one rule holds for {run}")

    # --- the daemon -----------------------------------------------------------------------------------------

    def claimed(self, life: Any, epoch: int) -> None:
        """A daemon learns that it has the claim, which may be late: another may have taken it over since."""
        self.check(epoch not in self._epochs, f"no epoch is given twice: {epoch}")
        ((stored,),) = self.rows("SELECT generation FROM entities WHERE entity_no = 0")
        self.check(epoch <= stored, f"the claim of epoch {epoch} is in the store, which is at {stored}")
        self._epochs.add(epoch)
        self._was_taken_over |= life is None or len(self._world.alive) > 1
        self._epoch = max(epoch, self._epoch)

    def _is_claimed_anew(self) -> bool:
        """Whether the store has a claim that its daemon has not learned of yet."""
        return bool(self.rows("SELECT 1 FROM entities WHERE entity_no = 0 AND generation > ?", self._epoch))

    def daemon_died(self, life: Any, group: BaseExceptionGroup[Any]) -> None:
        """A daemon may die of a disk that is broken just now or of a lost claim, and of nothing else."""
        for error in _leaves(group):
            excused = deaths.excused(type(error).__name__, life.wounds, taken_over=self.taken_over(life))
            self.check(excused, f"no daemon dies of {error!r}\n{_traceback(error)}")

    def taken_over(self, life: Any) -> bool:
        """Whether the store says that another daemon has the claim."""
        return bool(self.rows("SELECT 1 FROM entities WHERE entity_no = 0 AND generation > ?", life.epoch))

    def logged(self, life: Any, event: str, fields: dict[str, object]) -> None:
        """Some log lines are bugs."""
        if event in NEVER_SAID and not (event == "runner.refused" and fields["run_id"] in self.liars):
            text = str(fields.get("error"))
            names = [name for name in deaths.CAUSES if name in text]
            taken_over = "ClaimLost" in names and self.taken_over(life)
            excused = any(deaths.excused(name, life.wounds, taken_over=taken_over) for name in names)
            self.check(excused, f"nothing logs {event}: {fields}")
        self.check(fields.get("hold") != "broken", f"no run is held as broken: {fields}")

    # --- clients --------------------------------------------------------------------------------------------

    def sent(self, request: Request) -> None:
        """A client sends a command, for the first time or again."""
        self.steering.sent(request)
        self.said.sent(request)
        self.promises.sent(request)
        self.endings.sent(request)
        self.code.sent(request)

    def answered(self, request: Request, response: Response) -> None:
        """A client was told an outcome: from here on it is a promise."""
        self._world.note("answered", op=request.operation, id=request.request_id, outcome=response.outcome)
        self.promises.answered(request, response)
        self.steering.answered(request)
        self.endings.answered(request)

    def refused(self, request: Request, response: Response) -> None:
        """A client was told that nothing happened: it sends again."""
        fenced = response.outcome == "unavailable" or self._was_taken_over or self._is_claimed_anew()
        self.check(fenced, f"only a daemon that was taken over from says claim_lost: {response}")

    def shown(self, run_id: str, document: dict[str, Any]) -> None:
        """A client that follows a run holds this of it: a state that the store had after some commit."""
        summary = document["summary"]
        seen = self._seen.get((run_id, summary["revision"]))
        told = (summary["status"], summary.get("node"), summary.get("hold"))
        self.check(told == seen, f"{run_id} was {seen} at revision {summary['revision']}, not {told}")
        outcomes = [step["status"] for step in document.get("steps", ())]
        self.check(
            len(outcomes) == document.get("steps_total", 0), f"every step of {run_id} is shown: {outcomes}"
        )

    def shown_at_rest(self, run_id: str, document: dict[str, Any]) -> None:
        """Nothing has changed for a while: a client that follows the run knows its end."""
        run, summary = self.runs[run_id], document["summary"]
        self.check(summary["revision"] == run.revision, f"who follows {run} sees its end: {summary}")

    # --- runners --------------------------------------------------------------------------------------------

    def launched(self, process: Any, launch: Any) -> None:
        """Custody is committed before work starts."""
        process.at_work = True
        rows = self.rows(
            "SELECT generation, pid FROM runners JOIN runs ON run_no = entity_no WHERE run_id = ?",
            launch.run_id,
        )
        expected = (launch.generation, process.identity.pid)
        run = self.runs.get(launch.run_id)
        stale = run is None or run.generation > launch.generation or run.status != "running"
        self.check(
            rows == [expected] or stale, f"custody of {process.identity} is stored before its launch: {rows}"
        )
        rows = self._rows_of(process)
        self.check(len(rows) <= 1, f"{process.identity} stands in one row at most: {rows}")
        fence = f"{process.marker}".endswith(f":{launch.run_id}:{launch.generation}")
        self.check(fence, f"the marker {process.marker} is of run and generation")
        if run is not None:
            self.said.launched(launch, run, stale=stale)
            self.code.launched(process, launch, run)

    def judges(self, process: Any, launch: Any) -> None:
        """An errand: custody is committed before it works, and its run does not go on meanwhile."""
        process.at_work = True
        rows = self.rows(
            "SELECT e.name, p.generation FROM runners p JOIN entities e USING (entity_no) WHERE p.pid = ?"
            " AND p.start_tick = ?",
            process.identity.pid,
            process.identity.start_tick,
        )
        markers = [f"{name}:{generation}" for name, generation in rows]
        fits = all(process.marker.endswith(f":{marker}") for marker in markers)
        self.check(fits and len(markers) <= 1, f"custody of {process.marker} is its own: {rows}")
        run = self.runs.get(launch.run_id)
        stands = run is None or run.status in ("waiting", *ENDED) or not markers
        self.check(stands, f"{run} stands still while {process.marker} judges")

    def stays(self, process: Any, last: str, *, reads: bool) -> None:
        """A process that waits for a further run has nothing of the last one (marker, row, step), and can still read.

        `last`: its marker of that run.
        """
        self.check(
            process.marker == WAITING_MARKER, f"{process.marker} is given up before its process waits again"
        )
        rows = self._rows_of(process)
        self.check(not rows, f"a process that waits again stands in no row: {rows}")
        self.check(reads, "a process that waits again can read the values of its next run")
        _, run_id, generation = last.split(":")
        left = self.rows(_LEFT_BEHIND, run_id, int(generation))
        self.check(not left, f"a process that waits again has ended each step of {last}: {left}")

    def _rows_of(self, process: Any) -> list[Any]:
        identity = process.identity
        query = "SELECT entity_no, generation FROM runners WHERE pid = ? AND start_tick = ?"
        return self.rows(query, identity.pid, identity.start_tick)

    def step_begins(self, process: Any, node: str, visit: int, attempt: int) -> None:
        """At no instant do two children of one step live (R7)."""
        others = [
            other.marker
            for other in self._world.machine.living()
            if other.run_id == process.run_id and other.marker != process.marker and other.at_work
        ]
        self.check(not others, f"{process.marker} begins a step while {others} live")

    def applies(self, process: Any, node: Any, effect_key: str) -> None:
        """The ledger has the effect before the world is touched, and a manual one happens once."""
        run = self.runs.get(process.run_id)
        self.ledger.applies(effect_key, node.effect, ended=run is None or run.status in ENDED)
        living = [p for p in self._world.machine.living() if p.at_work]
        rival = [p.marker for p in living if p.run_id == process.run_id]
        self.check(set(rival) == {process.marker}, f"one generation at a time applies effects: {rival}")

    def runner_answered(self, process: Any, message: Any, reply: Any) -> None:
        """What a runner was told is committed."""
        self.promises.runner_answered(process, message, reply)

    # --- the end --------------------------------------------------------------------------------------------

    def unended(self) -> list[RunModel]:
        """What has not come to an end."""
        return [run for run in self.runs.values() if run.status not in ENDED]

    def at_rest(self) -> None:
        """After everything has ended nothing of it is left: no process, no capacity in use, no runner row."""
        standing_by = WAITING_MARKER  # has no run yet
        living = [p.marker for p in self._world.machine.living() if p.marker != standing_by]
        self.check(not living, f"no process is left: {living}")
        rows = self.rows("SELECT entity_no, state FROM runners")
        self.check(not rows, f"no runner row is left: {rows}")
        if self._world.life is not None:
            scheduler = self._world.life.scheduler
            self.check(scheduler.used == 0, f"no capacity is in use: {scheduler.used}")
            self.check(scheduler.free == scheduler.capacity, f"all of it is free: {scheduler.free}")
        self.promises_hold()

    def promises_hold(self) -> None:
        """Everything that anybody was told is in the file."""
        self.promises.hold()
        self.ledger.hold()

    def digest(self) -> str:
        """One number for the whole trace: equal traces, equal digests."""
        return hashlib.sha256("\n".join(self._world.trace).encode()).hexdigest()[:16]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-3_000:]
