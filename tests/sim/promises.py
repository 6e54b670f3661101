"""What was promised: to clients by an answer, to runners by a reply. All of it must be in the file for ever.

Also predicts which outcomes of a command are legal, from the states that its run was in between the first send
and the answer.
"""

from __future__ import annotations

import json
from typing import Any

from pwf.protocol.frames import Request, Response
from tests.sim.said import compact

#: operation -> the kind of the event at the revision that an accepted answer names
EVENT_OF = {
    "run.start": ("started",),
    "run.restart": ("started",),
    "run.fork": ("started",),
    "run.pause": ("paused",),
    "run.resume": ("resumed",),
    "run.cancel": ("cancelled",),
    "follow_up.queue": ("follow_up_queued",),
    "follow_up.remove": ("follow_up_removed",),
    "settings.change": ("settings_changed",),
    "request.answer": ("step_finished",),
    "request.submit": ("step_finished", "submitted"),
    "decision.answer": ("step_finished",),
    "effect.resolve": ("effect_resolved",),
}
ENDED = frozenset({"completed", "failed", "timed_out", "cancelled"})


class Promises:
    """Kept by the auditor."""

    def __init__(self, auditor: Any) -> None:
        self._auditor = auditor
        self._states: dict[str, set[tuple[str, str | None]]] = {}  # request -> states of its run meanwhile
        self._over: dict[str, frozenset[str]] = {}  # restart -> runs that had ended when it was sent first
        self._first: dict[str, tuple[str, str | None, str | None]] = {}  # request -> (outcome, code, run)
        self._events: dict[tuple[str, int], tuple[str, ...]] = {}
        self._ended: dict[str, str] = {}
        self._inputs: dict[str, bytes] = {}
        self._answers: dict[tuple[str, str], bytes] = {}
        self._attempts: dict[tuple[str, int, int], tuple[str, str]] = {}

    # --- clients --------------------------------------------------------------------------------------------

    def sent(self, request: Request) -> None:
        """Remember the state that the run was in."""
        run = self._auditor.runs.get(request.run_id or "")
        self._states.setdefault(request.request_id, set()).add(
            ("", None) if run is None else (run.status, run.hold)
        )
        if request.operation in ("run.restart", "run.fork") and request.request_id not in self._over:
            runs = self._auditor.runs.values()
            self._over[request.request_id] = frozenset(one.run_id for one in runs if one.status in ENDED)
            if json.loads(bytes(request.payload)).get("repeat_effects"):
                self._auditor.forks.may_repeat.add(request.run_id or "")

    def answered(self, request: Request, response: Response) -> None:
        """Check the outcome against the model, then hold the daemon to it."""
        outcome = response.outcome
        result = {} if response.result is None else json.loads(bytes(response.result))
        code = None if response.error is None else response.error.code
        self._repeat(request, response, (outcome, code, result.get("run_id")))
        self._predict(request, response, code)
        if outcome not in ("accepted", "adopted"):
            return
        if request.operation in ("run.start", "run.restart", "run.fork"):
            self._started(request, result)
            if outcome == "accepted":
                self._auditor.code.told(request, result["run_id"])
        elif request.operation == "run.cancel":
            self._ended[result["run_id"]] = "cancelled"
        elif request.operation == "request.answer":
            payload = json.loads(bytes(request.payload))
            self._answers[result["run_id"], payload["request_id"]] = compact(payload["answer"])
        elif request.operation == "request.submit" and result["verdict"] == "accepted":
            payload = json.loads(bytes(request.payload))
            self._answers[result["run_id"], payload["request_id"]] = compact(payload["value"])
        elif request.operation == "decision.answer":
            payload = json.loads(bytes(request.payload))
            chosen = {"choice": payload["choice"], "text": payload["text"]}
            self._answers[result["run_id"], payload["decision_id"]] = compact(chosen)
        run_id = result.get("run_id")
        if outcome == "accepted" and response.revision is not None and run_id is not None:
            expected = request.expected_revision
            if expected is not None and request.operation not in ("run.restart", "run.fork"):
                counted = response.revision == expected + 1
                self._auditor.check(counted, f"{request} is done at the revision that was seen: {response}")
            self._events[run_id, response.revision] = EVENT_OF[request.operation]
            self._check_event(run_id, response.revision)

    def _repeat(
        self, request: Request, response: Response, answer: tuple[str, str | None, str | None]
    ) -> None:
        """The same command again: adopted where it was accepted, otherwise the same refusal."""
        if answer[1] in ("invalid_argument", "token_refused"):
            return  # it was no command yet, by the clock of that time; nothing is kept of who may not speak
        told = self._first.get(request.request_id)
        self._first.setdefault(request.request_id, answer)
        if told is None:
            return
        expected = told if told[0] not in ("accepted", "adopted") else ("adopted", None, told[2])
        self._auditor.check(
            answer == expected, f"a repeat of {request} gets its first answer {told}: {response}"
        )

    def was_accepted(self, request: Request) -> bool:
        """Whether the command was done, as its client knows."""
        return self._first.get(request.request_id, ("", None, None))[0] in ("accepted", "adopted")

    def _started(self, request: Request, result: dict[str, Any]) -> None:
        run_id = result["run_id"]
        self._auditor.acknowledged.add(run_id)
        if request.operation == "run.start":
            payload = json.loads(bytes(request.payload))
            self._inputs[run_id] = compact(payload["input"])
            self._auditor.waits.starts_at(run_id, payload.get("at_ms", 0))
            wanted = payload.get("run_id", run_id)
            self._auditor.check(wanted == run_id, f"a start has the id that it asked for: {run_id}")
        elif request.operation == "run.fork":
            self._auditor.forks.told(request, result, self._over[request.request_id])
        elif not self._auditor.pruned & {run_id, request.run_id}:
            self._restarted(request, result)

    def _restarted(self, request: Request, result: dict[str, Any]) -> None:
        """A restart is of an ended run at the revision that was seen, and never a run that was over already."""
        check, old = self._auditor.check, self._auditor.runs[request.run_id or ""]
        seen = (result["restarted_from"], request.expected_revision)
        check(seen[0] == old.run_id and seen[1] is not None, f"{result} restarts {old} as {request} saw it")
        check(old.status in ENDED, f"only an ended run is restarted: {old}")
        check(result["run_id"] not in self._over[request.request_id], f"{result} goes on when it is adopted")
        numbers = self._auditor.rows(
            "SELECT r.restart_no, f.restart_no, r.restart_root, coalesce(f.restart_root, f.run_id)"
            " FROM runs r JOIN runs f ON f.run_id = r.restarted_from WHERE r.run_id = ?",
            result["run_id"],
        )
        sound = [
            (number, root) for number, before, root, first in numbers if (number, root) == (before + 1, first)
        ]
        check(
            sound == [(result["restart_no"], result["restart_root"])], f"{result} has its lineage: {numbers}"
        )

    def _predict(self, request: Request, response: Response, code: str | None) -> None:
        """Outcomes that no state of the run allows."""
        outcome, check = response.outcome, self._auditor.check
        if request.operation == "run.start":
            check(outcome in ("accepted", "adopted"), f"a sound start is taken: {response}")
        busy = response.error is not None and "has a run that goes on" in response.error.message
        if request.operation in ("run.restart", "run.fork") and busy:
            return  # of a session, which has one at a time
        if request.operation == "run.restart" and outcome == "conflict":
            check(request.expected_revision is not None, f"only an expected revision conflicts: {response}")
        if request.operation not in ("run.pause", "run.resume", "run.cancel") or request.run_id is None:
            return
        gone = request.run_id in self._auditor.pruned
        check(gone or outcome != "not_found", f"run {request.run_id} was acknowledged: {response}")
        if outcome == "conflict":
            check(request.expected_revision is not None, f"only an expected revision conflicts: {response}")
        if gone or outcome == "conflict":
            return
        run = self._auditor.runs[request.run_id]
        before = self._states[request.request_id]
        always_ended = all(status in ENDED for status, _ in before)
        if request.operation == "run.cancel":
            legal = {"adopted", "rejected"} if always_ended else {"accepted", "adopted", "rejected"}
            check(outcome in legal, f"a cancel of an ended run changes nothing: {response}")
            if outcome in ("accepted", "adopted"):
                check(run.status == "cancelled", f"a cancelled run is cancelled: {run}")
            else:
                check(run.status in ENDED, f"a run that has not ended can be cancelled: {run}")
        elif request.operation == "run.pause" and outcome == "rejected":
            check(run.status in ENDED, f"a run that has not ended can be paused: {run} {response}")
        elif always_ended:
            check(outcome == "rejected" or response.outcome == "adopted", f"an ended run stays: {response}")

    # --- runners --------------------------------------------------------------------------------------------

    def runner_answered(self, process: Any, message: Any, reply: Any) -> None:
        """`go`, `park` and `end` say that the message is committed."""
        if reply.verdict not in ("go", "park", "end") or type(message).__name__ != "Finish":
            return
        unknown = message.settled == "unknown" or (
            reply.verdict == "park" and self._left_unknown(process.run_id, message.attempt)
        )
        outcome = "unknown" if unknown else message.outcome
        if reply.verdict == "park" and self._is_overtaken(process.run_id, message):
            outcome = "interrupted"
        if reply.verdict == "park" and message.limited is not None:
            outcome = "limited"
        key = (process.run_id, message.attempt, int(process.marker.rsplit(":", 1)[1]))
        self._attempts[key] = (outcome, reply.verdict)
        self._check_attempt(key)

    def _is_overtaken(self, run_id: str, message: Any) -> bool:
        """Whether the settings were changed before a step that routes by them was committed."""
        rows = self._auditor.rows(
            "SELECT e.payload FROM events e JOIN runs r ON r.run_no = e.entity_no"
            " WHERE r.run_id = ? AND e.kind = 'settings_overtook'",
            run_id,
        )
        return any(json.loads(bytes(payload))["attempt"] == message.attempt for (payload,) in rows)

    def _left_unknown(self, run_id: str, attempt: int) -> bool:
        """Whether an attempt at a node that makes several effects had one of them open: then its outcome is unknown."""
        rows = self._auditor.rows(
            "SELECT r.definition_id, a.node, a.status FROM attempts a JOIN runs r USING (run_no)"
            " WHERE run_id = ? AND attempt = ?",
            run_id,
            attempt,
        )
        model = self._auditor.model_of(rows[0][0]) if rows else None
        return model is not None and model.nodes[rows[0][1]].effect == "parts" and rows[0][2] == "unknown"

    # --- holding --------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Every promise about what was not removed since, against the file."""
        check, rows, pruned = self._auditor.check, self._auditor.rows, self._auditor.pruned
        for run_id in self._auditor.acknowledged - pruned:
            check(rows("SELECT 1 FROM runs WHERE run_id = ?", run_id), f"acknowledged run {run_id} is there")
        for run_id in self._inputs.keys() - pruned:
            ((inline, name),) = rows("SELECT input, input_digest FROM runs WHERE run_id = ?", run_id)
            found = self._auditor.said.bytes_of(inline, name)
            check(found == self._inputs[run_id], f"run {run_id} has its input: {found!r}")
        for run_id in self._ended.keys() - pruned:
            status = self._ended[run_id]
            statuses = rows("SELECT status FROM runs WHERE run_id = ?", run_id)
            check(statuses == [(status,)], f"run {run_id} is {status} as was told: {statuses}")
        for (run_id, request_id), value in self._answers.items():
            if run_id in pruned:
                continue
            answers = rows("SELECT answer, status FROM requests WHERE request_id = ?", request_id)
            check(
                answers == [(value, "settled")], f"request {request_id} has its answer {value!r}: {answers}"
            )
        for run_id, revision in self._events:
            self._check_event(run_id, revision)
        for key in self._attempts:
            self._check_attempt(key)

    def _check_event(self, run_id: str, revision: int) -> None:
        if run_id in self._auditor.pruned:
            return
        found = self._auditor.rows(
            "SELECT kind FROM events JOIN runs ON run_no = entity_no WHERE run_id = ? AND revision = ?",
            run_id,
            revision,
        )
        wanted = self._events[run_id, revision]
        sound = len(found) == 1 and found[0][0] in wanted
        self._auditor.check(sound, f"run {run_id} has {wanted} at revision {revision}, as was told: {found}")

    def _check_attempt(self, key: tuple[str, int, int]) -> None:
        run_id, attempt, generation = key
        if run_id in self._auditor.pruned:
            return
        outcome, verdict = self._attempts[key]
        found = self._auditor.rows(
            "SELECT a.status, a.generation FROM attempts a JOIN runs USING (run_no) WHERE run_id = ? AND attempt = ?",
            run_id,
            attempt,
        )
        # A person's word may end an unknown attempt later: it happened, or is given up.
        legal = {outcome, "completed", "failed"} if outcome == "unknown" else {outcome}
        sound = len(found) == 1 and found[0][0] in legal and found[0][1] == generation
        self._auditor.check(sound, f"{key} is {outcome} ({verdict}), as the runner was told: {found}")
