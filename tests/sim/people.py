"""Simulated people who decide: also twice, too late, differently from each other, and of a proposal that is over; some
by links, also to another decision, or again.
"""

from __future__ import annotations

import json
from typing import Any

from pwf.protocol.decisions import DecisionList, DecisionView
from pwf.protocol.frames import Request, Response
from pwf.protocol.web import hash_of
from tests.sim.clients import SimClient, decision_payload
from tests.sim.virtual_time import sleep
from tests.sim.workload import CHOICES

PAUSE_S = 3.0
LOOK_S = 0.25
STRANGE = 0.3  # of the answers are to a proposal that nobody has made

_OPEN = "SELECT request_id, kind FROM requests WHERE run_id = ? AND attempt = ? AND status = 'pending'"


class SimPerson:
    """One person. Remembers proposals, to answer an old one; and answers, to give one again or another in its place."""

    def __init__(self, world: Any, name: str) -> None:
        self._world = world
        self._client = SimClient(world, name)
        self._chance = world.stream(f"person:{name}")
        self._seen: list[DecisionView] = []
        self._sent: list[Request] = []
        self._links: list[tuple[str, str]] = []  # token and decision
        self._spent: set[str] = set()

    async def run(self) -> None:
        """Act at random until faults are over."""
        while not self._world.calm:
            await sleep(self._chance.random() * PAUSE_S)
            if self._sent and self._chance.random() < 0.2:
                request = self._chance.choice(self._sent)
                self._judge(request, await self._client.send(request))
                continue
            found = await self._client.read("decision.list", {"limit": 20}, DecisionList)
            if found is not None:
                self._seen += found.decisions
            if self._seen:
                await self._decide()

    async def _decide(self) -> None:
        shown = self._seen[-1] if self._chance.random() < 0.7 else self._chance.choice(self._seen)
        meant = shown if self._chance.random() < 0.8 else self._chance.choice(self._seen)
        payload = decision_payload(shown, self._chance.choice(CHOICES))
        payload["decision_id"] = meant.request.request_id  # sometimes of another one than was looked at
        if self._chance.random() < STRANGE:
            payload["digest"] = "0" * 64
        link = await self._link(meant.request.request_id)
        if link is not None:
            payload["token"] = link[0]
        request = self._client.request("decision.answer", payload)
        self._sent.append(request)
        response = await self._client.send(request)
        self._judge(request, response)
        taken = response is not None and response.outcome in ("accepted", "adopted")
        fine = not taken or payload["digest"] == meant.digest or response.outcome == "adopted"  # type: ignore[union-attr]
        self._world.auditor.check(fine, f"an answer to another proposal is not taken: {request} {response}")
        if taken and link is not None:
            token, decision = link
            twice = token in self._spent and response.outcome == "accepted"  # type: ignore[union-attr]
            right = decision == meant.request.request_id and not twice
            self._world.auditor.check(right, f"a link decides what it is for, once: {request} {response}")
            self._spent.add(token)

    async def _link(self, decision: str) -> tuple[str, str] | None:
        """Mostly none; else a new one to the decision, or any of those that were made, perhaps to another one."""
        if self._chance.random() < 0.6:
            return None
        if not self._links or self._chance.random() < 0.7:
            token = f"{self._chance.getrandbits(256):064x}"
            made = await self._client.send(
                self._client.request("decision.link", {"decision_id": decision, "token_hash": hash_of(token)})
            )
            if made is None or made.outcome not in ("accepted", "adopted"):
                return None
            self._links.append((token, decision))
            return token, decision
        return self._chance.choice(self._links)

    def _judge(self, request: Request, response: Response | None) -> None:
        """What is taken has won, and is what its node goes on with."""
        if response is not None and response.outcome == "accepted":
            self._world.auditor.questions.accepted(request)
        if (
            response is not None
            and response.outcome == "conflict"
            and "token" not in json.loads(bytes(request.payload))
        ):
            self._world.auditor.questions.came_to_nothing(request)


class Latecomer:
    """Somebody who has seen every question, and answers as soon as its time is over, before the daemon has noticed."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._client = SimClient(world, "late")
        self._answered: set[str] = set()

    async def run(self) -> None:
        """Until faults are over."""
        while not self._world.calm:
            await sleep(LOOK_S)
            for run_id, attempt in self._world.auditor.questions.overdue():
                for request_id, kind in self._world.auditor.rows(_OPEN, run_id, attempt):
                    if request_id not in self._answered:
                        self._answered.add(request_id)
                        await self._client.answer(request_id, kind, CHOICES[0])
