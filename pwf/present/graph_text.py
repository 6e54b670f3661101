"""A workflow drawn with boxes and lines for a terminal."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from pwf.present import text
from pwf.present.layers import Layout, Place, assign_x, layout
from pwf.present.parts import mounts_in, part_of, with_own_ids
from pwf.protocol.graph import NodeSpec, WorkflowGraph

GAP = 3  # cells between boxes
BOX_ROWS = 3
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_LINES = {
    UP: "│",
    DOWN: "│",
    UP | DOWN: "│",
    LEFT: "─",
    RIGHT: "─",
    LEFT | RIGHT: "─",
    UP | RIGHT: "╰",
    UP | LEFT: "╯",
    DOWN | RIGHT: "╭",
    DOWN | LEFT: "╮",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    LEFT | RIGHT | DOWN: "┬",
    LEFT | RIGHT | UP: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
}


class Wire(NamedTuple):
    """A way between two neighbouring rows: from column `top` down to column `bottom`, with arrow heads."""

    top: int
    bottom: int
    arrow_up: bool
    arrow_down: bool


def draw(graph: WorkflowGraph) -> str:
    """The whole drawing, safe to print; a dot marks the start. What it includes is drawn below, each by itself."""
    drawn = [_draw(with_own_ids(part_of(graph)))]
    for mount in mounts_in(graph):
        spec = graph.node(mount).mount
        assert spec is not None
        drawn.append(f"{text.line(mount)}: {text.line(spec.workflow)}")
        drawn.append(_draw(with_own_ids(part_of(graph, mount))))
    return "\n\n".join(drawn)


def _draw(graph: WorkflowGraph) -> str:
    plan = layout(graph)
    specs = {node.id: node for node in graph.nodes}
    loops = {edge.source: edge.label for edge in plan.loops}
    captions = {node: _caption(specs[node], loops) for node in plan.nodes}
    for row in plan.rows:
        for place in row:
            place.width = _width(place, captions)
    assign_x(plan.rows, GAP)
    canvas = Canvas()
    start = plan.nodes[graph.start]
    canvas.write(0, _column(start), "●")
    canvas.line(1, _column(start), UP | DOWN)
    line = 2
    for number, row in enumerate(plan.rows):
        boxes = any(place.node is not None for place in row)
        for place in row:
            _place(canvas, line, place, captions, boxes)
        line += BOX_ROWS if boxes else 1
        if number + 1 < len(plan.rows):
            line = _band(canvas, line, _wires(plan, number))
    return canvas.render()


def _caption(node: NodeSpec, loops: dict[str, str]) -> str:
    loop = ""
    if node.id in loops:
        loop = f" ↺ {text.line(loops[node.id], 24)}".rstrip()
    return f"{text.line(node.id, 48)} ({node.kind}){loop}"


def _width(place: Place, captions: dict[str, str]) -> int:
    """Odd, so that every middle is a cell."""
    if place.node is not None:
        return (text.width(captions[place.node]) + 4) | 1
    return (text.width(text.line(place.label, 32)) + 2) | 1 if place.label else 1


def _column(place: Place) -> int:
    return round(place.x)


def _place(canvas: Canvas, line: int, place: Place, captions: dict[str, str], boxes: bool) -> None:
    column = _column(place)
    if place.node is not None:
        width = int(place.width)
        left = column - width // 2
        caption = captions[place.node]
        room = width - 2
        before = (room - text.width(caption)) // 2
        inner = " " * before + caption + " " * (room - before - text.width(caption))
        canvas.write(line, left, "╭" + "─" * room + "╮")
        canvas.write(line + 1, left, "│" + inner + "│")
        canvas.write(line + 2, left, "╰" + "─" * room + "╯")
    elif place.label:
        label = text.line(place.label, 32)
        canvas.write(line, column - text.width(label) // 2, label)
        for below in range(1, BOX_ROWS if boxes else 1):
            canvas.line(line + below, column, UP | DOWN)
    else:
        for below in range(BOX_ROWS if boxes else 1):
            canvas.line(line + below, column, UP | DOWN)


def _wires(plan: Layout, number: int) -> list[Wire]:
    """The ways between this row and the next, each with a column of its own at the boxes that it meets."""
    found: list[tuple[Place, Place, bool, bool]] = []
    for course in plan.courses:
        last = len(course.places) - 2
        for index, (upper, lower) in enumerate(pairwise(course.places)):
            if upper.row == number:
                up, down = course.back and index == 0, not course.back and index == last
                found.append((upper, lower, up, down))
    tops = _ports([(upper, lower) for upper, lower, _, _ in found])
    bottoms = _ports([(lower, upper) for upper, lower, _, _ in found])
    return [
        Wire(top, bottom, up, down)
        for top, bottom, (_, _, up, down) in zip(tops, bottoms, found, strict=True)
    ]


def _ports(ends: list[tuple[Place, Place]]) -> list[int]:
    """A column for each end at its own place, spread over the box in the order of the other ends."""
    ports = [0] * len(ends)
    by_place: dict[int, list[int]] = {}
    for index, (place, _) in enumerate(ends):
        by_place.setdefault(id(place), []).append(index)
    for indexes in by_place.values():
        place = ends[indexes[0]][0]
        indexes.sort(key=lambda index: ends[index][1].x)
        room = max(1, int(place.width) - 4)
        for position, index in enumerate(indexes):
            share = (position + 1) / (len(indexes) + 1) - 0.5
            ports[index] = _column(place) + (round(share * room) if place.node is not None else 0)
    return ports


def _band(canvas: Canvas, line: int, wires: list[Wire]) -> int:
    """Draw the ways between two rows, each bend in a line of its own; returns the line after them."""
    tracks = _tracks(wires)
    height = max([*tracks, 0]) + 2
    for wire, track in zip(wires, tracks, strict=True):
        at = line + track
        for above in range(line, at):
            canvas.line(above, wire.top, UP | DOWN)
        if wire.top == wire.bottom:
            canvas.line(at, wire.top, UP | DOWN)
        else:
            left, right = sorted((wire.top, wire.bottom))
            for column in range(left + 1, right):
                canvas.line(at, column, LEFT | RIGHT)
            toward = RIGHT if wire.bottom > wire.top else LEFT
            canvas.line(at, wire.top, UP | toward)
            canvas.line(at, wire.bottom, DOWN | (LEFT | RIGHT) ^ toward)
        for below in range(at + 1, line + height):
            canvas.line(below, wire.bottom, UP | DOWN)
    for wire in wires:
        if wire.arrow_up:
            canvas.write(line, wire.top, "▲")
        if wire.arrow_down:
            canvas.write(line + height - 1, wire.bottom, "▼")
    return line + height


def _tracks(wires: list[Wire]) -> list[int]:
    """The line of each wire's bend (1 is the first, under a line for arrow heads; 0 for a straight wire).

    A wire that comes down where another one leaves must bend below that one, or both would share a column.
    """
    tracks = [0] * len(wires)
    bends = [index for index, wire in enumerate(wires) if wire.top != wire.bottom]
    placed: list[int] = []
    while bends:
        free = [
            one
            for one in bends
            if not any(wires[other].top == wires[one].bottom for other in bends if other != one)
        ]
        index = min(free or bends, key=lambda one: abs(wires[one].top - wires[one].bottom))
        bends.remove(index)
        track = 1
        for other in placed:
            if _share(wires[index], wires[other]) or wires[other].top == wires[index].bottom:
                track = max(track, tracks[other] + 1)
        tracks[index] = track
        placed.append(index)
    return tracks


def _share(a: Wire, b: Wire) -> bool:
    """Whether the level parts of two wires would touch."""
    left_a, right_a = sorted((a.top, a.bottom))
    left_b, right_b = sorted((b.top, b.bottom))
    return left_a <= right_b and left_b <= right_a


class Canvas:
    """Cells that hold a character, or the directions in which lines leave them."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, int], int] = {}
        self._texts: dict[tuple[int, int], str] = {}

    def line(self, row: int, column: int, directions: int) -> None:
        """Add line ends to a cell; crossing lines join."""
        self._lines[row, column] = self._lines.get((row, column), 0) | directions

    def write(self, row: int, column: int, words: str) -> None:
        """Put text over whatever is there; a wide character takes two cells."""
        for char in words:
            cells = text.width(char)
            if cells == 0:  # it belongs to the cell before
                column -= 1
                self._texts[row, column] = self._texts.get((row, column), "") + char
                cells = 1
            else:
                self._texts[row, column] = char
            for further in range(1, cells):
                self._texts[row, column + further] = ""
            column += cells

    def render(self) -> str:
        """All cells as lines of text."""
        cells = {**{at: _LINES[directions] for at, directions in self._lines.items()}, **self._texts}
        rows = max((row for row, _ in cells), default=-1) + 1
        lines: list[str] = []
        for row in range(rows):
            columns = [column for at, column in cells if at == row]
            width = max(columns, default=-1) + 1
            lines.append("".join(cells.get((row, column), " ") for column in range(width)).rstrip())
        return "\n".join(lines)
