"""A workflow as a Mermaid flowchart. Names and cases can hold anything, so labels are quoted and escaped."""

from __future__ import annotations

from pwf.present import text
from pwf.present.outline import edges
from pwf.protocol.graph import NodeSpec, WorkflowGraph
from pwf.protocol.kinds import KINDS, Shape
from pwf.protocol.mounts import mount_of, own_id

_SHAPES: dict[Shape, tuple[str, str]] = {
    "box": ("[", "]"),
    "framed": ("[[", "]]"),
    "rounded": ("([", "])"),
    "hexagon": ("{{", "}}"),
}


def mermaid(graph: WorkflowGraph) -> str:
    """The text of a `.mmd` file."""
    lines = ["---", f"title: {_title(graph.name)}", "---", "flowchart TD"]
    names = {node.id: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines.append("  start((start))")
    lines += _boxes(graph, "", names)
    lines.append(f"  start --> {names[graph.start]}")
    for edge in edges(graph):
        if not edge.label:
            arrow = "-->"
        elif edge.label in ("failed", "timed_out", "cancelled"):
            arrow = f'-. "{_label(edge.label)}" .->'
        else:
            arrow = f'-- "{_label(edge.label)}" -->'
        lines.append(f"  {names[edge.source]} {arrow} {names[edge.target]}")
    ends = [names[node.id] for node in graph.nodes if not node.ways]
    lines.append("  classDef last stroke-width:3px")
    if ends:
        lines.append(f"  class {','.join(ends)} last")
    return "\n".join(lines)


def _boxes(graph: WorkflowGraph, mount: str, names: dict[str, str]) -> list[str]:
    """The nodes of one workflow, with a frame round each that it includes."""
    found = []
    for node in graph.nodes:
        if mount_of(node.id) != mount:
            continue
        found.append(f"  {names[node.id]}{_box(node)}")
        if node.mount is not None:
            title = _label(f"{node.id}: {node.mount.workflow}")
            found.append(f'  subgraph {names[node.id]}in["{title}"]')
            found += _boxes(graph, node.id, names)
            found.append("  end")
    return found


def _box(node: NodeSpec) -> str:
    opening, closing = _SHAPES[KINDS[node.kind].shape]
    return f'{opening}"{_label(own_id(node.id))}<br/><small>{node.kind}</small>"{closing}'


def _label(words: str) -> str:
    """Mermaid's own escapes: `#code;`."""
    safe = text.line(words)
    return "".join(char if char.isalnum() or char in " _-.,:/" else f"#{ord(char)};" for char in safe)


def _title(name: str) -> str:
    """A YAML string in double quotes, in which no markup is left."""
    quoted = text.line(name).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + quoted.replace("<", "\\u003c").replace(">", "\\u003e") + '"'
