"""Flattens what a workflow includes: the nodes of each child, under the id of its mount, become nodes of one graph.

So the store, the daemon and the runner route by one flat graph, and know an included node by its id alone. Owns the
exits of a workflow. Promises: a child's own checked nodes are not changed; what stands alone stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from pwf.ids import is_node_id
from pwf.protocol.graph import Case, MountSpec, Way, WorkflowGraph
from pwf.protocol.mounts import qualified
from pwf.workflow import routes
from pwf.workflow.faults import Faults
from pwf.workflow.mounts import Exit, Mount
from pwf.workflow.nodes import Node, NodeDef
from pwf.workflow.scopes import ROOT, Left, Scope
from pwf.workflow.source import Place
from pwf.workflow.ways import Drawn, as_data, describe, suggest_node
from pwf.workflow.written import Written

Types = tuple[Any, dict[str, Any] | None]  # what `ctx[node]` decodes to (None for any JSON), and its schema
Exits = dict[str, tuple[str, ...]]  # the nodes that leave by an exit when they complete, by its name


@dataclass(frozen=True, slots=True)
class Checked:
    """A workflow that was found to be sound. Ids are those of the whole graph; `scopes` are by their mounts."""

    graph: WorkflowGraph
    nodes: dict[str, NodeDef]
    types: dict[str, Types]
    exits: Exits
    scopes: dict[str, Scope]


@dataclass(slots=True)
class Whole:
    """A workflow with everything that it includes. `switches`: those on outputs of exits, with their types."""

    nodes: dict[str, NodeDef]
    types: dict[str, Types]
    scopes: dict[str, Scope]
    switches: list[tuple[routes.Switch, Types]] = field(default_factory=list)


# --- exits --------------------------------------------------------------------------------------------------------


def exits_of(flow: Written, drawn: Drawn, faults: Faults) -> Exits:
    """The exits: those that are declared, or else one for each node that ends the workflow, under the node's id."""
    if drawn.broken:
        return {}
    ending = {node.id: found for node in flow.nodes if (found := _ending(node, drawn))}
    if not flow.exits:
        return ending
    exits: Exits = {}
    placed: set[str] = set()
    for name, nodes, place in flow.exits:
        if not isinstance(name, str) or not is_node_id(name):
            faults.add(place, f"has an exit {name!r:.60}", 'name it as a node: flow.exit("ready", node)')
        elif name in exits:
            faults.add(place, f"has the exit {name!r} twice", f'write flow.exit("{name}", node, other)')
        elif not nodes:
            faults.add(place, f"has the exit {name!r} without a node", f'write flow.exit("{name}", node)')
        else:
            exits[name] = tuple(leaf for node in nodes for leaf in _leaves(flow, node, drawn, place, faults))
            for leaf in placed.intersection(exits[name]):
                faults.add(place, f"leaves by two exits from {leaf!r}", "a node leaves by one exit")
            placed.update(exits[name])
    for node in flow.nodes:
        if (left := ending.get(node.id)) and not placed.issuperset(left):
            faults.node(
                node,
                "ends the workflow, and belongs to none of its exits",
                f'write flow.exit("{node.id}", {node.id}), or give it a way out',
            )
    return exits


def _ending(node: Node[Any], drawn: Drawn) -> tuple[str, ...]:
    """The nodes with which the run ends where this one completes: itself, or those that leave the mount."""
    if not isinstance(node, Mount):
        return (node.id,) if drawn.ends(node) else ()
    exits = node.child.exits
    return tuple(
        qualified(node.id, leaf)
        for name, leaves in exits.items()
        if drawn.exit_of(node, name) is None
        for leaf in leaves
    )


def _leaves(flow: Written, given: Any, drawn: Drawn, place: Place, faults: Faults) -> tuple[str, ...]:
    node = given.mount if isinstance(given, Exit) else given
    if not any(node is own for own in flow.nodes):
        faults.add(place, f"has an exit at {describe(flow, node)}", suggest_node(flow, node))
        return ()
    found = _ending(node, drawn)
    if isinstance(given, Exit):
        its = {qualified(node.id, leaf) for leaf in node.child.exits.get(given.name, ())}
        found = tuple(leaf for leaf in found if leaf in its)
    if not found:
        faults.add(
            place,
            f"has an exit at {given.id!r}, which leads on when it completes",
            "an exit is where the workflow ends: remove the way out, or the exit",
        )
    return found


# --- flattening ---------------------------------------------------------------------------------------------------


def flattened(flow: Written, drawn: Drawn, own: dict[str, NodeDef], types: dict[str, Types]) -> Whole:
    """The nodes of a workflow, each mount followed by what it includes."""
    whole = Whole({}, dict(types), {})
    leaves: dict[str, Left] = {}
    for node in flow.nodes:
        if isinstance(node, Mount):
            child: Checked = node.child.checked
            own[node.id] = _entry(node, own[node.id], child)
            whole.nodes[node.id] = own[node.id]
            _include(node, child, drawn, whole)
            for name, ids in _below(node.id, child.exits).items():
                leaves.update(dict.fromkeys(ids, Left(node.id, name)))
        else:
            whole.nodes[node.id] = own[node.id]
    input_type = None if isinstance(flow.input, dict) else flow.input
    whole.scopes[ROOT] = Scope.of(input_type, own, leaves, flow.settings)
    return whole


def _entry(mount: Mount, made: NodeDef, child: Checked) -> NodeDef:
    spec = msgspec.structs.replace(
        made.spec,
        mount=MountSpec(
            workflow=child.graph.name,
            file=child.graph.file,
            max_steps=child.graph.max_steps,
            exits=_below(mount.id, child.exits),
            settings=child.graph.settings,
        ),
        ways=(Way(outcome="completed", target=qualified(mount.id, child.graph.start)),),
    )
    return replace(made, spec=spec)


def _include(mount: Mount, child: Checked, drawn: Drawn, whole: Whole) -> None:
    ways = dict(_ways_out(mount, child, drawn))
    for node in child.nodes.values():
        spec = node.spec
        ways_on = tuple(_moved(mount.id, way) for way in spec.ways)
        if (way := ways.get(node.id)) is not None:
            ways_on = (*ways_on, as_data("completed", way))
            if isinstance(way, routes.Switch):
                whole.switches.append((way, child.types[node.id]))
        node_id = qualified(mount.id, node.id)
        whole.types[node_id] = child.types[node.id]
        whole.nodes[node_id] = replace(
            node,
            id=node_id,
            spec=msgspec.structs.replace(
                spec, id=node_id, ways=ways_on, mount=spec.mount and _moved_mount(mount.id, spec.mount)
            ),
        )
    for scope in child.scopes.values():
        moved = scope.under(mount.id)
        whole.scopes[moved.mount] = moved


def _ways_out(mount: Mount, child: Checked, drawn: Drawn) -> Iterator[tuple[str, routes.Way]]:
    """The way on from each node that leaves the child."""
    for name, leaves in child.exits.items():
        way = drawn.exit_of(mount, name)
        if way is not None:
            yield from ((leaf, way) for leaf in leaves)


def _moved(mount: str, way: Way) -> Way:
    target = None if way.target is None else qualified(mount, way.target)
    cases = tuple(Case(value=case.value, target=qualified(mount, case.target)) for case in way.cases)
    return msgspec.structs.replace(way, target=target, cases=cases)


def _moved_mount(mount: str, spec: MountSpec) -> MountSpec:
    return msgspec.structs.replace(spec, exits=_below(mount, spec.exits))


def _below(mount: str, exits: Exits) -> Exits:
    return {name: tuple(qualified(mount, leaf) for leaf in ids) for name, ids in exits.items()}
