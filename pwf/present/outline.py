"""A graph as an outline: the order and depth in which a live view lists its nodes.

A chain stays at one depth. Where a node has several ways, the nodes that only one of them leads to stand
indented below it, with the outcome or case; where the ways meet again the outline goes on at the old depth.
That is the dominator tree of the graph (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm, 2001),
read in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from pwf.present.parts import mounts_in, part_of
from pwf.protocol.graph import NodeSpec, WorkflowGraph


class OutlineLine(NamedTuple):
    """One node. `label` says which way leads to it, empty where that is plain."""

    node: str
    depth: int
    label: str


class Edge(NamedTuple):
    """One way out. `label` is empty for the plain way on."""

    source: str
    target: str
    label: str


def edges(graph: WorkflowGraph) -> list[Edge]:
    """All ways, in the order of the nodes and of their ways."""
    return [edge for node in graph.nodes for edge in _ways(node)]


def outline(graph: WorkflowGraph) -> list[OutlineLine]:
    """Every node that can be reached, once; those of an included workflow indented below it."""
    return list(_outline(graph, "", 0))


def _outline(graph: WorkflowGraph, mount: str, depth: int) -> Iterator[OutlineLine]:
    included = set(mounts_in(graph))
    for at in _of_one(part_of(graph, mount)):
        yield at._replace(depth=at.depth + depth)
        if at.node in included:
            yield from _outline(graph, at.node, at.depth + depth + 1)


def _of_one(graph: WorkflowGraph) -> list[OutlineLine]:
    targets: dict[str, list[Edge]] = {node.id: _ways(node) for node in graph.nodes}
    order = _reverse_postorder(graph.start, targets)
    number = {node: index for index, node in enumerate(order)}
    sources: dict[str, list[str]] = {node: [] for node in order}
    for node in order:
        for edge in targets[node]:
            if edge.target in number:
                sources[edge.target].append(node)
    parent = _dominators(order, number, sources)
    children: dict[str, list[str]] = {node: [] for node in order}
    for node in order[1:]:
        children[parent[node]].append(node)
    found: list[OutlineLine] = []
    pending = [OutlineLine(graph.start, 0, "")]
    while pending:
        at = pending.pop()
        found.append(at)
        pending.extend(reversed(_below(at, targets[at.node], children[at.node], sources)))
    return found


def _ways(node: NodeSpec) -> list[Edge]:
    found: list[Edge] = []
    for way in node.ways:
        label = "" if way.outcome == "completed" else way.outcome
        if way.target is not None:
            found.append(Edge(node.id, way.target, label))
        for case in way.cases:
            value = case.value if isinstance(case.value, str) else json.dumps(case.value)
            found.append(Edge(node.id, case.target, value or '""'))
    return found


def _below(
    at: OutlineLine, ways: list[Edge], children: list[str], sources: dict[str, list[str]]
) -> list[OutlineLine]:
    """The lines directly under a node: its branches, then its plain way on, then where branches meet
    again.
    """
    branches: list[OutlineLine] = []
    plain: list[OutlineLine] = []
    several = len({edge.target for edge in ways}) > 1
    placed: set[str] = set()
    for edge in ways:
        if edge.target not in children or edge.target in placed:
            continue
        alone = all(source in (at.node, edge.target) for source in sources[edge.target])
        if edge.label and alone and several:
            same = [other.label for other in ways if other.target == edge.target]
            branches.append(OutlineLine(edge.target, at.depth + 1, " | ".join(same)))
            placed.add(edge.target)
        elif not edge.label:
            plain.append(OutlineLine(edge.target, at.depth, ""))
            placed.add(edge.target)
    joins = [OutlineLine(child, at.depth, "") for child in children if child not in placed]
    return branches + plain + joins


def _reverse_postorder(start: str, targets: dict[str, list[Edge]]) -> list[str]:
    order: list[str] = []
    seen = {start}
    stack = [(start, iter(targets[start]))]
    while stack:
        node, ways = stack[-1]
        for edge in ways:
            if edge.target not in seen and edge.target in targets:
                seen.add(edge.target)
                stack.append((edge.target, iter(targets[edge.target])))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def _dominators(order: list[str], number: dict[str, int], sources: dict[str, list[str]]) -> dict[str, str]:
    parent: dict[str, str] = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            known = [source for source in sources[node] if source in parent]
            new = known[0]
            for other in known[1:]:
                new = _meet(new, other, parent, number)
            if parent.get(node) != new:
                parent[node] = new
                changed = True
    return parent


def _meet(a: str, b: str, parent: dict[str, str], number: dict[str, int]) -> str:
    while a != b:
        while number[a] > number[b]:
            a = parent[a]
        while number[b] > number[a]:
            b = parent[b]
    return a
