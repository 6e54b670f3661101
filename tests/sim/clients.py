"""Simulated clients: they start runs, steer them, answer, recover, and send again when an answer did not come.

Each command has a key and is sent until it is answered, as the client library does. At the end a janitor does
what a patient person would: it answers, resumes and recovers until every run has ended.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import msgspec

from pwf.protocol.decisions import DecisionList, DecisionView
from pwf.protocol.frames import Request, Response
from pwf.protocol.kinds import REQUESTS, RequestKind
from pwf.protocol.operations import (
    EffectList,
    Explained,
    PruneResult,
    RequestList,
    RunList,
    VerifyResult,
)
from pwf.protocol.origin import Origin
from pwf.values import digest
from tests.sim.bounds import CHUNK_BYTES
from tests.sim.said import compact
from tests.sim.virtual_time import sleep
from tests.sim.workload import CHOICES, LARGE

ORIGIN = Origin(cwd="/", python=sys.executable)
OPERATIONS = (
    ("start", 6),
    ("pause", 2),
    ("resume", 3),
    ("cancel", 1),
    ("answer", 5),
    ("recover", 3),
    ("restart", 1),
    ("fork", 1),
    ("look", 2),
    ("again", 1),
    ("wait", 1),
    ("prune", 1),
)
AGENTS = ("person", "sim")  # who does the steps of agents
TRIES_MAX = 200
TRANSIENT = frozenset({"runner_stray", "ended_open"})  # until recovery has settled what a daemon left
RETRY_S = 1.0
LATE_WORD_S_MAX = 20.0

_encode = msgspec.json.Encoder().encode


class SimClient:
    """One client with its own way of choosing what to do."""

    def __init__(self, world: Any, name: str) -> None:
        self.name = name
        self._world = world
        self._chance: random.Random = world.stream(f"client:{name}")
        self._commands = 0
        self._sent: list[Request] = []
        self._values: dict[str, bytes] = {}  # that were sent before a request, by digest

    # --- sending ------------------------------------------------------------------------------------------

    def request(self, operation: str, payload: object, run_id: str | None = None, **more: Any) -> Request:
        """A new request; without a key it is known by its id."""
        self._commands += 1
        number = f"{self.name}-{self._commands}"
        key = number if self._chance.random() < 0.7 else None
        return Request(
            request_id=number,
            client_id=self.name,
            operation=operation,
            run_id=run_id,
            idempotency_key=key,
            payload=msgspec.Raw(_encode(payload)),
            **more,
        )

    async def send(self, request: Request, tries: int = TRIES_MAX) -> Response | None:
        """Send until it is answered; None when the daemon was not to be reached for too long."""
        self._world.auditor.sent(request)
        for _ in range(tries):
            response: Response | None = await self._world.ask(request)
            if (
                response is not None
                and response.error is not None
                and response.error.code == "content_wanted"
            ):
                await self._upload(*request.contents.values())
                await sleep(RETRY_S * self._chance.random())
                continue
            if response is not None and response.outcome not in ("unavailable", "claim_lost"):
                self._world.auditor.answered(request, response)
                return response
            if response is not None:
                self._world.auditor.refused(request, response)
            await sleep(RETRY_S * self._chance.random() + 0.1)
        return None

    async def read(self, operation: str, payload: object, kind: Any, run_id: str | None = None) -> Any:
        """A read's result, or None."""
        response = await self._world.ask(self.request(operation, payload, run_id))
        if response is None or response.result is None:
            return None
        return msgspec.json.decode(response.result, type=kind)

    async def read_all(self, operation: str, limit: int, kind: Any, items: str) -> list[Any] | None:
        """Every page of a list, of `limit` each: what stands in their `items`. None when one did not come."""
        found: list[Any] = []
        cursor = None
        while True:
            page = await self.read(operation, {"limit": limit, "cursor": cursor}, kind)
            if page is None:
                return None
            found += getattr(page, items)
            cursor = page.next_cursor
            if cursor is None:
                return found

    # --- what a client does -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Act at random until faults are over."""
        names = [name for name, weight in OPERATIONS for _ in range(weight)]
        while not self._world.calm:
            await sleep(self._chance.random() * 2.0)
            await getattr(self, "_" + self._chance.choice(names))()

    def _any_run(self, *, ended: bool = False) -> str | None:
        runs = sorted(self._world.auditor.acknowledged - self._world.auditor.pruned)
        if ended:
            open_ = {run.run_id for run in self._world.auditor.unended()}
            runs = [run_id for run_id in runs if run_id not in open_] or runs
        elif self._chance.random() < 0.8:
            open_ = {run.run_id for run in self._world.auditor.unended()}
            runs = [run_id for run_id in runs if run_id in open_] or runs
        return self._chance.choice(runs) if runs else None

    async def _start(self) -> None:
        if self._world.starts_left <= 0:
            return
        self._world.starts_left -= 1
        payload: dict[str, Any] = {
            "workflow": self._chance.choice(sorted(self._world.models)),
            "origin": ORIGIN,
            "input": {"n": self._chance.randrange(1000)},
            "agent": self._chance.choice(AGENTS),
        }
        if self._chance.random() < self._world.rate("large"):
            payload["input"]["large"] = LARGE
        if self._chance.random() < 0.5:
            payload["run_id"] = f"run-{self.name}-{self._commands}"
        if self._chance.random() < 0.2:
            payload["at_ms"] = self._world.machine.now().wall_ms + self._chance.randrange(30_000)
        if self._chance.random() < 0.2:
            payload["priority"] = self._chance.randrange(5)
        more = {}
        if "large" in payload["input"] and self._chance.random() < 0.5:
            data = compact(payload["input"])  # what stands in the payload as well says what the run must have
            more["contents"] = {"input": digest(data)}
            self._values[digest(data)] = data
            await self._upload(digest(data))
        request = self.request("run.start", payload, **more)
        self._sent.append(request)
        await self.send(request)

    async def _upload(self, *names: str) -> None:
        """Send values before the request that names them; a daemon that starts later has not got them."""
        for name in names:
            data = self._values[name]
            for start in range(0, len(data), CHUNK_BYTES):
                piece = {
                    "digest": name,
                    "index": start // CHUNK_BYTES,
                    "data": data[start : start + CHUNK_BYTES],
                    "size": len(data),
                    "last": start + CHUNK_BYTES >= len(data),
                }
                await self._world.ask(self.request("content.put", piece))

    async def _steer(self, operation: str, payload: object) -> None:
        run_id = self._any_run()
        if run_id is None:
            return
        more = {}
        if self._chance.random() < 0.1:
            more["expected_revision"] = self._chance.randrange(1, 12)
        request = self.request(operation, payload, run_id, **more)
        self._sent.append(request)
        await self.send(request)

    async def _pause(self) -> None:
        await self._steer("run.pause", {"now": self._chance.random() < 0.3})

    async def _resume(self) -> None:
        await self._steer("run.resume", {})

    async def _cancel(self) -> None:
        await self._steer("run.cancel", {})

    async def _restart(self) -> None:
        """Mostly of an ended run, at the revision that was read just before, which may be over by now."""
        run_id = self._any_run(ended=self._chance.random() < 0.8)
        if run_id is None:
            return
        seen = await self.read("run.status", {}, Explained, run_id)
        if seen is None:
            return
        revision = seen.summary.revision if self._chance.random() < 0.9 else None
        request = self.request("run.restart", {}, run_id, expected_revision=revision)
        self._sent.append(request)
        await self.send(request)

    async def _fork(self) -> None:
        """A retry, or a fork from any node; mostly of an ended run."""
        run_id = self._any_run(ended=self._chance.random() < 0.8)
        if run_id is None:
            return
        payload: dict[str, Any] = {}
        if self._chance.random() < 0.5:
            workflow = self._world.auditor.runs[run_id].workflow
            payload["node"] = self._chance.choice(sorted(self._world.models[workflow].nodes))
        for name, value in (("repeat_effects", True), ("keep_answers", True), ("max_steps", 200)):
            if self._chance.random() < 0.5:
                payload[name] = value
        payload["code"] = self._chance.choice(["current", "stored"])
        request = self.request("run.fork", payload, run_id)
        self._sent.append(request)
        await self.send(request)

    async def _again(self) -> None:
        """A repeat of an old command gets its first answer; another one under its key is refused."""
        if not self._sent:
            return
        old = self._chance.choice(self._sent)
        if old.idempotency_key is None or self._chance.random() < 0.7:
            await self.send(old)
        elif self._world.auditor.promises.was_accepted(old):
            other = self.request(
                "run.start", {"workflow": "w0", "origin": ORIGIN, "input": {"n": -1}, "agent": "person"}
            )
            response = await self._world.ask(
                msgspec.structs.replace(other, idempotency_key=old.idempotency_key)
            )
            outcome = None if response is None else response.outcome
            legal = outcome in (None, "unavailable", "claim_lost", "conflict")
            self._world.auditor.check(legal, f"the key of {old} is that command's alone: {response}")

    async def _wait(self) -> None:
        run_id = self._any_run()
        if run_id is not None:
            await self._world.ask(self.request("run.wait", {"until": "parked", "timeout_ms": 20_000}, run_id))

    async def _prune(self) -> None:
        """Of what has ended by now, or what would go."""
        before_ms = self._world.machine.now().wall_ms - self._chance.choice([0, 10_000])
        if self._chance.random() < 0.3:
            await self.read("state.prune", {"before_ms": before_ms, "dry_run": True}, PruneResult)
            return
        request = self.request("state.prune", {"before_ms": before_ms})
        self._sent.append(request)
        await self.send(request)

    async def _look(self) -> None:
        """Reads must never find a broken rule."""
        await self.verify(TRANSIENT)
        run_id = self._any_run()
        if run_id is not None:
            await self.read("run.status", {}, Explained, run_id)

    async def verify(self, excused: frozenset[str] = frozenset()) -> None:
        """The daemon's own check of its state."""
        before = {life: life.wounds.count for life in self._world.alive}
        found = await self.read("state.verify", {}, VerifyResult)
        if found is not None:
            for life in {
                *before,
                *self._world.alive,
            }:  # it takes many batches, and who has answered may be dead by now
                if life.wounds.fresh("io_error") or life.wounds.count != before.get(life):
                    return  # what could not be read just now, it says rightly
            broken = [violation for violation in found.violations if violation.rule not in excused]
            self._world.auditor.check(not broken, f"state.verify is clean: {broken}")

    async def _answer(self, *, kind: bool = False) -> None:
        found = await self.read("request.list", {"limit": 20}, RequestList)
        if not found or not found.requests:
            return
        request = self._chance.choice(found.requests)
        go = CHOICES[0] if kind else self._chance.choice(CHOICES)
        await self.answer(request.request_id, request.kind, go)

    async def answer(self, request_id: str, kind: RequestKind, go: str) -> None:
        """Decide, submit or answer, as its kind wants it."""
        value = {"go": go, "by": self.name}
        if REQUESTS[kind].decided:
            await self._decide(request_id, go)
        elif REQUESTS[kind].submitted:
            await self.send(self.request("request.submit", {"request_id": request_id, "value": value}))
        else:
            await self.send(self.request("request.answer", {"request_id": request_id, "answer": value}))

    async def _decide(self, request_id: str, choice: str) -> None:
        found = await self.read("decision.list", {"decision_id": request_id}, DecisionList)
        if found is not None:
            await self.send(self.request("decision.answer", decision_payload(found.decisions[0], choice)))

    async def _recover(self) -> None:
        """Say what is true: a person looks at the outside world once the processes are dead."""
        found = await self.read("effect.list", {"statuses": ["ambiguous"]}, EffectList)
        for effect in found.effects if found else ():
            if any(
                effect.run_id in (process.run_id, process.promised)
                for process in self._world.machine.living()
            ):
                continue
            seen = await self.read("run.status", {}, Explained, effect.run_id)
            if seen is None or seen.explanation.code not in ("effect_ambiguous", "ended"):
                continue
            # The revision must be of no later time than the effect, or the word would be about the run's next one.
            again = await self.read("effect.list", {"statuses": ["ambiguous"]}, EffectList)
            if again is None or effect.effect_key not in {one.effect_key for one in again.effects}:
                continue
            if any(
                effect.run_id in (process.run_id, process.promised)
                for process in self._world.machine.living()
            ):
                continue
            happened = self._world.outside.happened(effect.effect_key)
            if self._chance.random() < self._world.rate("late_word"):
                await sleep(self._chance.random() * LATE_WORD_S_MAX)
            verdict = "happened" if happened else "not_happened"
            word = self._chance.random()
            payload = {
                "verdict": "observe" if word < 0.2 else "give_up" if word < 0.3 else verdict,
                "output": {"go": CHOICES[0], "n": 0},
                "effect_key": effect.effect_key,
            }
            request = self.request(
                "effect.resolve", payload, effect.run_id, expected_revision=seen.summary.revision
            )
            await self.send(request)

    # --- the janitor --------------------------------------------------------------------------------------

    async def tidy(self) -> bool:
        """One round after the faults; whether every run has ended."""
        runs = await self.read_all("run.list", 100, RunList, "runs")
        if runs is None:
            return False
        self._world.auditor.waits.none_is_late(self._world.auditor.runs)
        self._world.auditor.questions.none_is_late()
        await self._recover()
        await self._world.channels.recover(self)
        await self._answer(kind=True)
        for run in runs:
            if run.hold is not None and run.hold != "effect_ambiguous":
                await self.send(self.request("run.resume", {}, run.run_id))
        return all(run.status in ("completed", "failed", "timed_out", "cancelled") for run in runs)


def decision_payload(shown: DecisionView, choice: str) -> dict[str, Any]:
    """A person's answer to what was shown. One of the two choices takes a text."""
    text = "again" if choice == CHOICES[1] else None
    return {
        "decision_id": shown.request.request_id,
        "choice": choice,
        "text": text,
        "digest": shown.digest,
    }
