"""Simulated changes of settings: by several people at once, on what they have seen, and twice.

Each seed that has them draws which workflows declare settings, and which pure nodes route by them. The auditor holds
that changes are numbered in the order of the history, that a copy which a runner has is one that there was, and that a
route which was committed had seen every change before it.
"""

from __future__ import annotations

import json
import random
from typing import Any

from pwf.protocol.kinds import KINDS
from pwf.protocol.settings import SettingsView
from tests.sim.clients import SimClient
from tests.sim.virtual_time import sleep

PAUSE_S = 3.0
_CHANGES = "SELECT e.revision, e.kind, e.payload FROM events e JOIN runs r ON r.run_no = e.entity_no WHERE r.run_id = ?"
_ROW = "SELECT change, value FROM settings s JOIN runs r ON r.run_no = s.run_no WHERE r.run_id = ?"


class SimChanger:
    """Somebody who changes settings."""

    def __init__(self, world: Any, name: str) -> None:
        self._world = world
        self._client = SimClient(world, name)
        self._chance: random.Random = world.stream(f"settings:{name}")
        self._sent: list[Any] = []

    async def run(self) -> None:
        """Act at random until faults are over."""
        while not self._world.calm:
            await sleep(self._chance.random() * PAUSE_S)
            runs = [
                run.run_id
                for run in self._world.auditor.unended()
                if self._world.model_of(run.definition).definition.graph.settings is not None
            ]
            if self._sent and self._chance.random() < 0.2:
                await self._client.send(self._chance.choice(self._sent))
            elif runs:
                await self._change(self._chance.choice(sorted(runs)))

    async def _change(self, run_id: str) -> None:
        field = "fixed" if self._chance.random() < 0.1 else "n"
        value: object = "x" if self._chance.random() < 0.1 else self._chance.randrange(1_000)
        payload: dict[str, Any] = {"patch": [{"op": "replace", "path": f"/{field}", "value": value}]}
        if self._chance.random() < 0.4:
            seen = await self._client.read("settings.get", {}, SettingsView, run_id)
            if seen is None:
                return
            payload["expected_change"] = seen.change
        request = self._client.request("settings.change", payload, run_id)
        self._sent.append(request)
        response = await self._client.send(request)
        if response is not None and response.outcome == "accepted":
            sound = field == "n" and isinstance(value, int)
            self._world.auditor.check(sound, f"{request} is not for anybody to make: {response}")


class SettingsRules:
    """Kept by the auditor."""

    def __init__(self, auditor: Any) -> None:
        self._auditor = auditor
        self._seen: dict[
            tuple[str, int], set[int]
        ] = {}  # run and attempt -> changes that its runners have named

    def finish_sent(self, run_id: str, attempt: int, change: int) -> None:
        """A runner says by which settings a step has ended."""
        self._seen.setdefault((run_id, attempt), set()).add(change)

    def look(self, run: Any, attempts: list[tuple[Any, ...]]) -> None:
        """After a commit that changed the run."""
        model = self._auditor.model_of(run.definition)
        if model.definition is None or model.definition.graph.settings is None:  # a stage has no definition
            return
        changes = 0
        for _revision, kind, payload in sorted(self._auditor.rows(_CHANGES, run.run_id)):
            facts = json.loads(bytes(payload)) if payload else {}
            if kind == "settings_changed":
                changes += 1
                self._auditor.check(
                    facts["change"] == changes, f"{run.run_id} is at change {changes}: {facts}"
                )
            if kind == "step_finished" and "attempt" in facts:
                self._look_at_route(run, model, attempts, facts["attempt"], changes)
        row = self._auditor.rows(_ROW, run.run_id)
        change, value = row[0] if row else (0, b'{"fixed":0,"n":0}')
        self._auditor.check(change == changes, f"the settings of {run.run_id} are at {change}, not {changes}")
        self._auditor.check(
            json.loads(value)["fixed"] == 0, f"what is fixed for {run.run_id} stays: {value!r}"
        )

    def _look_at_route(
        self, run: Any, model: Any, attempts: list[tuple[Any, ...]], attempt: int, changes: int
    ) -> None:
        _number, node, _visit, status, *_rest = attempts[attempt - 1]
        routed = KINDS[model.nodes[node].kind].routes_by_settings and status == "completed"
        seen = self._seen.get((run.run_id, attempt), set())
        fine = not routed or not seen or changes in seen
        self._auditor.check(
            fine, f"{run.run_id}: attempt {attempt} routes by change {changes}, not by {seen}"
        )
