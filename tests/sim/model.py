"""The auditor's model of one run, and of the path that its attempts may take through its graph."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pwf.protocol.kinds import KINDS
from tests.sim.workload import NO_WAY, WorkflowModel

ENDS = {"completed": "completed", "failed": "failed", "timed_out": "timed_out", "cancelled": "cancelled"}
DIED = "runner_crashed"
GIVEN_UP = "effect_abandoned"  # by a person: no try follows
DEATHS = 3  # of a step without retries, before its failed way applies


class RunModel(NamedTuple):
    """What the tables say of a run."""

    run_id: str
    workflow: str
    status: str
    hold: str | None
    node: str
    visit: int
    attempts: int
    pause_requested: int
    output: bytes | None
    output_digest: str | None
    revision: int
    generation: int
    lease_token: str | None
    queue: str | None
    due_elapsed_ms: int | None
    runner: str | None
    runner_generation: int | None
    requests_open: int
    deaths: int
    max_steps: int | None = None  # in place of the workflow's
    definition: str = ""


def path_fault(
    model: WorkflowModel,
    run: RunModel,
    attempts: list[tuple[Any, ...]],
    begins: tuple[str, dict[str, int]] | None = None,
) -> str | None:
    """Walk the attempts along the graph; what is wrong with them, or None. `begins`: a fork's node, and its visits."""
    position: str | None
    position, visits = (model.start, {model.start: 1}) if begins is None else (begins[0], dict(begins[1]))
    failures, steps = 0, sum(visits.values())
    limit = run.max_steps or model.max_steps
    completed: set[tuple[str, int]] = set()
    inside = Inside(model, str(position))
    ended: str | None = None
    for number, (attempt, node, visit, status, output, generation, code) in enumerate(attempts, 1):
        if attempt != number:
            return f"attempt {attempt} is not number {number}"
        if generation == 0:
            continue  # taken over: `Forks` has looked at it
        if position is None:
            return f"attempt {attempt} began after the end"
        if (node, visit) != (position, visits[position]):
            return f"attempt {attempt} is at {node}:{visit}, not {position}:{visits[position]}"
        if status == "active" and number != len(attempts):
            return f"attempt {attempt} is open, and not the last"
        if status in ("active", "interrupted", "limited", "unknown", "cancelled"):
            continue
        if status == "completed":
            if (node, visit) in completed:
                return f"{node}:{visit} completed twice"
            completed.add((node, visit))
        spec = model.nodes[node]
        if status in ("failed", "timed_out"):
            failures += 1
            tries = DEATHS - 1 if code == DIED and not spec.retries else spec.retries
            if failures <= tries and code != GIVEN_UP and not _ended_here(run, number, attempts):
                continue
        following = spec.follow(status, _value(output))
        ended = status
        if following is None or following is NO_WAY or steps >= limit or inside.is_spent(following):
            if following is not None:
                ended = "failed"
            elif KINDS[spec.kind].notifies:
                ended = "completed"
            position = None
            continue
        assert isinstance(following, str)
        if begins is not None and inside.may_be_spent(following) and _ended_here(run, number, attempts):
            return None
        inside.enter(following)
        position, failures, steps = following, 0, steps + 1
        visits[following] = visits.get(following, 0) + 1
    return _position_fault(run, position, visits, ended, attempts)


class Inside:
    """How many steps each included workflow has taken since it was entered, as far as this run's own steps tell."""

    def __init__(self, model: WorkflowModel, start: str) -> None:
        self._nodes = model.nodes
        self._taken: dict[str, int] = {}
        self.enter(start)

    def _around(self, node: str) -> list[str]:
        parts = node.split(".")
        return [".".join(parts[:count]) for count in range(1, len(parts))]

    def enter(self, node: str) -> None:
        for mount in self._around(node):
            if mount in self._taken:
                self._taken[mount] += 1
        if self._nodes[node].mount is not None:
            self._taken[node] = 0

    def is_spent(self, node: object) -> bool:
        """Whether a step into `node` is one more than an included workflow may take."""
        around = self._around(node) if isinstance(node, str) else []
        return any(self._taken.get(mount, 0) >= self._limit(mount) for mount in around)

    def may_be_spent(self, node: str) -> bool:
        """Whether nobody here knows it: a fork began within it."""
        return any(mount not in self._taken for mount in self._around(node))

    def _limit(self, mount: str) -> int:
        spec = self._nodes[mount].mount
        assert spec is not None
        return spec.max_steps


def _ended_here(run: RunModel, number: int, attempts: list[tuple[Any, ...]]) -> bool:
    """A failed step whose manual effect had happened ends the run although tries are left."""
    return number == len(attempts) and run.status == "failed"


def _position_fault(
    run: RunModel, position: str | None, visits: dict[str, int], ended: str | None, attempts: list[Any]
) -> str | None:
    if run.status not in ENDS:
        if position is None:
            return f"the run should have ended as {ended}"
        if (run.node, run.visit) != (position, visits[position]):
            return f"the run stands at {run.node}:{run.visit}, not {position}:{visits[position]}"
        return None
    if run.status == "cancelled":
        return None
    last = attempts[-1][3] if attempts else None
    spent = run.status == "failed" and last == "failed"  # whatever ways out it has: its effect had happened
    if position is not None and not spent:
        return f"the run ended as {run.status} at {position}"
    if position is None and ended != run.status:
        return f"the run ended as {run.status}, not {ended}"
    if run.status == "completed" and run.output is None and run.output_digest is None:
        return "the run completed without an output"
    return None


def _value(output: bytes | None) -> object:
    return None if output is None else json.loads(output)
