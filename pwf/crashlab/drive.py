"""Drives runs of the lab to their ends: starts them, answers, settles what only a person could, and kills the daemon.

One thread, one client; a batch of runs goes at the same time. A runner ends itself where its plan says so; for the
daemon, all runs of a batch first come to their points, and one kill serves them all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from pwf.client.sync import SyncClient
from pwf.crashlab.experiments import ANSWERED, OPEN, WAITING, Crash, Path, stand_in_outputs
from pwf.crashlab.home import ScratchHome
from pwf.crashlab.observe import LabRun, Parked, look_back
from pwf.crashlab.samples import stray
from pwf.errors import Conflict, InvalidAnswer, NotFound, Rejected
from pwf.protocol.agents import PERSON
from pwf.protocol.crashlab import PART_PHASES, STAND_IN_AGENT, LabPlan, LabRecord, decode_record, encode_plan
from pwf.protocol.decision_spec import output_of
from pwf.protocol.decisions import DecisionListPayload, DecisionView
from pwf.protocol.effects import ResolvePayload, read_effect_key
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.operations import Explained, StartPayload
from pwf.protocol.origin import Origin
from pwf.protocol.views import ENDED, RequestView, RunSummary, RunView
from pwf.values import canonical

POLL_S = 0.01
STUCK_S = 20.0  # without any change, and without a step that executes
EXECUTING_S_MAX = 600.0
LATER_S_MAX = 30.0  # a retry that is due later than this is not waited for
TIMER_MS, TIMER_WATCHED_MS = 30, 1_500
REPORTED = "reported"
PARKED = ("due_later", "request_open")
LAB_POINTS = frozenset({OPEN, ANSWERED, WAITING})


class Driver:
    """Runs of one workflow with one input."""

    def __init__(
        self,
        home: ScratchHome,
        graph: WorkflowGraph,
        workflow: str,
        origin: Origin,
        input: object,
        *,
        stand_ins: bool,
        headless: bool,
    ) -> None:
        self.runs = 0
        self._home = home
        self._graph = graph
        self._workflow = workflow
        self._origin = origin
        self.input = input
        self._stand_ins = stand_ins
        self._headless = headless

    def batch(self, crashes: Sequence[Crash]) -> list[LabRun]:
        """Run them all at once, to their ends."""
        runs = [self._start(crash) for crash in crashes]
        daemon = [run for run in runs if run.crash.victim == "daemon"]
        if daemon:
            while not all(run.arrived or run.over for run in daemon):
                self._round(runs)
            for run in daemon:
                run.struck = run.arrived
                if run.arrived and run.crash.points[0].phase == ANSWERED:
                    self._answer(run)
            if any(run.struck for run in daemon):
                self._home.kill_daemon()
        while not all(run.over for run in runs):
            self._round(runs)
        records = self._records({run.run_id for run in runs})
        for run in runs:
            look_back(run, self._home.client, records[run.run_id])
        return runs

    # --- starting -------------------------------------------------------------------------------------------

    def _start(self, crash: Crash) -> LabRun:
        self.runs += 1
        run_id = f"lab-{self.runs}"
        scratch = self._home.scratch / run_id
        scratch.mkdir()
        watched = any(point.phase == WAITING for point in crash.points)
        plan = LabPlan(
            home_id=self._home.home_id,
            stand_ins=self._stand_ins,
            kills=tuple(point for point in crash.points if point.phase not in LAB_POINTS),
            victim="daemon" if crash.victim == "daemon" else "runner",
            outputs=self._outputs(crash.path),
            twice=crash.twice,
            timer_ms=TIMER_WATCHED_MS if watched else TIMER_MS,
        )
        self._home.lab.plan(run_id).write_bytes(encode_plan(plan))
        payload = StartPayload(
            workflow=self._workflow,
            origin=self._origin,
            input=msgspec.Raw(canonical(with_scratch(self.input, str(scratch)), what="input")),
            run_id=run_id,
            agent=STAND_IN_AGENT if self._headless else PERSON,
        )
        self._home.client.begin(payload)
        return LabRun(run_id, crash, scratch, moved_at=time.monotonic())

    def _outputs(self, path: Path) -> dict[str, tuple[msgspec.Raw, ...]]:
        found = stand_in_outputs(path, self._graph, effects=self._stand_ins, agents=self._headless)
        return {
            node: tuple(msgspec.Raw(canonical(value, what=f"the output of {node}")) for value in values)
            for node, values in found.items()
        }

    # --- one look at each run -------------------------------------------------------------------------------

    def _round(self, runs: list[LabRun]) -> None:
        for run in runs:
            if not run.over and not (run.arrived and not run.struck):
                self._look(run)
        time.sleep(POLL_S)

    def _look(self, run: LabRun) -> None:
        found: Explained = self._home.client.call("run.status", run_id=run.run_id)
        summary, code = found.summary, found.explanation.code
        if self._has_arrived(run, summary, code):
            run.arrived = True
            return
        if summary.status in ENDED:
            run.over = True
            return
        seen = (summary.status, summary.revision, summary.generation, code)
        if seen != run.last_seen:
            run.last_seen, run.moved_at = seen, time.monotonic()
        try:
            if summary.status == "waiting":
                self._answer(run)
            elif summary.status == "ambiguous":
                self._settle(run, summary.node or "", found.explanation.reason)
            elif summary.status in ("held", "paused") or self._is_stuck(run, found):
                self._give_up(run, found)
        except (Rejected, Conflict, NotFound):
            return  # it moved on meanwhile: the next look sees where to

    def _has_arrived(self, run: LabRun, summary: RunSummary, code: str) -> bool:
        """Whether it is at the point where the daemon is to be killed."""
        if run.crash.victim != "daemon" or run.struck:
            return False
        point = run.crash.points[0]
        if point.phase not in LAB_POINTS and not self._home.lab.reached(run.run_id, point).exists():
            return False
        if point.phase in ("begun", "done", *PART_PHASES) or summary.status in ENDED:
            return point.phase not in LAB_POINTS
        parked = {WAITING: ("due_later",), REPORTED: PARKED}.get(point.phase, ("request_open",))
        view: RunView = self._home.client.call("run.view", run_id=run.run_id)
        attempts = [step for step in view.steps if step.node == point.node]
        if max((step.visit for step in attempts), default=0) < point.visit:
            return False
        # The newest question may be an earlier visit's, answered, while this visit has not asked yet.
        if view.request is not None and view.request.node == point.node and view.request.status == "pending":
            run.requests.setdefault((point.node, point.visit), set()).add(view.request.request_id)
        if point.phase == REPORTED and not any(
            step.status == "active" for step in attempts if step.visit == point.visit
        ):
            return True  # what was reported is committed: that is the moment
        return summary.node == point.node and code in parked

    def _answer(self, run: LabRun) -> None:
        view: RunView = self._home.client.call("run.view", run_id=run.run_id)
        request = view.request
        if request is None or request.status != "pending":
            return
        visit = max((step.visit for step in view.steps if step.node == request.node), default=1)
        key = (request.node, visit)
        run.requests.setdefault(key, set()).add(request.request_id)
        answer = run.crash.path.value(request.node, visit)
        if run.crash.stray_at == request.node:
            answer = stray(self._graph.node(request.node))
        try:
            answer = self._give(request, answer)
        except InvalidAnswer as error:
            run.refused_answer = error.message
            self._cancel(run)
            return
        run.answers[key] = answer

    def _give(self, request: RequestView, value: Any) -> Any:
        """As a person, or in place of an agent; what comes of it. Raises `InvalidAnswer` when it is not taken."""
        if REQUESTS[request.kind].decided:
            return _decide(self._home.client, request.request_id, value)
        if not REQUESTS[request.kind].submitted:
            self._home.client.answer(request.request_id, value)
            return value
        submitted = self._home.client.submit(request.request_id, value)
        if submitted.verdict == "rejected":
            raise InvalidAnswer(submitted.reason or "it was rejected")
        return value

    def _settle(self, run: LabRun, node: str, reason: str) -> None:
        """Do what a person would who knows the truth: the ledger has it."""
        view: RunView = self._home.client.call("run.view", run_id=run.run_id)
        effect = next((one for one in view.effects if one.status == "ambiguous"), None)
        if effect is None:
            return
        run.parked.append(Parked(effect.node, "effect_ambiguous", reason))
        meant = ("effect", effect.node, effect.visit, read_effect_key(effect.effect_key)[3])
        done = [
            record
            for record in self._records({run.run_id})[run.run_id]
            if (record.kind, record.node, record.visit, record.part) == meant
        ]
        payload = ResolvePayload(
            verdict="happened" if done else "not_happened",
            output=done[-1].output if done else msgspec.Raw(b"null"),
            effect_key=effect.effect_key,
        )
        self._home.client.call("effect.resolve", payload, run_id=run.run_id)

    def _is_stuck(self, run: LabRun, found: Explained) -> bool:
        code, later = found.explanation.code, found.explanation.changes_at_ms
        waited = time.monotonic() - run.moved_at
        if code in ("executing", "launching", "capacity"):
            return waited > EXECUTING_S_MAX
        if code in ("due_later", "retry_later") and later is not None:
            return later / 1000 - time.time() > LATER_S_MAX or waited > LATER_S_MAX + STUCK_S
        return waited > STUCK_S

    def _give_up(self, run: LabRun, found: Explained) -> None:
        """A run that only a person, or a long time, would move: note why, and end it."""
        hold = found.summary.hold
        if hold is not None:
            run.parked.append(Parked(found.summary.node or "", hold, found.explanation.reason))
        else:
            run.stuck = f"{found.explanation.code}: {found.explanation.reason}"
        self._cancel(run)

    def _cancel(self, run: LabRun) -> None:
        self._home.client.call("run.cancel", run_id=run.run_id)
        run.over = True

    def _records(self, wanted: set[str]) -> dict[str, list[LabRecord]]:
        found: dict[str, list[LabRecord]] = {run_id: [] for run_id in wanted}
        for line in self._home.lab.ledger.read_bytes().splitlines():
            record = decode_record(line)
            if record.run_id in wanted:
                found[record.run_id].append(record)
        return found


def _decide(client: SyncClient, decision_id: str, answer: Any) -> object:
    """Make the choice of a path, with a text where it needs one; the output that comes of it."""
    seen: DecisionView = client.call("decision.list", DecisionListPayload(decision_id=decision_id)).decisions[
        0
    ]
    choice, text = str(answer["choice"]), answer.get("text")
    wanted = next((one.text for one in seen.choices if one.id == choice), None)
    text = None if wanted is None else (text or "text")[: wanted.max_chars]
    client.decide(seen, choice, text)
    return output_of(choice, text)


def with_scratch(value: object, folder: str) -> object:
    """The value, with `{scratch}` in its texts replaced by a folder."""
    if isinstance(value, str):
        return value.replace("{scratch}", folder)
    if isinstance(value, list):
        return [with_scratch(item, folder) for item in value]
    if isinstance(value, dict):
        return {key: with_scratch(item, folder) for key, item in value.items()}
    return value
