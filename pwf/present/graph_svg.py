"""A workflow as a stand-alone SVG picture, light or dark as the viewer prefers."""

from __future__ import annotations

from itertools import pairwise
from xml.sax.saxutils import escape

from pwf.present import text
from pwf.present.layers import Course, Layout, Place, assign_x, layout
from pwf.protocol.graph import NodeSpec, WorkflowGraph
from pwf.protocol.kinds import KINDS

CELL = 7.8  # width of a character of the 13 px monospace font
BOX_HEIGHT = 46.0
LABEL_HEIGHT = 18.0
ROW_GAP = 34.0
COLUMN_GAP = 34.0
MARGIN = 28.0
TITLE_HEIGHT = 34.0
START_HEIGHT = 40.0
OUTCOMES = frozenset({"failed", "timed_out", "cancelled"})

_STYLE = """
    .back { fill: #ffffff } .title { font: 600 16px system-ui, sans-serif; fill: #1f2328 }
    text { font: 13px ui-monospace, Menlo, Consolas, monospace; text-anchor: middle; fill: #1f2328 }
    .title { text-anchor: start } .kind { font-size: 10.5px; fill: #59636e }
    .label { font-size: 11.5px; fill: #59636e } .chip { fill: #ffffff }
    .node { stroke-width: 1.4 } .way { fill: none; stroke: #818b98; stroke-width: 1.5 }
    .outcome { stroke-dasharray: 5 4; stroke: #cf5b54 } .tip { fill: #818b98 } .tip-outcome { fill: #cf5b54 }
    .start { fill: #1f2328 }
    .blue { fill: #eef4ff; stroke: #5b8def } .orange { fill: #fff1e5; stroke: #e08a3c }
    .yellow { fill: #fff8dc; stroke: #c9a227 } .grey { fill: #f0f1f3; stroke: #8c959f }
    .purple { fill: #f6eefe; stroke: #9a6dd7 }
    .green { fill: #e9f8ee; stroke: #3f9a63 }
    @media (prefers-color-scheme: dark) {
      .back, .chip { fill: #0d1117 } .title, text, .start { fill: #e6edf3 } .kind, .label { fill: #9198a1 }
      .blue { fill: #14233f } .orange { fill: #3a2412 } .yellow { fill: #332a0d } .grey { fill: #21262d }
      .purple { fill: #2a1b40 }
      .green { fill: #12301e }
    }
"""


def svg(graph: WorkflowGraph) -> str:
    """The text of an `.svg` file."""
    plan = layout(graph)
    specs = {node.id: node for node in graph.nodes}
    kinds = _kinds(plan, specs)
    for row in plan.rows:
        for place in row:
            place.width = _width(place, kinds)
    assign_x(plan.rows, COLUMN_GAP)
    tops = _tops(plan)
    box_rows = frozenset(place.row for place in plan.nodes.values())
    name = text.line(graph.name)
    right = max(place.x + place.width / 2 for row in plan.rows for place in row)
    width = max(right + 2 * MARGIN, text.width(name) * 10 + 2 * MARGIN)
    height = tops[-1] + BOX_HEIGHT + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="workflow {_xml(name)}">',
            f"  <style>{_STYLE}  </style>",
            _arrow("tip"),
            _arrow("tip-outcome"),
            '  <rect class="back" width="100%" height="100%"/>',
            f'  <text class="title" x="{MARGIN}" y="{MARGIN}">{_xml(name)}</text>',
            *_start(plan.nodes[graph.start], tops),
            *(_way(course, tops, box_rows) for course in plan.courses),
            *_loops(plan, tops),
            *(_box(specs[node], kinds[node], place, tops) for node, place in plan.nodes.items()),
            *(_chip(place, tops) for row in plan.rows for place in row if place.label),
            "</svg>",
        ]
    )


def _kinds(plan: Layout, specs: dict[str, NodeSpec]) -> dict[str, str]:
    """The second line of each box: the kind, and which way leads back to the node itself."""
    loops = {edge.source: f" ↺ {text.line(edge.label, 24)}".rstrip() for edge in plan.loops}
    return {node: specs[node].kind + loops.get(node, "") for node in plan.nodes}


def _width(place: Place, kinds: dict[str, str]) -> float:
    if place.node is not None:
        longest = max(text.width(text.line(place.node, 48)), text.width(kinds[place.node]))
        return max(88.0, longest * CELL + 28)
    return text.width(text.line(place.label, 32)) * CELL + 10 if place.label else 8.0


def _tops(plan: Layout) -> list[float]:
    """The upper edge of each row."""
    found: list[float] = []
    at = MARGIN + TITLE_HEIGHT + START_HEIGHT
    for row in plan.rows:
        found.append(at)
        boxes = any(place.node is not None for place in row)
        at += (BOX_HEIGHT if boxes else LABEL_HEIGHT) + ROW_GAP
    return found


def _arrow(name: str) -> str:
    return (
        f'  <marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path class="{name}" d="M0 0.8 L10 5 L0 9.2 z"/></marker>'
    )


def _start(place: Place, tops: list[float]) -> list[str]:
    x, top = place.x + MARGIN, tops[place.row]
    return [
        f'  <circle class="start" cx="{x:.1f}" cy="{top - START_HEIGHT + 12:.1f}" r="6"/>',
        f'  <path class="way" d="M{x:.1f} {top - START_HEIGHT + 18:.1f} L{x:.1f} {top - 2:.1f}" '
        'marker-end="url(#tip)"/>',
    ]


def _box(node: NodeSpec, kind: str, place: Place, tops: list[float]) -> str:
    x, top = place.x + MARGIN, tops[place.row]
    facts = KINDS[node.kind]
    radius = BOX_HEIGHT / 2 if facts.shape == "rounded" else 8
    tooltip = f"<title>{_xml(text.block(node.doc.strip()))}</title>" if node.doc.strip() else ""
    return (
        f'  <g>{tooltip}<rect class="node {facts.colour}" x="{x - place.width / 2:.1f}" y="{top:.1f}" '
        f'width="{place.width:.1f}" height="{BOX_HEIGHT}" rx="{radius}"/>'
        f'<text x="{x:.1f}" y="{top + 20:.1f}">{_xml(text.line(node.id, 48))}</text>'
        f'<text class="kind" x="{x:.1f}" y="{top + 36:.1f}">{_xml(kind)}</text></g>'
    )


def _way(course: Course, tops: list[float], box_rows: frozenset[int]) -> str:
    """A smooth line through the course's places, upright at each of them."""
    points: list[tuple[float, float]] = []
    for index, place in enumerate(course.places):
        x, top = place.x + MARGIN, tops[place.row]
        if index == 0:
            x += _shift(place, course.places[1], place.downs)
            points.append((x, top + BOX_HEIGHT))
        elif index == len(course.places) - 1:
            x += _shift(place, course.places[-2], place.ups)
            points.append((x, top))
        elif place.row in box_rows:
            points += [(x, top), (x, top + BOX_HEIGHT)]  # straight between the boxes of that row
        else:
            points.append((x, top + LABEL_HEIGHT / 2))
    first, last = points[0], points[-1]
    tip = 1.5
    points[0], points[-1] = (
        (first[0], first[1] + tip * course.back),
        (last[0], last[1] - tip * (not course.back)),
    )
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        bend = (y2 - y1) / 2
        path += f" C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
    outcome = any(label in OUTCOMES for label in course.edge.label.split(" | "))
    marker = "tip-outcome" if outcome else "tip"
    side = "start" if course.back else "end"
    return f'  <path class="way{" outcome" if outcome else ""}" d="{path}" marker-{side}="url(#{marker})"/>'


def _shift(place: Place, other: Place, others: list[Place]) -> float:
    """Where on its box a way ends: the ends are spread in the order of where they lead."""
    ordered = sorted(others, key=lambda one: one.x)
    share = (ordered.index(other) + 1) / (len(ordered) + 1) - 0.5
    return share * place.width * 0.8


def _loops(plan: Layout, tops: list[float]) -> list[str]:
    found: list[str] = []
    for edge in plan.loops:
        place = plan.nodes[edge.source]
        x, top = place.x + MARGIN + place.width / 2, tops[place.row]
        found.append(
            f'  <path class="way" d="M{x:.1f} {top + 12:.1f} c24 -8 24 30 2 22" marker-end="url(#tip)"/>'
        )
    return found


def _chip(place: Place, tops: list[float]) -> str:
    x, top = place.x + MARGIN, tops[place.row]
    return (
        f'  <rect class="chip" x="{x - place.width / 2:.1f}" y="{top:.1f}" width="{place.width:.1f}" '
        f'height="{LABEL_HEIGHT}" rx="4"/><text class="label" x="{x:.1f}" y="{top + 13:.1f}">'
        f"{_xml(text.line(place.label, 32))}</text>"
    )


def _xml(words: str) -> str:
    return escape(words, {'"': "&quot;"})
