"""For any graph: as data it is what the author wrote, and `route` goes where the author's ways lead."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pwf import Workflow
from pwf.protocol.graph import RoutingFailed, WorkflowGraph, route
from pwf.values import canonical
from pwf.workflow.nodes import Node

OUTCOMES = ("completed", "failed", "timed_out", "cancelled")
#: A shared machine may be slow, and the first text costs Hypothesis a table of all characters.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
RESERVED = {"on", "cases", "self"}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.from_regex(
    r"[a-z]{1,5}", fullmatch=True
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
#: What leads out of one node, with nodes as numbers: outcome -> number, or (field, {value: number}).
ways = st.dictionaries(
    st.sampled_from(OUTCOMES[1:]) | st.just("completed"),
    st.integers(0, 7),
    max_size=3,
)
switches = st.tuples(st.none() | texts, st.dictionaries(scalars, st.integers(0, 7), min_size=1, max_size=5))


@st.composite
def models(draw: st.DrawFn) -> dict[int, dict[str, Any]]:
    """Nodes 0 to n, all reached from 0."""
    count = draw(st.integers(1, 8))
    model: dict[int, dict[str, Any]] = {}
    for number in range(count):
        out: dict[str, Any] = draw(ways)
        if draw(st.booleans()):
            out["completed"] = draw(switches)
        model[number] = out
    for out in model.values():
        for outcome, way in out.items():
            out[outcome] = (
                (way[0], {value: to % count for value, to in way[1].items()})
                if isinstance(way, tuple)
                else way % count
            )
    reached, waiting = {0}, [0]
    while waiting:
        for way in model[waiting.pop()].values():
            for to in way[1].values() if isinstance(way, tuple) else [way]:
                if to not in reached:
                    reached.add(to)
                    waiting.append(to)
    return {number: out for number, out in model.items() if number in reached}


def written(model: dict[int, dict[str, Any]]) -> Workflow[Any]:
    """The same with an author's means."""
    flow: Workflow[Any] = Workflow("random")
    nodes: dict[int, Node[Any]] = {
        number: flow.compute(id=f"n{number}")(lambda ctx: None) for number in model
    }
    lines: list[Any] = [nodes[0]]
    for number, out in model.items():
        for outcome, way in out.items():
            node = nodes[number]
            if isinstance(way, tuple):
                named = {v: nodes[to] for v, to in way[1].items() if isinstance(v, str) and v.isidentifier()}
                named = {value: to for value, to in named.items() if value not in RESERVED}
                cases = {value: nodes[to] for value, to in way[1].items() if value not in named}
                lines.append(node.switch(on=way[0], cases=cases or None, **named))
            elif outcome == "completed":
                lines.append(node >> nodes[way])
            else:
                lines.append(node.on(outcome) >> nodes[way])
    flow.graph(*lines)
    return flow


@PATIENT
@given(models())
def test_a_graph_survives_the_wire(model: dict[int, dict[str, Any]]) -> None:
    graph = written(model).to_graph()
    assert graph.start == "n0"
    assert {node.id for node in graph.nodes} == {f"n{number}" for number in model}
    assert msgspec.json.decode(msgspec.json.encode(graph), type=WorkflowGraph) == graph
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(graph), type=WorkflowGraph) == graph
    assert msgspec.json.decode(canonical(graph), type=WorkflowGraph) == graph


@PATIENT
@given(models(), scalars)
def test_route_goes_where_the_author_leads(model: dict[int, dict[str, Any]], other: Any) -> None:
    sent = msgspec.json.encode(written(model).to_graph())
    graph = msgspec.json.decode(sent, type=WorkflowGraph)
    for number, out in model.items():
        spec = graph.node(f"n{number}")
        for outcome in OUTCOMES:
            way = out.get(outcome)
            if not isinstance(way, tuple):
                expected = None if way is None else f"n{way}"
                assert route(spec, outcome, {"any": 1}) == expected
                continue
            field, cases = way
            for value, to in cases.items():
                output = json.loads(canonical(value if field is None else {field: value, "x" + field: 0}))
                assert route(spec, outcome, output) == f"n{to}"
            if not any(type(value) is type(other) and value == other for value in cases):
                with pytest.raises(RoutingFailed):
                    route(spec, outcome, other if field is None else {field: other})


@PATIENT
@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=6), st.data())
def test_a_chain_is_the_same_as_its_links_one_by_one(names: list[str], data: st.DataObject) -> None:
    names = list(dict.fromkeys(names))
    flows = []
    for chained in (True, False):
        flow: Workflow[Any] = Workflow("chain")
        nodes = [flow.compute(id=name)(lambda ctx: None) for name in names]
        if chained and len(nodes) > 1:
            chain: Any = nodes[0]
            for node in nodes[1:]:
                chain = chain >> node
            flow.graph(chain)
        else:
            flow.graph(nodes[0], *(a >> b for a, b in itertools.pairwise(nodes)))
        flows.append([(node.id, node.ways) for node in flow.to_graph().nodes])
    assert flows[0] == flows[1]


def test_a_chain_may_end_in_a_switch_and_begin_with_an_outcome() -> None:
    flow: Workflow[Any] = Workflow("chain")
    a, b, c = (flow.compute(id=name)(lambda ctx: None) for name in "abc")
    flow.graph(a >> b.switch(yes=c, no=a), a.on("failed", "timed_out") >> c >> (b.on("cancelled") >> a))
    specs = {node.id: node for node in flow.to_graph().nodes}
    assert [route(specs["a"], outcome, None) for outcome in OUTCOMES] == ["b", "c", "c", None]
    assert [route(specs["b"], "completed", answer) for answer in ("yes", "no")] == ["c", "a"]
    assert (route(specs["b"], "cancelled", None), route(specs["c"], "completed", None)) == ("a", "b")
