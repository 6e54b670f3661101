"""Sorts the ways that an author drew by node and outcome, and refuses what can not be one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pwf.protocol.graph import Case, Way
from pwf.protocol.kinds import KINDS, Outcome
from pwf.workflow import routes
from pwf.workflow.faults import Faults
from pwf.workflow.mounts import Exit, Mount
from pwf.workflow.nodes import Node
from pwf.workflow.source import Place
from pwf.workflow.suggest import nearest
from pwf.workflow.written import Written

OUTCOMES: tuple[str, ...] = get_args(Outcome)
_INT_MAX = 2**63


class Drawn:
    """The ways of a graph. `broken`: some could not be read, so that others may be missing."""

    def __init__(self) -> None:
        self.start: Node[Any] | None = None
        self.broken = False
        self._ways: dict[str, dict[str, routes.Way]] = {}
        self._exits: dict[str, dict[str, routes.Way]] = {}  # of mounts, by the exit's name

    def put(self, source: Any, outcome: str, way: routes.Way) -> routes.Way | None:
        """Add a way, or give back the one that is there already."""
        if isinstance(source, Exit):
            there = self._exits.setdefault(source.mount.id, {}).setdefault(source.name, way)
        else:
            there = self._ways.setdefault(source.id, {}).setdefault(outcome, way)
        return None if there is way else there

    def exit_of(self, mount: Mount, name: str) -> routes.Way | None:
        """The way out by an exit: its own, or that of all exits that have none."""
        return self._exits.get(mount.id, {}).get(name) or self._ways.get(mount.id, {}).get("completed")

    def ends(self, node: Node[Any]) -> bool:
        """Whether the run ends where the node completes. (Of a mount: `exit_of` tells.)"""
        return "completed" not in self._ways.get(node.id, {})

    def switches_of(self, node: Node[Any]) -> Iterator[routes.Switch]:
        """The switches on the node's output: one at most."""
        return (way for way in self._ways.get(node.id, {}).values() if isinstance(way, routes.Switch))

    def outcomes_of(self, node: Node[Any]) -> Iterator[tuple[str, Place]]:
        """The outcomes that have a way out, and where it is written."""
        return ((outcome, way.place) for outcome, way in self._ways.get(node.id, {}).items())

    def targets_of(self, node: Node[Any]) -> Iterator[Node[Any]]:
        """The nodes that may follow."""
        ways, exits = self._ways.get(node.id, {}), self._exits.get(node.id, {})
        if isinstance(node, Mount) and exits.keys() >= node.child.exits.keys():
            ways = {
                outcome: way for outcome, way in ways.items() if outcome != "completed"
            }  # left to no exit
        for way in (*ways.values(), *exits.values()):
            if isinstance(way, routes.Switch):
                yield from (target for _, target in way.cases)
            else:
                yield way.target

    def ways_of(self, node: Node[Any]) -> tuple[Way, ...]:
        """The same as data."""
        return tuple(as_data(outcome, way) for outcome, way in self._ways.get(node.id, {}).items())


def draw(flow: Written, faults: Faults) -> Drawn:
    """Read what was given to `flow.graph(…)`; faults go to `faults`."""
    drawn = Drawn()
    if flow.ways is None:
        if len(flow.nodes) > 1:
            listed = ", ".join(node.id for node in flow.nodes[:5]) + (", …" if flow.nodes[5:] else "")
            faults.add(
                flow.place,
                f"has {len(flow.nodes)} nodes ({listed}) and no graph",
                f"write flow.graph({flow.nodes[0].id} >> {flow.nodes[1].id}, …) at the end of the file",
            )
            drawn.broken = True
        drawn.start = flow.nodes[0]
        return drawn
    known = {id(node): node for node in flow.nodes}
    for way in (way for given in flow.ways for way in _by_exits(given, faults)):
        if not _readable(flow, way, known, faults):
            drawn.broken = True
            continue
        outcomes = ("completed",) if isinstance(way, routes.Switch) else way.outcomes
        for outcome in outcomes:
            there = drawn.put(way.source, outcome, way)
            if there is not None:
                drawn.broken = True
                faults.add(
                    way.place,
                    f"gives {_source(way.source)} a second way out for {outcome!r}, beside {there.place}",
                    "use one switch(…) where the output decides, or remove one of the two",
                )
    start = flow.start if flow.start is not None else (flow.ways[0].source if flow.ways else flow.nodes[0])
    start = start.mount if isinstance(start, Exit) else start
    drawn.start = known.get(id(start))
    if drawn.start is None:
        drawn.broken = True
        if flow.start is not None:
            faults.add(flow.ways_place, f"has start={describe(flow, start)}", suggest_node(flow, start))
    return drawn


def _readable(flow: Written, way: routes.Way, known: dict[int, Node[Any]], faults: Faults) -> bool:
    """Whether everything in a way is what it should be."""
    good = True
    targets = [target for _, target in way.cases] if isinstance(way, routes.Switch) else [way.target]
    source = way.source
    if isinstance(source, Exit):
        good = _is_exit(source, way.place, faults)
        source = source.mount
    for node in (source, *targets):
        if id(node) not in known:
            faults.add(way.place, f"leads through {describe(flow, node)}", suggest_node(flow, node))
            good = False
    if isinstance(way, routes.Switch):
        return _readable_cases(way, faults) and good
    if not way.outcomes:
        faults.add(
            way.place, "has .on() without an outcome", 'write .on("failed") or .on("failed", "timed_out")'
        )
        good = False
    for outcome in way.outcomes:
        if outcome not in OUTCOMES:
            hint = (
                nearest(outcome, OUTCOMES) if isinstance(outcome, str) else 'write .on("failed", "timed_out")'
            )
            faults.add(way.place, f"has .on({outcome!r:.60}), which is no outcome", hint)
            good = False
    return good


def _by_exits(way: routes.Way, faults: Faults) -> Iterator[routes.Way]:
    """A switch of a mount is a way out for each exit."""
    if not isinstance(way, routes.Switch) or not isinstance(way.source, Mount):
        yield way
        return
    mount = way.source
    missing = [name for name in mount.child.exits if name not in {value for value, _ in way.cases}]
    if missing:
        faults.add(
            way.place,
            f"switches on the exits of {mount.id!r}, and has no case for {', '.join(map(repr, missing))}",
            f"add a case for each: {mount.id}.switch({missing[0]}=node, …)",
        )
    for value, target in way.cases:
        yield routes.Link(Exit(mount, value), ("completed",), target, way.place)


def _is_exit(exit: Exit, place: Place, faults: Faults) -> bool:
    known = exit.mount.child.exits
    if exit.name in known:
        return True
    faults.add(
        place,
        f"leaves {exit.mount.id!r} by {exit.name!r:.60}, which is no exit of {exit.mount.child.name!r}",
        nearest(str(exit.name), known),
    )
    return False


def _source(source: Any) -> str:
    return source.id if isinstance(source, Exit) else f"node {source.id!r}"


def _readable_cases(switch: routes.Switch, faults: Faults) -> bool:
    name = switch.source.id
    good = True
    if KINDS[switch.source.kind].notifies:
        faults.add(
            switch.place,
            f"has a switch of {name!r}, which leads on whatever became of it",
            f"write {name} >> node",
        )
        good = False
    if not switch.cases:
        faults.add(
            switch.place, f"has a switch of {name!r} without cases", f"write {name}.switch(value=node, …)"
        )
        good = False
    if switch.on is not None and not isinstance(switch.on, str):
        faults.add(
            switch.place,
            f"has a switch of {name!r} with on={switch.on!r:.60}, which is not a field's name",
            'write on="field"; a case for the value "on" goes into cases={"on": node}',
        )
        good = False
    seen: set[tuple[type, object]] = set()
    for value, _ in switch.cases:
        if not _may_be_case(value):
            faults.add(
                switch.place,
                f"has a switch of {name!r} with the case {value!r:.60}",
                "a case is a text, a number (whole ones below 2**63), True, False, None or an enum member",
            )
            good = False
        elif (type(value), value) in seen:
            faults.add(
                switch.place, f"has a switch of {name!r} with the case {value!r:.60} twice", "remove one"
            )
            good = False
        else:
            seen.add((type(value), value))
    return good


def _may_be_case(value: object) -> bool:
    if type(value) is int:
        return -_INT_MAX <= value < _INT_MAX
    if type(value) is float:
        return value - value == 0  # neither an infinity nor NaN
    if type(value) is str:
        return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)
    return value is None or type(value) is bool


def describe(flow: Written, thing: Any) -> str:
    """What stands where a node should."""
    if isinstance(thing, Node):
        if thing.workflow is not flow:
            return f"node {thing.id!r} of another workflow, {thing.workflow.name!r} ({thing.place})"
        return f"node {thing.id!r} ({thing.place}), which is none of its nodes any more"
    if isinstance(thing, routes.Outcomes):
        return f"{thing.source.id}.on(…), which is a way out and not a node"
    if isinstance(thing, Exit):
        return f"{thing.id}, which is a way out and not a node"
    if isinstance(thing, str):
        return f"the text {thing!r:.60}, which is not a node"
    if callable(thing) and hasattr(thing, "__name__"):
        place = Place.of_function(thing, flow.place)
        return f"function {thing.__name__!r} ({place}), which is not a node"
    return f"{thing!r:.60}, which is not a node"


def suggest_node(flow: Written, thing: Any) -> str:
    """What to write in its place."""
    if isinstance(thing, Node) and thing.workflow is not flow:
        return f"define {thing.id!r} again under a decorator of this workflow"
    if isinstance(thing, Exit):
        return f"lead to {thing.mount.id}, and write {thing.id} >> … as an entry of its own"
    if isinstance(thing, routes.Outcomes):
        return f'write {thing.source.id}.on("failed") >> … as an entry of its own in flow.graph(…)'
    names = [node.id for node in flow.nodes]
    if isinstance(thing, str):
        return f"write {thing}, without quotes" if thing in names else nearest(thing, names)
    if isinstance(thing, list | tuple | set):
        return "a node leads to one node: use switch(…) where the output decides, or write a way for each"
    if thing is None:
        return "lead to a last node where the run should end: a node without a way out ends it"
    if callable(thing):
        name = getattr(thing, "__name__", "it")
        return f"put @flow.compute (or action, shell, wait, checkpoint) above {name!r}"
    return f"its nodes are {', '.join(names)}"


def as_data(outcome: str, way: routes.Way) -> Way:
    """A way that was found to be sound."""
    as_outcome: Outcome = outcome  # type: ignore[assignment]  # one of OUTCOMES: checked in `_readable`
    if isinstance(way, routes.Link):
        return Way(outcome=as_outcome, target=way.target.id)
    cases = tuple(Case(value=value, target=target.id) for value, target in way.cases)
    return Way(outcome=as_outcome, on=way.on, cases=cases)
