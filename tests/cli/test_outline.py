"""Outlines and drawings show every node once, whatever the graph."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pwf.present.graph_mermaid import mermaid
from pwf.present.graph_svg import svg
from pwf.present.graph_text import draw
from pwf.present.layers import assign_x, layout
from pwf.present.outline import outline
from pwf.protocol.graph import Case, MountSpec, NodeSpec, Way, WorkflowGraph
from tests.client.samples import graph


@st.composite
def graphs(draw_from: Any) -> WorkflowGraph:
    """Any graph in which every node can be reached; loops and ways to itself included."""
    count = draw_from(st.integers(1, 9))
    targets: list[set[int]] = [set() for _ in range(count)]
    for node in range(1, count):  # a spanning tree, so that all are reached
        targets[draw_from(st.integers(0, node - 1))].add(node)
    for source, target in draw_from(
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=8)
    ):
        targets[source].add(target)
    nodes: list[NodeSpec] = []
    for index, found in enumerate(targets):
        ways: list[Way] = []
        ordered = sorted(found)
        if len(ordered) == 1:
            ways = [Way(outcome=draw_from(st.sampled_from(["completed", "failed"])), target=f"n{ordered[0]}")]
        elif ordered:
            cases = tuple(Case(value=f"case{target}", target=f"n{target}") for target in ordered)
            ways = [Way(outcome="completed", cases=cases)]
        nodes.append(NodeSpec(id=f"n{index}", kind="compute", ways=tuple(ways)))
    return WorkflowGraph(name="any", start="n0", nodes=tuple(nodes))


def chain(*names: str) -> WorkflowGraph:
    nodes = [
        NodeSpec(id=name, kind="compute", ways=(Way(outcome="completed", target=after),) if after else ())
        for name, after in zip(names, [*names[1:], None], strict=True)
    ]
    return WorkflowGraph(name="chain", start=names[0], nodes=tuple(nodes))


def test_a_chain_stays_at_one_depth() -> None:
    assert [(line.node, line.depth) for line in outline(chain("a", "b", "c"))] == [
        ("a", 0),
        ("b", 0),
        ("c", 0),
    ]


def test_branches_are_indented_with_their_label_and_the_plain_way_goes_on() -> None:
    found = [(line.node, line.depth, line.label) for line in outline(graph())]
    assert found == [("collect", 0, ""), ("apologise", 1, "failed"), ("review", 0, ""), ("ship", 1, "ship")]


def test_where_branches_meet_the_outline_returns_to_the_old_depth() -> None:
    cases = (Case(value="x", target="b"), Case(value="y", target="c"))
    nodes = (
        NodeSpec(id="a", kind="compute", ways=(Way(outcome="completed", cases=cases),)),
        NodeSpec(id="b", kind="compute", ways=(Way(outcome="completed", target="d"),)),
        NodeSpec(id="c", kind="compute", ways=(Way(outcome="completed", target="d"),)),
        NodeSpec(id="d", kind="compute"),
    )
    found = outline(WorkflowGraph(name="w", start="a", nodes=nodes))
    assert [(line.node, line.depth) for line in found] == [("a", 0), ("b", 1), ("c", 1), ("d", 0)]


@given(graphs())
def test_an_outline_names_every_node_once(any_graph: WorkflowGraph) -> None:
    assert sorted(line.node for line in outline(any_graph)) == sorted(node.id for node in any_graph.nodes)


@given(graphs())
@settings(deadline=None)
def test_boxes_of_a_row_never_overlap_and_ways_only_join_neighbouring_rows(any_graph: WorkflowGraph) -> None:
    plan = layout(any_graph)
    for row in plan.rows:
        for place in row:
            place.width = 9
    assign_x(plan.rows, 3)
    for row in plan.rows:
        for left, right in pairwise(row):
            assert right.x - left.x >= 12 - 1e-6
    for course in plan.courses:
        rows = [place.row for place in course.places]
        assert rows == list(range(rows[0], rows[-1] + 1))


@given(graphs())
@settings(deadline=None)
def test_every_drawing_shows_every_node_once(any_graph: WorkflowGraph) -> None:
    text, picture, chart = draw(any_graph), svg(any_graph), mermaid(any_graph)
    ET.fromstring(picture)
    for node in any_graph.nodes:
        assert len(re.findall(rf"│ +{node.id} \(", text)) == 1
        assert picture.count(f">{node.id}</text>") == 1
        assert chart.count(f'"{node.id}<br/>') == 1


@given(graphs())
@settings(deadline=None)
def test_every_way_ends_in_an_arrow(any_graph: WorkflowGraph) -> None:
    plan = layout(any_graph)
    text = draw(any_graph)
    assert text.count("▼") + text.count("▲") == len(plan.courses)
    assert text.count("↺") == len(plan.loops)


HOSTILE_NAME = '</text><script>alert("x")</script>\x1b[2J\u202e`|;--'


def test_hostile_names_and_cases_stay_text_in_every_format() -> None:
    cases = (Case(value=HOSTILE_NAME, target="b"), Case(value="y", target="a"))
    nodes = (
        NodeSpec(id="a", kind="compute", doc=HOSTILE_NAME, ways=(Way(outcome="completed", cases=cases),)),
        NodeSpec(id="b", kind="compute"),
    )
    hostile = WorkflowGraph(name=HOSTILE_NAME, start="a", nodes=nodes)
    picture = svg(hostile)
    tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(picture).iter()}
    assert "script" not in tags
    for shown in (draw(hostile), picture, mermaid(hostile)):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert "<script>" not in mermaid(hostile)


def test_a_long_chain_and_a_wide_switch_are_drawn() -> None:
    assert draw(chain(*(f"step_{index}" for index in range(120)))).count("▼") == 119
    cases = tuple(Case(value=index, target=f"n{index}") for index in range(30))
    nodes = [NodeSpec(id="a", kind="compute", ways=(Way(outcome="completed", cases=cases),))]
    nodes += [NodeSpec(id=f"n{index}", kind="compute") for index in range(30)]
    assert draw(WorkflowGraph(name="w", start="a", nodes=tuple(nodes))).count("▼") == 30


def nested() -> WorkflowGraph:
    """`first` leads into `part`, whose `a` goes round `part.deep` and leaves by two exits."""

    def node(id: str, *ways: Way, **more: Any) -> NodeSpec:
        return NodeSpec(id=id, kind="compute", ways=ways, **more)

    def to(target: str) -> Way:
        return Way(outcome="completed", target=target)

    deep = MountSpec(workflow="deep", exits={"x": ("part.deep.x",)})
    part = MountSpec(workflow="child", exits={"good": ("part.good",), "bad": ("part.bad",)})
    cases = (Case(value=True, target="part.good"), Case(value=False, target="part.bad"))
    return WorkflowGraph(
        name="any",
        start="first",
        nodes=(
            node("first", to("part")),
            node("part", to("part.deep"), mount=part),
            node("part.deep", to("part.deep.x"), mount=deep),
            node("part.deep.x", to("part.a")),
            node("part.a", Way(outcome="completed", cases=cases)),
            node("part.good", to("end")),
            node("part.bad", to("part")),
            node("end"),
        ),
    )


def test_what_is_included_stands_below_its_include() -> None:
    assert [(line.depth, line.node, line.label) for line in outline(nested())] == [
        (0, "first", ""),
        (0, "part", ""),
        (1, "part.deep", ""),
        (2, "part.deep.x", ""),
        (1, "part.a", ""),
        (2, "part.good", "true"),
        (2, "part.bad", "false"),
        (1, "end", "good"),
    ]


def test_each_included_workflow_is_drawn_by_itself_with_the_ids_of_its_author() -> None:
    root, *parts = re.split(r"\n\n(?=part)", draw(nested()))
    assert [part.splitlines()[0] for part in parts] == ["part: child", "part.deep: deep"]
    assert "good" in root
    assert "deep" not in root
    assert " a (compute) " in parts[0]
    text = mermaid(nested())
    assert text.count("subgraph") == text.count("\n  end\n") == 2
    assert svg(nested()).count('class="kind"') == 8
