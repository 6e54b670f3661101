"""Simulated changes of settings: by several people at once, on what they have seen, and twice.

Each seed that has them draws which workflows declare settings, included ones, too, and which pure nodes route by them.
The auditor holds that changes are numbered in the order of the history, that a change is of a workflow which the run is
in, and that a route which was committed had seen every change before it of the workflow that it stands in.
"""

from __future__ import annotations

import json
import random
from typing import Any

from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.kinds import KINDS
from pwf.protocol.mounts import is_within, mount_of
from pwf.protocol.settings import SettingsView
from tests.sim.clients import SimClient
from tests.sim.virtual_time import sleep

PAUSE_S = 3.0
_CHANGES = "SELECT e.revision, e.kind, e.payload FROM events e JOIN runs r ON r.run_no = e.entity_no WHERE r.run_id = ?"
_ROWS = "SELECT scope, change, value FROM settings s JOIN runs r ON r.run_no = s.run_no WHERE r.run_id = ?"


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
                if scopes_of(self._world.model_of(run.definition).definition.graph)
            ]
            if self._sent and self._chance.random() < 0.2:
                await self._client.send(self._chance.choice(self._sent))
            elif runs:
                await self._change(self._chance.choice(sorted(runs)))

    async def _change(self, run_id: str) -> None:
        field = "fixed" if self._chance.random() < 0.1 else "n"
        value: object = "x" if self._chance.random() < 0.1 else self._chance.randrange(1_000)
        payload: dict[str, Any] = {"patch": [{"op": "replace", "path": f"/{field}", "value": value}]}
        payload["scope"] = scope = self._scope(self._world.auditor.runs[run_id])
        if self._chance.random() < 0.4:
            seen = await self._client.read("settings.get", {"scope": scope}, SettingsView, run_id)
            if seen is None:
                return
            payload["expected_change"] = seen.change
        request = self._client.request("settings.change", payload, run_id)
        self._sent.append(request)
        response = await self._client.send(request)
        if response is not None and response.outcome == "accepted":
            sound = field == "n" and isinstance(value, int)
            self._world.auditor.check(sound, f"{request} is not for anybody to make: {response}")

    def _scope(self, run: Any) -> str:
        """Mostly one that the run is in."""
        scopes = scopes_of(self._world.model_of(run.definition).definition.graph)
        inside = [scope for scope in scopes if not scope or is_within(run.node, scope)]
        return self._chance.choice(sorted(inside if inside and self._chance.random() < 0.9 else scopes))


def scopes_of(graph: WorkflowGraph) -> set[str]:
    """The mounts of the workflows that have settings; empty: the root's own."""
    own = {""} if graph.settings is not None else set()
    return own | {
        node.id for node in graph.nodes if node.mount is not None and node.mount.settings is not None
    }


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
        if model.definition is None or not (scopes := scopes_of(model.definition.graph)):
            return  # a stage has no definition
        changes, newest = 0, dict.fromkeys(scopes, 0)
        for revision, kind, payload in sorted(self._auditor.rows(_CHANGES, run.run_id)):
            facts = json.loads(bytes(payload)) if payload else {}
            if kind == "settings_changed":
                changes += 1
                self._auditor.check(
                    facts["change"] == changes, f"{run.run_id} is at change {changes}: {facts}"
                )
                scope = facts.get("scope", "")
                newest[scope] = changes
                inside = not scope or revision < run.revision or is_within(run.node, scope)
                self._auditor.check(inside, f"{run.run_id} is at {run.node}, and not in {scope!r}: {facts}")
            if kind == "step_finished" and "attempt" in facts:
                self._look_at_route(run, model, attempts, facts["attempt"], newest)
        for scope, change, value in self._auditor.rows(_ROWS, run.run_id):
            fine = change == newest[scope]
            self._auditor.check(fine, f"{scope!r} of {run.run_id} is at change {change}, not at {newest}")
            fixed = json.loads(value)["fixed"]
            self._auditor.check(fixed == 0, f"what is fixed for {run.run_id} stays: {value!r}")

    def _look_at_route(
        self, run: Any, model: Any, attempts: list[tuple[Any, ...]], attempt: int, newest: dict[str, int]
    ) -> None:
        _number, node, _visit, status, *_rest = attempts[attempt - 1]
        routed = KINDS[model.nodes[node].kind].routes_by_settings and status == "completed"
        seen = self._seen.get((run.run_id, attempt), set())
        wanted = newest.get(mount_of(node), 0)
        fine = not routed or not seen or max(seen) >= wanted
        self._auditor.check(fine, f"{run.run_id}: attempt {attempt} routes by change {wanted}, not by {seen}")
