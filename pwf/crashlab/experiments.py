"""Which paths through a graph are tried, and which crashes on each: plain data, made from graphs and traces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pwf.crashlab.samples import choices, sample
from pwf.protocol.crashlab import PART_PHASES, PHASES, Point
from pwf.protocol.graph import NodeSpec, WorkflowGraph
from pwf.protocol.kinds import KINDS, NodeKind

#: Points between a run's steps, at which no runner lives: the lab itself comes to them.
PARTS_MAX = 5
VICTIMS: tuple[Literal["runner", "daemon"], ...] = ("runner", "daemon")
OPEN, ANSWERED, WAITING = "open", "answered", "waiting"

_WORDS = {
    "begun": "before {node} ran",
    "done": "after {node} had run, before anybody knew",
    "applying": "before effect {part} of {node} was applied",
    "applied": "after effect {part} of {node} had happened, before anybody knew",
    "settled": "after effect {part} of {node} was settled",
    "reported": "after {node} was reported, before the answer came",
    "left": "when the run was parked or had ended at {node}",
    OPEN: "while {node} waited for its answer",
    ANSWERED: "right after the answer to {node} was taken",
    WAITING: "while {node} waited for its time",
}


@dataclass(frozen=True)
class Path:
    """One way through the graph: what each choice gives at its first, second … visit."""

    index: int
    given: Mapping[str, tuple[Any, ...]]

    def value(self, node: str, visit: int) -> Any:
        """What is answered (or given by a stand-in) at this visit; the choices take turns, so that loops end."""
        values = self.given[node]
        return values[(visit - 1) % len(values)]


@dataclass(frozen=True)
class Crash:
    """One run of a path, and what is killed in it. No points: nothing is."""

    path: Path
    victim: Literal["runner", "daemon", "nobody"] = "nobody"
    points: tuple[Point, ...] = ()
    twice: bool = False
    stray_at: str = ""  # a checkpoint that gets an answer which no case takes

    @property
    def words(self) -> str:
        """For people, as the end of "after a crash …"."""
        if not self.points:
            return "without any crash"
        if len(self.points) > 1:
            return f"after the {self.victim} was killed at each of {len(self.points)} points in one run"
        point = self.points[0]
        visit = f" (visit {point.visit})" if point.visit > 1 else ""
        place = _WORDS[point.phase].format(node=repr(point.node) + visit, part=repr(point.part))
        return f"the {self.victim} was killed {place}"


@dataclass(frozen=True)
class Traced:
    """A step of a run that nobody disturbed. `deaths`: how many a visit survives; each counts as a failed try.

    `parts`: the effects that it made in mid-step; a crash around each of the first `PARTS_MAX`.
    """

    node: str
    visit: int
    kind: NodeKind
    deaths: int = 2
    parts: tuple[str, ...] = ()
    by_runner: bool = False  # an agent's, which a stand-in does there: nobody is asked

    @property
    def between(self) -> tuple[str, ...]:
        """Its points at which no runner lives."""
        if KINDS[self.kind].asks and not self.by_runner:
            return OPEN, ANSWERED
        return (WAITING,) if KINDS[self.kind].sets_timer else ()


@dataclass
class Paths:
    """The paths that are tried, and how many more there would be."""

    tried: list[Path]
    left_out: int


def paths(graph: WorkflowGraph, *, stand_ins: bool, given: Mapping[str, tuple[Any, ...]], most: int) -> Paths:
    """Every combination of choices at their first visit, up to `most`. What the user gave is not varied."""
    options: dict[str, tuple[Any, ...]] = {}
    for node in graph.nodes:
        if node.effect is not None and node.effect.mode == "parts":
            if node.id in given:
                options[node.id] = given[
                    node.id
                ]  # outputs by key; without them the function's own is the node's
        elif KINDS[node.kind].asks or (stand_ins and KINDS[node.kind].has_effect):
            options[node.id] = given.get(node.id) or tuple(_options(node))
    varied = [name for name, values in options.items() if len(values) > 1 and name not in given]
    turns = itertools.product(*(range(len(options[name])) for name in varied))
    found = []
    for index, offsets in enumerate(itertools.islice(turns, most)):
        turned = dict(zip(varied, offsets, strict=True))
        found.append(
            Path(
                index,
                {
                    name: values[turned.get(name, 0) :] + values[: turned.get(name, 0)]
                    for name, values in options.items()
                },
            )
        )
    total = math.prod(len(options[name]) for name in varied)
    return Paths(found, total - len(found))


def _options(node: NodeSpec) -> list[Any]:
    if not KINDS[node.kind].runs_command:
        return choices(node)
    way = node.way("completed")
    if way is None or not way.cases or way.on not in ("exit_code", "parsed"):
        return [{}]  # an empty result
    return [{way.on: case.value} for case in way.cases]


def stand_in_outputs(
    path: Path, graph: WorkflowGraph, *, effects: bool, agents: bool
) -> dict[str, tuple[Any, ...]]:
    """What the stand-ins of a path give, by node and visit: those for effects, and those for agents."""
    visits = min(graph.max_steps, VISITS_MAX)
    return {
        node.id: tuple(path.value(node.id, visit + 1) for visit in range(visits))
        for node in graph.nodes
        if node.id in path.given
        and ((effects and KINDS[node.kind].has_effect) or (agents and KINDS[node.kind].headless))
    }


VISITS_MAX = 20


@dataclass
class Seen:
    """Beginnings of traces whose crashes are planned already, so that paths don't repeat each other's."""

    prefixes: set[tuple[tuple[str, int], ...]] = field(default_factory=set)


def crashes(path: Path, trace: list[Traced], seen: Seen) -> Iterator[Crash]:
    """Every crash of this path that no earlier path had."""
    so_far: tuple[tuple[str, int], ...] = ()
    for step in trace:
        so_far += ((step.node, step.visit),)
        if so_far in seen.prefixes:
            continue
        seen.prefixes.add(so_far)
        for phase in PHASES:
            yield Crash(path, "runner", (Point(step.node, step.visit, phase),))
        for phase in (*PHASES, *step.between):
            yield Crash(path, "daemon", (Point(step.node, step.visit, phase),))
        for part, phase, victim in itertools.product(step.parts[:PARTS_MAX], PART_PHASES, VICTIMS):
            yield Crash(path, victim, (Point(step.node, step.visit, phase, part),))
    if trace:
        last = trace[-1]
        yield Crash(path, "runner", (Point(last.node, last.visit, "left"),))
        everywhere = tuple(
            Point(step.node, step.visit, phase)
            for step in trace
            for phase in ("begun", "done")[-step.deaths :]
        )
        yield Crash(path, "runner", everywhere)


def sample_input(graph: WorkflowGraph) -> Any:
    """An input made from the declared type."""
    return sample(graph.input_schema)
