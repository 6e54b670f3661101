"""A layered drawing of a graph: which row and column each node has, and the course of each way.

The usual steps (Sugiyama, Tagawa, Toda, 1981): loops are turned round, each node goes to the row below its
lowest source, ways that skip rows get a place in each row between, and the places of a row are ordered by
the middle of their neighbours so that few ways cross. Pure: no drawing here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from pwf.present.outline import Edge, edges, outline
from pwf.protocol.graph import WorkflowGraph

SWEEPS = 8


@dataclass(eq=False)
class Place:
    """One place in a row: a node, or (`node` None) a point that a way passes through, with its label or none.

    `x` is the middle, in whatever unit `width` is given in; `assign_x` sets it.
    """

    node: str | None
    row: int
    label: str = ""
    column: int = 0
    width: float = 1
    x: float = 0.0
    ups: list[Place] = field(default_factory=list, repr=False)
    downs: list[Place] = field(default_factory=list, repr=False)


@dataclass(eq=False)
class Course:
    """A way through the rows, from its upper end to its lower one; `back` when it really leads upwards."""

    edge: Edge
    places: list[Place]
    back: bool


@dataclass(eq=False)
class Layout:
    """All rows from the top, the place of each node, and the ways.

    Rows of nodes alternate with rows of labels where a way between them has one.
    """

    rows: list[list[Place]]
    nodes: dict[str, Place]
    courses: list[Course]
    loops: list[Edge]  # from a node to itself


def layout(graph: WorkflowGraph) -> Layout:
    """Lay the graph out. Ways between the same two nodes share one course, their labels joined."""
    order = [line.node for line in outline(graph)]
    merged, loops = _merge(edges(graph), set(order))
    back = _back_edges(graph.start, merged)
    rows_of = _with_label_rows(_rows(order, merged, back), merged, back)
    rows: list[list[Place]] = [[] for _ in range(max(rows_of.values()) + 1)]
    nodes: dict[str, Place] = {}
    for node in order:
        nodes[node] = Place(node, rows_of[node])
        rows[rows_of[node]].append(nodes[node])
    courses = [_course(edge, edge in back, nodes, rows) for edge in merged]
    _order(rows)
    return Layout(rows, nodes, courses, loops)


def assign_x(rows: list[list[Place]], gap: float) -> None:
    """Give each place its middle: as near to the middle of its neighbours as the widths and the gap allow."""
    for row in rows:
        at = 0.0
        for place in row:
            place.x = at + place.width / 2
            at += place.width + gap
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        for row in rows[1:] if down else rows[-2::-1]:
            wanted = [_wish(place, down) for place in row]
            for place, x in zip(row, _spread(wanted, row, gap), strict=True):
                place.x = x
    left = min(place.x - place.width / 2 for row in rows for place in row)
    for row in rows:
        for place in row:
            place.x -= left


def _wish(place: Place, down: bool) -> float:
    near = place.ups if down else place.downs
    return sum(other.x for other in near) / len(near) if near else place.x


def _spread(wanted: list[float], row: list[Place], gap: float) -> list[float]:
    """The positions nearest to the wanted ones (least squares) that keep the order and the distances.

    With each distance taken off first, that is isotonic regression; solved by pooling adjacent violators.
    """
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (left.width + right.width) / 2 + gap)
    pools: list[tuple[float, int]] = []
    for x, offset in zip(wanted, offsets, strict=True):
        total, count = x - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, many = pools.pop()
            total, count = total + before, count + many
        pools.append((total, count))
    flat = [total / count for total, count in pools for _ in range(count)]
    return [x + offset for x, offset in zip(flat, offsets, strict=True)]


def _merge(all_edges: list[Edge], known: set[str]) -> tuple[list[Edge], list[Edge]]:
    labels: dict[tuple[str, str], list[str]] = {}
    for edge in all_edges:
        if edge.source in known and edge.target in known:
            labels.setdefault((edge.source, edge.target), []).append(edge.label)
    merged: list[Edge] = []
    loops: list[Edge] = []
    for (source, target), found in labels.items():
        named = [label for label in found if label]
        label = " | ".join(named) if "" not in found else " | ".join(["", *named]).strip(" |")
        (loops if source == target else merged).append(Edge(source, target, label))
    return merged, loops


def _back_edges(start: str, merged: list[Edge]) -> set[Edge]:
    """The edges to a node that is still being visited, in depth-first order: without them there is no
    loop.
    """
    ways: dict[str, list[Edge]] = {}
    for way in merged:
        ways.setdefault(way.source, []).append(way)
    found: set[Edge] = set()
    state = {start: "open"}
    stack = [(start, iter(ways.get(start, ())))]
    while stack:
        node, rest = stack[-1]
        edge = next(rest, None)
        if edge is None:
            state[node] = "done"
            stack.pop()
        elif state.get(edge.target) == "open":
            found.add(edge)
        elif edge.target not in state:
            state[edge.target] = "open"
            stack.append((edge.target, iter(ways.get(edge.target, ()))))
    return found


def _rows(order: list[str], merged: list[Edge], back: set[Edge]) -> dict[str, int]:
    """The row of each node: below all that lead to it."""
    sources: dict[str, list[str]] = {node: [] for node in order}
    targets: dict[str, list[str]] = {node: [] for node in order}
    for edge in merged:
        if edge not in back:
            sources[edge.target].append(edge.source)
            targets[edge.source].append(edge.target)
    waiting = {node: len(found) for node, found in sources.items()}
    ready = [node for node in order if waiting[node] == 0]
    rows = dict.fromkeys(order, 0)
    while ready:
        node = ready.pop()
        for target in targets[node]:
            rows[target] = max(rows[target], rows[node] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return rows


def _with_label_rows(rows: dict[str, int], merged: list[Edge], back: set[Edge]) -> dict[str, int]:
    """Make room for a row of labels below each row of nodes from which a labelled way leads down."""
    labelled = {rows[edge.target if edge in back else edge.source] for edge in merged if edge.label}
    return {node: row + sum(1 for other in labelled if other < row) for node, row in rows.items()}


def _course(edge: Edge, back: bool, nodes: dict[str, Place], rows: list[list[Place]]) -> Course:
    upper, lower = (edge.target, edge.source) if back else (edge.source, edge.target)
    places = [nodes[upper]]
    for row in range(nodes[upper].row + 1, nodes[lower].row):
        label = edge.label if row == nodes[upper].row + 1 else ""
        places.append(Place(None, row, label))
        rows[row].append(places[-1])
    places.append(nodes[lower])
    for above, below in pairwise(places):
        above.downs.append(below)
        below.ups.append(above)
    return Course(edge, places, back)


def _order(rows: list[list[Place]]) -> None:
    _number(rows)
    best, fewest = [list(row) for row in rows], crossings(rows)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            row.sort(key=lambda place: _middle(place, down))
            for column, place in enumerate(row):
                place.column = column
        found = crossings(rows)
        if found < fewest:
            best, fewest = [list(row) for row in rows], found
    for row, wanted in zip(rows, best, strict=True):
        row[:] = wanted
    _number(rows)


def _number(rows: list[list[Place]]) -> None:
    for row in rows:
        for column, place in enumerate(row):
            place.column = column


def _middle(place: Place, down: bool) -> float:
    near = place.ups if down else place.downs
    return sum(other.column for other in near) / len(near) if near else float(place.column)


def crossings(rows: list[list[Place]]) -> int:
    """How many pairs of ways cross between neighbouring rows."""
    total = 0
    for row in rows:
        ends = [other.column for place in row for other in sorted(place.downs, key=lambda item: item.column)]
        for index, end in enumerate(ends):
            total += sum(1 for later in ends[index + 1 :] if later < end)
    return total
