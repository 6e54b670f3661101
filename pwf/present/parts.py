"""One workflow of a graph by itself: what it includes stands in it as one node, whose ways out are its exits.

So an outline and a drawing show each workflow as its author wrote it, and what it includes below.
"""

from __future__ import annotations

import msgspec

from pwf.protocol.graph import Case, NodeSpec, Way, WorkflowGraph
from pwf.protocol.mounts import is_within, mount_of, own_id


def mounts_in(graph: WorkflowGraph) -> list[str]:
    """The includes of a graph, nested ones too, in its order."""
    return [node.id for node in graph.nodes if node.mount is not None]


def part_of(graph: WorkflowGraph, mount: str = "") -> WorkflowGraph:
    """The workflow at a mount (empty: the whole graph's own), with the ids that its nodes have in the whole."""
    by_id = {node.id: node for node in graph.nodes}
    own = {node.id for node in graph.nodes if mount_of(node.id) == mount}
    nodes = []
    for node in (one for one in graph.nodes if one.id in own):
        ways = node.ways if node.mount is None else _exits(node, by_id)
        kept = (_kept(way, own) for way in ways)
        nodes.append(msgspec.structs.replace(node, ways=tuple(way for way in kept if way is not None)))
    start = graph.start if not mount else by_id[mount].ways[0].target
    return msgspec.structs.replace(graph, start=start or graph.start, nodes=tuple(nodes))


def with_own_ids(graph: WorkflowGraph) -> WorkflowGraph:
    """One workflow with the ids that its author gave."""
    nodes = tuple(
        msgspec.structs.replace(
            node,
            id=own_id(node.id),
            mount=None,
            ways=tuple(
                msgspec.structs.replace(
                    way,
                    target=way.target and own_id(way.target),
                    cases=tuple(Case(value=case.value, target=own_id(case.target)) for case in way.cases),
                )
                for way in node.ways
            ),
        )
        for node in graph.nodes
    )
    return msgspec.structs.replace(graph, start=own_id(graph.start), nodes=nodes)


def _exits(node: NodeSpec, by_id: dict[str, NodeSpec]) -> tuple[Way, ...]:
    """The ways on from an included workflow, as cases by the exits that they leave by."""
    assert node.mount is not None
    cases: dict[tuple[str, str], Case] = {}
    for name, leaves in node.mount.exits.items():
        for way in (by_id[leaf].way("completed") for leaf in leaves):
            for target in () if way is None else (way.target, *(case.target for case in way.cases)):
                if target is not None and not is_within(target, node.id):
                    cases[name, target] = Case(value=name, target=target)
    if len(node.mount.exits) == 1 and len(cases) == 1:
        return (Way(outcome="completed", target=next(iter(cases.values())).target),)
    return (Way(outcome="completed", cases=tuple(cases.values())),) if cases else ()


def _kept(way: Way, own: set[str]) -> Way | None:
    """What of a way stays within the workflow."""
    cases = tuple(case for case in way.cases if case.target in own)
    if way.target not in own and not cases:
        return None
    return msgspec.structs.replace(way, cases=cases)
