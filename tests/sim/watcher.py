"""A client that follows runs: what it holds is always a state that the store had, and at rest it is the present one.

It keeps each document by the events alone, with a merge of its own. Its connection dies with the daemon that it is to.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import trio

from pwf.actors.operations.caller import Caller
from pwf.protocol.frames import Event, Request
from tests.sim.virtual_time import sleep

FOLLOWED_MAX = 4
CATCH_UP_S = 70.0  # after the last change: a lost wake-up is made good by a re-read within a minute


class Followed:
    """One subscription, as its client has it."""

    def __init__(self, world: Any, run_id: str) -> None:
        self.run_id = run_id
        self.document: dict[str, Any] = {}
        self.ended = False
        self._world = world
        self._revision = 0

    def take(self, event: Event) -> None:
        """An event has come."""
        check = self._world.auditor.check
        check(event.revision == self._revision + 1, f"events of a view are consecutive: {event}")
        self._revision = event.revision
        body = json.loads(bytes(event.body))
        if event.kind == "end":
            check(self.run_id in self._world.auditor.pruned, f"a view ends only with its run: {self.run_id}")
            self.ended = True
            return
        self.document = body if event.kind == "snapshot" else merged(self.document, body)
        self._world.auditor.shown(self.run_id, self.document)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, in words of its own."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


class Watcher:
    """Follows some runs on every daemon that there is, one connection each."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._chance = world.stream("watcher")
        self._followed: list[Followed] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            life = self._world.life
            if life is not None and life.serving:
                await self._connected(life)
            await sleep(0.2)

    async def _connected(self, life: Any) -> None:
        """Follow on one connection, until its daemon is over."""
        self._followed = []
        by_id: dict[str, Followed] = {}

        async def take(event: Event) -> None:
            await sleep(self._chance.random() * 0.2)
            if life.dead:
                raise trio.ClosedResourceError
            by_id[event.subscription].take(event)

        caller = Caller(2, take)
        try:
            while not life.over.is_set() and life.serving:
                runs = sorted(self._world.auditor.acknowledged - self._world.auditor.pruned)
                if runs and len(by_id) < FOLLOWED_MAX:
                    await self._subscribe(life, caller, by_id, self._chance.choice(runs))
                await sleep(self._chance.random() * 5.0 + 0.1)
        finally:
            caller.end()

    async def _subscribe(self, life: Any, caller: Caller, by_id: dict[str, Followed], run_id: str) -> None:
        name = f"s{len(by_id)}"
        followed = by_id[name] = Followed(self._world, run_id)
        payload = msgspec.Raw(msgspec.json.encode({"id": name, "view": "run"}))
        request = Request(
            request_id=name, client_id="watcher", operation="view.subscribe", run_id=run_id, payload=payload
        )
        response = await life.door.serve(request, caller)
        if response is not None and response.outcome == "accepted":
            self._followed.append(followed)

    async def check_at_rest(self) -> None:
        """What is followed now is shown as it stands in the file."""
        if self._followed:
            await sleep(CATCH_UP_S)
        for followed in self._followed:
            if not followed.ended:
                self._world.auditor.shown_at_rest(followed.run_id, followed.document)
