"""What runners and clients gave, byte for byte: stored outputs, and what later runners are told of them, are just that.

An output is taken down when it is sent, which says nothing of whether it arrives. So an attempt may have any output
that was sent for it, and from the moment that it is stored it has that one, for views, later launches and the end.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from pwf.protocol.frames import Request
from pwf.protocol.kinds import KINDS
from tests.sim.model import RunModel
from tests.sim.questions import NOBODY
from tests.sim.workload import NodeModel

_REQUEST = """SELECT q.request_id, q.answer, q.answer_digest, q.answered_by FROM requests q
WHERE q.run_id = ? AND q.attempt = ? AND q.status = 'settled'"""
_ADOPTED = """SELECT r.forked_from, a.adopted FROM attempts a JOIN runs r USING (run_no)
WHERE r.run_id = ? AND a.attempt = ? AND a.adopted IS NOT NULL"""
_NOTICE = "SELECT a.notice FROM attempts a JOIN runs r USING (run_no) WHERE r.run_id = ? AND a.attempt = ?"
_INPUT = "SELECT input, input_digest FROM runs WHERE run_id = ?"


class Said:
    """Kept by the auditor."""

    def __init__(self, auditor: Any, world: Any) -> None:
        self._auditor = auditor
        self._world = world
        self._sent: dict[tuple[str, int], set[tuple[int, bytes]]] = {}  # attempt -> (generation, output)
        self._words: dict[str, set[bytes]] = {}  # run -> outputs that a person gave for an effect
        self._answers: dict[str, set[bytes]] = {}  # request -> answers
        self._stored: dict[tuple[str, int], bytes] = {}

    # --- what is given ----------------------------------------------------------------------------------------

    def finish_sent(self, run_id: str, generation: int, attempt: int, output: bytes) -> None:
        """A runner sends the output of a step."""
        self._sent.setdefault((run_id, attempt), set()).add((generation, output))

    def sent(self, request: Request) -> None:
        """A client sends a command."""
        if request.operation == "request.answer":
            payload = json.loads(bytes(request.payload))
            self._answers.setdefault(payload["request_id"], set()).add(compact(payload["answer"]))
        elif request.operation == "request.submit":
            payload = json.loads(bytes(request.payload))
            self._answers.setdefault(payload["request_id"], set()).add(compact(payload["value"]))
        elif request.operation == "decision.answer":
            payload = json.loads(bytes(request.payload))
            chosen = {"choice": payload["choice"], "text": payload["text"]}
            self._answers.setdefault(payload["decision_id"], set()).add(compact(chosen))
        elif request.operation == "effect.resolve":
            payload = json.loads(bytes(request.payload))
            self._words.setdefault(request.run_id or "", set()).add(compact(payload["output"]))

    # --- what is stored ---------------------------------------------------------------------------------------

    def content(self, name: str) -> bytes:
        """The bytes that are stored under a digest, which must be theirs."""
        chunks = self._auditor.rows("SELECT data FROM content_chunks WHERE digest = ? ORDER BY chunk", name)
        data = b"".join(bytes(chunk) for (chunk,) in chunks)
        self._auditor.check(sha256(data).hexdigest() == name, f"the content of {name} is whole")
        return data

    def bytes_of(self, inline: bytes | None, name: str | None) -> bytes | None:
        """Of a pair of columns."""
        return self.content(name) if name is not None else inline

    def look(self, run: RunModel, attempts: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """After a commit that changed the run. The attempts with their outputs' bytes in place of the digests."""
        nodes = self._auditor.model_of(run.definition).nodes
        whole = []
        for number, node, visit, status, output, generation, name, code in attempts:
            key = (run.run_id, number)
            data = self._stored.get(key)
            if status == "completed" and data is None:
                data = self.bytes_of(output, name)
                if generation == 0:
                    taken = self._taken_over(key)
                    self._auditor.check(data == taken, f"{key} is what was taken over: {data!r} {taken!r}")
                else:
                    self._check_origin(key, nodes[node], generation, data)
                self._stored[key] = data or b""
                self._check_notice(key, nodes[node], taken_over=generation == 0)
            elif status == "completed" and name is None:
                self._auditor.check(output == data, f"the output of {key} never changes: {output!r}")
            whole.append((number, node, visit, status, data, generation, code))
        if run.status == "completed":
            output = self.bytes_of(run.output, run.output_digest)
            last = whole[-1][4] if whole else None
            if whole and whole[-1][3] != "completed":  # a notice that could not be made ends no run badly
                last = b"null"
            self._auditor.check(output == last, f"{run} ends with the output of its last step: {last!r}")
        return whole

    def _check_notice(self, key: tuple[str, int], node: NodeModel, *, taken_over: bool) -> None:
        ((notice,),) = self._auditor.rows(_NOTICE, *key)
        wanted = "progress" if KINDS[node.kind].notifies and not taken_over else None
        self._auditor.check(notice == wanted, f"{key} is a notice as its node says: {notice}")

    def _taken_over(self, key: tuple[str, int]) -> bytes | None:
        """What the run that this was forked from has stored there; None where it is another's own."""
        rows = self._auditor.rows(_ADOPTED, *key)
        return self._stored.get(rows[0]) if rows else None

    def _check_origin(
        self, key: tuple[str, int], node: NodeModel, generation: int, data: bytes | None
    ) -> None:
        run_id, number = key
        kind = node.kind
        legal = {output for of, output in self._sent.get(key, ()) if of == generation}
        settled = self._auditor.rows(_REQUEST, run_id, number)
        if KINDS[kind].sets_timer:
            legal = {data} if data is not None and _is_time(data) else set()
        elif KINDS[kind].asks is not None and (settled or not KINDS[kind].headless):
            for request_id, answer, name, by in settled:
                given = self.bytes_of(answer, name)
                fine = given in self._answers.get(request_id, ())
                if by == NOBODY:
                    fine = node.default is not None and given == compact(node.default)
                self._auditor.check(fine, f"{request_id} has an answer that somebody gave: {given!r} {by}")
                legal = {given} if given is not None else set()
        else:
            words = self._words.get(run_id, set())
            if KINDS[kind].runs_command:  # what a person says is what would have been parsed of its output
                words = {b'{"exit_code":0,"parsed":' + word + b"}" for word in words}
            legal |= words
        self._auditor.check(data in legal, f"the output of {key} is what was sent for it: {data!r} {legal}")

    # --- what runners are told --------------------------------------------------------------------------------

    def launched(self, launch: Any, run: RunModel, *, stale: bool) -> None:
        """A runner was told of its run."""
        ((inline, name),) = self._auditor.rows(_INPUT, launch.run_id)
        check = self._auditor.check
        fine = self._is(launch.input, self.bytes_of(inline, name))
        check(fine, f"a runner has the input of its run: {launch.input}")
        if stale:
            return
        latest: dict[str, tuple[int, bytes | None]] = {}
        nodes = self._auditor.model_of(run.definition).nodes
        visits: dict[str, int] = {}
        counted: dict[str, dict[str, int]] = {}  # of each included workflow, at its entry
        elsewhere: set[str] = (
            set()
        )  # entries of a run that this one was forked from, of which it has not all attempts
        for number, node, visit, status, _output, generation, *_ in self._auditor.attempts(launch.run_id):
            if number > launch.attempt:
                break
            if nodes[node].mount is not None and visits.get(node) != visit:
                (elsewhere.add if generation == 0 else elsewhere.discard)(node)
                below = {one: count for one, count in visits.items() if one.startswith(f"{node}.")}
                counted |= {node: below} if below else {}
            visits[node] = visit
            if status == "completed" and number < launch.attempt:
                latest[node] = (visit, self._stored.get((launch.run_id, number)))
                if nodes[node].mount is not None:
                    latest = {one: it for one, it in latest.items() if not one.startswith(f"{node}.")}
        told, counted = (
            {mount: at for mount, at in entries.items() if mount not in elsewhere}
            for entries in (launch.entries, counted)
        )
        check(told == counted, f"a runner counts as its run does: {told} {counted}")
        told = {step.node: step for step in launch.past if step.outcome == "completed"}
        check(
            told.keys() == latest.keys(), f"a runner is told of every output: {told.keys()} {latest.keys()}"
        )
        for node, (visit, data) in latest.items():
            step = told[node]
            fine = step.visit == visit and self._is(step.output, data)
            check(fine, f"a runner has the output of {node}:{visit} as it was: {step}")

    def answered_a_read(self, launch: Any, name: str, *, missing: bool) -> None:
        """A runner that reads a value of its run gets it, as long as the run is its own."""
        run = self._auditor.runs.get(launch.run_id)
        stale = run is None or (run.generation, run.status) != (launch.generation, "running")
        self._auditor.check(not missing or stale, f"{launch.run_id} has the value {name} that it was told of")

    def was_read(self, name: str, data: bytes) -> None:
        """A runner has read a value."""
        self._auditor.check(sha256(data).hexdigest() == name, f"what is read as {name} is that: {data!r}")

    def _is(self, value: Any, data: bytes | None) -> bool:
        if value is None or data is None:
            return False
        if value.digest is not None:
            return bool(value.digest == sha256(data).hexdigest() and value.size == len(data))
        return bytes(value.json) == data


def _is_time(data: bytes) -> bool:
    value = json.loads(data)
    return isinstance(value, dict) and value.keys() == {"due_ms"} and isinstance(value["due_ms"], int)


def compact(value: object) -> bytes:
    """Canonical JSON of the plain values that this world sends."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
