"""The graph checker: whatever an author writes is a sound graph, or an error that names a place and what to do."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pwf import Retry, Workflow, applied, days, idempotent, manual, seconds
from pwf.errors import PwfError
from pwf.protocol.graph import RoutingFailed, WorkflowGraph, route
from pwf.workflow.nodes import Node
from tests.fuzz.strategies import PATIENT, json_values, scalars

RETURNS: list[Any] = [
    None,
    int,
    bool,
    str,
    Literal["a", "b"],
    Literal[1, "a"],
    dict[str, int],
    {"enum": ["a", 1, None]},
    {"type": "object", "properties": {"x": {"enum": ["a"]}}, "required": ["x"]},
]
ODD_RETURNS: list[Any] = [{"type": "nonsense"}, object(), bytes]
IDS = ["a", "b", "c", "a", "1x", "", "with space", "é"]
OUTCOMES = ["completed", "failed", "timed_out", "cancelled", "other"]


def mostly(sensible: list[Any], odd: list[Any]) -> st.SearchStrategy[Any]:
    """One time in thirty something that no author should write."""
    return st.integers(0, 29).flatmap(lambda chance: st.sampled_from(odd if chance == 17 else sensible))


@st.composite
def node(draw: st.DrawFn, flow: Workflow[Any], id: str) -> Node[Any]:
    """Any kind with any options, sensible or not."""
    options: dict[str, Any] = {"id": draw(mostly([id], IDS))}
    kind = draw(st.sampled_from(["compute", "action", "shell", "wait", "checkpoint", "agent"]))
    if kind in ("action", "shell"):
        observe = draw(mostly([lambda ctx: applied()], [None, lambda: 1, 3]))
        options["effect"] = draw(mostly([idempotent("x"), manual("x", observe=observe)], [None, "x"]))
    if kind == "agent" or (kind in ("compute", "action", "checkpoint") and draw(st.booleans())):
        options["returns"] = draw(mostly(RETURNS, ODD_RETURNS))
    if kind in ("compute", "action", "shell") and draw(st.booleans()):
        options["timeout"] = draw(mostly([seconds(1), None], [days(10_000_000), seconds(-1), 3, "x"]))
    if kind in ("compute", "action", "shell") and draw(st.booleans()):
        options["retry"] = draw(mostly([Retry(2), Retry(1, backoff=seconds(0))], [Retry(0), 2]))
    if kind == "shell":
        options["ok_exit_codes"] = draw(mostly([(0,), 1, (0, 1)], [(), (0, 300)]))
    function = draw(mostly([lambda ctx: 1, lambda *a: 1], [lambda: 1, lambda ctx, x: 1, 7]))
    made: Node[Any] = getattr(flow, kind)(**options)(function)
    return made


@st.composite
def workflows(draw: st.DrawFn) -> WorkflowGraph:
    """The graph of a workflow that was put together at random; raises what the author would see."""
    flow: Workflow[Any] = Workflow(
        draw(mostly(["flow"], ["", "a b"])),
        input=draw(mostly(RETURNS, ODD_RETURNS)),
        max_steps=draw(mostly([1, 100], [0, -1, 10**9])),
    )
    nodes = [draw(node(flow, f"n{index}")) for index in range(draw(st.integers(1, 4)))]
    odd = ["a", None, Workflow("other").compute(id="a")(lambda ctx: 1)]
    target = mostly(nodes, odd)
    lines: list[Any] = [nodes[0]]
    for source in nodes:
        ways = draw(st.sets(st.sampled_from(OUTCOMES[:3]), max_size=3)) | draw(mostly([set()], [{"other"}]))
        for outcome in sorted(ways):
            if outcome == "completed" and draw(st.booleans()):
                found = _values_of(source, draw)
                cases = {value: draw(target) for value in found}
                lines.append(source.switch(on=draw(mostly([None], ["x", "é"])), cases=cases))
            elif outcome == "completed":
                lines.append(source >> draw(target))
            else:
                lines.append(source.on(outcome) >> draw(target))
    lines += draw(mostly([[]], [[nodes[0] >> nodes[0]], [nodes[-1]]]))
    if len(nodes) > 1 or draw(st.booleans()):
        flow.graph(*lines, start=draw(mostly([None], [*nodes, *odd])))
    return flow.to_graph()


def _values_of(source: Node[Any], draw: st.DrawFn) -> list[Any]:
    """The cases that its type asks for, or some."""
    known: dict[Any, list[Any]] = {
        Literal["a", "b"]: ["a", "b"],
        Literal[1, "a"]: [1, "a"],
        bool: [True, False],
    }
    fitting = [values for type_, values in known.items() if source.returns == type_]
    some: list[Any] = draw(st.lists(scalars, max_size=3, unique_by=lambda value: (type(value), value)))
    return draw(mostly(fitting, [some])) if fitting else some


@PATIENT
@given(st.data())
def test_what_an_author_writes_is_a_sound_graph_or_an_error_with_words(data: st.DataObject) -> None:
    refusal: PwfError | None = None
    graph: WorkflowGraph | None = None
    try:
        graph = data.draw(workflows())
    except PwfError as error:
        refusal = error
    if graph is None:
        assert refusal is not None
        assert refusal.message
        return
    check_sound(graph)
    output = data.draw(json_values)
    for spec in graph.nodes:
        for outcome in OUTCOMES[:4]:
            try:
                following = route(spec, outcome, output)
            except RoutingFailed as error:
                assert spec.id in str(error)  # noqa: PT017 - every value of any type must be named
                continue
            assert following is None or graph.node(following)


def check_sound(graph: WorkflowGraph) -> None:
    """What the rest of pwf relies on."""
    ids = [spec.id for spec in graph.nodes]
    assert len(ids) == len(set(ids))
    reached, waiting = {graph.start}, [graph.start]
    while waiting:
        spec = graph.node(waiting.pop())
        assert len({way.outcome for way in spec.ways}) == len(spec.ways)
        for way in spec.ways:
            assert (way.target is None) == bool(way.cases)
            targets = [way.target] if way.target is not None else [case.target for case in way.cases]
            for target in targets:
                if target not in reached:
                    reached.add(target)
                    waiting.append(target)
    assert reached == set(ids)
    assert graph.max_steps >= 1
    for spec in graph.nodes:
        assert (spec.effect is not None) == (spec.kind in ("action", "shell"))
        if spec.retry is not None and spec.effect is not None and spec.effect.mode == "manual":
            assert spec.effect.observable
    assert msgspec.json.decode(msgspec.json.encode(graph), type=WorkflowGraph) == graph
