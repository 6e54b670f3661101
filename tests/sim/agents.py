"""Simulated agents: they submit what they were asked for, also twice, too late, for another revision, and to others.

Several may submit for one request at the same time, each a value of its own: one is taken.
"""

from __future__ import annotations

import json
from typing import Any

from pwf.protocol.frames import Request, Response
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.operations import RequestList
from pwf.protocol.views import RequestView
from tests.sim.clients import SimClient
from tests.sim.virtual_time import sleep
from tests.sim.workload import CHOICES

PAUSE_S = 3.0


class SimAgent:
    """One agent. It keeps what it has sent, to say it again, or something else in its place."""

    def __init__(self, world: Any, name: str) -> None:
        self._world = world
        self._name = name
        self._client = SimClient(world, name)
        self._chance = world.stream(f"agent:{name}")
        self._sent: list[Request] = []

    async def run(self) -> None:
        """Act at random until faults are over."""
        while not self._world.calm:
            await sleep(self._chance.random() * PAUSE_S)
            if self._sent and self._chance.random() < 0.3:
                await self._again(self._chance.choice(self._sent))
                continue
            found = await self._client.read("request.list", {"limit": 20}, RequestList)
            if found is not None and found.requests:
                await self._act(self._chance.choice(found.requests))

    async def _act(self, asked: RequestView) -> None:
        if not REQUESTS[asked.kind].submitted:
            response = await self._client.send(self._submission(asked.request_id))
            self._refused(response, asked, "takes no submission")
            return
        way = self._chance.random()
        if way < 0.1:
            payload = {"request_id": asked.request_id, "answer": 1}
            response = await self._client.send(self._client.request("request.answer", payload))
            self._refused(response, asked, "takes no plain answer")
            return
        revision = None if way < 0.4 else asked.revision if way < 0.8 else asked.revision + 1
        request = self._submission(asked.request_id, revision)
        self._sent.append(request)
        self._judge(request, await self._client.send(request))

    def _submission(self, request_id: str, revision: int | None = None) -> Request:
        value = {"go": self._chance.choice(CHOICES), "by": self._name, "n": self._chance.randrange(1000)}
        payload = {"request_id": request_id, "value": value, "revision": revision}
        return self._client.request("request.submit", payload)

    async def _again(self, old: Request) -> None:
        """The same once more, the same under another key, or another value for that request."""
        payload = json.loads(bytes(old.payload))
        way = self._chance.random()
        if way < 0.4:
            request = old
        elif way < 0.7:
            request = self._client.request("request.submit", payload)
        else:
            request = self._submission(payload["request_id"])
        self._judge(request, await self._client.send(request))

    def _judge(self, request: Request, response: Response | None) -> None:
        """What is taken was for the revision that the request has, which moves no more then."""
        if response is None or response.outcome != "accepted":
            return
        verdict = json.loads(bytes(response.result or b"{}"))["verdict"]
        payload = json.loads(bytes(request.payload))
        rows = self._world.auditor.rows(
            "SELECT status, revision FROM requests WHERE request_id = ?", payload["request_id"]
        )
        wanted = payload["revision"]
        sound = all(status == "settled" and wanted in (None, revision) for status, revision in rows)
        if verdict == "accepted":
            self._world.auditor.check(sound, f"{request} settles the revision that it names: {rows}")

    def _refused(self, response: Response | None, asked: RequestView, why: str) -> None:
        taken = response is not None and response.outcome in ("accepted", "adopted")
        self._world.auditor.check(not taken, f"{asked.request_id} {why}: {response}")
