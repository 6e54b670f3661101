"""For random graphs of compute nodes: what the engine sends equals a model, however replies are delayed or parked."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pwf.protocol.graph import Case, NodeSpec, RetrySpec, RoutingFailed, Way, WorkflowGraph, route
from pwf.protocol.runner import Finish
from pwf.workflow.nodes import NodeDef
from pwf.workflow.scopes import ROOT, Scope
from tests.runner.peer import MemoryRun, run_inline

MAX_STEPS = 30


@st.composite
def graphs(draw: st.DrawFn) -> WorkflowGraph:
    """Up to six nodes; each leads on by target or by switch, may fail, may retry, and may loop."""
    names = [f"n{index}" for index in range(draw(st.integers(1, 6)))]
    target = st.sampled_from(names)
    nodes = []
    for name in names:
        ways = []
        if draw(st.booleans()):
            cases = tuple(Case(value=value, target=draw(target)) for value in range(draw(st.integers(1, 3))))
            ways.append(Way(outcome="completed", cases=cases, on=draw(st.sampled_from([None, "pick"]))))
        elif draw(st.booleans()):
            ways.append(Way(outcome="completed", target=draw(target)))
        if draw(st.booleans()):
            ways.append(Way(outcome="failed", target=draw(target)))
        retry = draw(st.none() | st.builds(RetrySpec, times=st.integers(1, 2)))
        nodes.append(NodeSpec(id=name, kind="compute", ways=tuple(ways), retry=retry))
    return WorkflowGraph(name="random", start=names[0], nodes=tuple(nodes), max_steps=MAX_STEPS)


def behaviour(spec: NodeSpec, visit: int, tries: int, salt: int) -> object:
    """What this try of this visit does: a value to return, or an exception to raise. Pure, so a repeat is equal."""
    chance = random.Random(f"{spec.id} {visit} {tries} {salt}")
    if chance.random() < 0.2:
        return ValueError(f"{spec.id} {visit}")
    value = chance.randint(0, 2)
    way = spec.way("completed")
    return {"pick": value} if way is not None and way.on else value


class Code:
    """Stands in for a loaded workflow: node functions that behave as `behaviour` says."""

    def __init__(self, graph: WorkflowGraph, salt: int) -> None:
        self.run: MemoryRun | None = None
        self.nodes = {spec.id: self._node(spec, salt) for spec in graph.nodes}
        self.scopes = {ROOT: Scope.of(None, self.nodes, {})}

    def _node(self, spec: NodeSpec, salt: int) -> NodeDef:
        def fn(ctx: Any) -> object:
            did = behaviour(spec, ctx.visit, self.tries(ctx), salt)
            if isinstance(did, Exception):
                raise did
            return did

        return NodeDef(
            id=spec.id, kind="compute", fn=fn, is_async=False, spec=spec, decode=msgspec.json.decode
        )

    def tries(self, ctx: Any) -> int:
        """Failed tries of this visit before this one, as the run's history has them."""
        assert self.run is not None
        return failures(self.run, ctx.node, ctx.visit)


def failures(run: MemoryRun, node: str, visit: int) -> int:
    return sum(past.node == node and past.visit == visit for past in run.history if past.outcome == "failed")


def model(graph: WorkflowGraph, salt: int) -> tuple[list[tuple[str, int, str]], str]:
    """The (node, visit, outcome) of every attempt, and how the run ends."""
    steps: list[tuple[str, int, str]] = []
    visits: dict[str, int] = {}
    node: str | None = graph.start
    while True:
        assert node is not None
        spec = graph.node(node)
        visit = visits[node] = visits.get(node, 0) + 1
        for tries in range((spec.retry.times if spec.retry else 0) + 1):
            did = behaviour(spec, visit, tries, salt)
            outcome = "failed" if isinstance(did, Exception) else "completed"
            steps.append((node, visit, outcome))
            if outcome == "completed":
                break
        try:
            node = route(spec, outcome, did)
        except RoutingFailed:
            return steps, "failed"
        if node is None:
            return steps, outcome
        if sum(visits.values()) >= MAX_STEPS:
            return steps, "failed"


@settings(max_examples=150, deadline=None)
@given(
    graph=graphs(),
    salt=st.integers(0, 10_000),
    seed=st.integers(0, 10_000),
    parks=st.sets(st.integers(1, 40)),
)
def test_the_transitions_equal_the_model(graph: WorkflowGraph, salt: int, seed: int, parks: set[int]) -> None:
    code = Code(graph, salt)

    def decide(message: object) -> str | None:
        return "park" if isinstance(message, Finish) and message.attempt in parks else None

    run = MemoryRun(graph, decide=decide)
    code.run = run
    while run.status in ("running", "parked"):
        run_inline(code, run, seed=seed)  # type: ignore[arg-type]
        assert run.status != "stale"
    expected, end = model(graph, salt)
    assert [(past.node, past.visit, past.outcome) for past in run.history] == expected
    assert run.status == end
