"""Workflows drawn from a seed: the auditor's plain model of each, and the definition that pwf is given.

`NodeModel.follow` is the auditor's own idea of routing; it shares nothing with `pwf.protocol.graph.route`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import msgspec

from pwf.protocol.decision_spec import ChoiceSpec, DecisionSpec, TextSpec
from pwf.protocol.graph import (
    Case,
    EffectSpec,
    MountSpec,
    NodeSpec,
    RetrySpec,
    SourceFile,
    Way,
    WorkflowDefinition,
    WorkflowGraph,
)
from pwf.protocol.kinds import KINDS, NodeKind
from pwf.protocol.settings import PathRule, SettingsSpec
from pwf.values import canonical, digest

SETTINGS_SHARE = 0.4  # of workflows
ROUTES_SHARE = 0.4  # of their pure nodes
ROUTE = next(kind for kind, facts in KINDS.items() if facts.routes_by_settings)
DRAWN = tuple(
    kind
    for kind, facts in KINDS.items()
    if not facts.routes_by_settings and not facts.enters
    for _ in range(2 if facts.returns_output else 1)
)
PURE = tuple(kind for kind in DRAWN if KINDS[kind].pure)
PURE_SHARE = 0.2  # of the workflows have pure nodes only, which runners pipeline
PARTS_SHARE = 0.35  # of the nodes with an effect make several in mid-step
INCLUDED_SHARE = 0.4  # of the workflows include one, and of these again
INCLUDED_DEPTH_MAX = 3
AUDIENCE = "sim"
CHOICES = ("on", "back")
DECISION = DecisionSpec(
    audience=AUDIENCE,
    choices=(
        ChoiceSpec(id=CHOICES[0], label="Go on"),
        ChoiceSpec(id=CHOICES[1], label="Go back", text=TextSpec(label="Why?")),
    ),
)
(ENTERING,) = (kind for kind, facts in KINDS.items() if facts.enters)
NO_WAY = object()
LARGE = "x" * 6_000  # more than stands in a row


@dataclass(frozen=True)
class PartModel:
    """One of several effects that a node makes in mid-step. `effect`: idempotent or manual."""

    key: str
    effect: str
    observable: bool
    large: bool


@dataclass
class NodeModel:
    """One node. `effect`: None, idempotent, manual or parts. `ways`: outcome -> node, or -> {choice: node}."""

    id: str
    kind: NodeKind
    effect: str | None = None
    observable: bool = False
    parts: tuple[PartModel, ...] = ()
    retries: int = 0
    backoff_ms: int = 0
    timeout_ms: int | None = None
    open_ms: int | None = None  # of its question
    default: dict[str, str | None] | None = None  # the answer when none comes in time
    validates: bool = False
    mount: MountSpec | None = None  # it enters an included workflow
    ways: dict[str, str | dict[str, str]] = field(default_factory=dict)

    def follow(self, outcome: str, output: object) -> object:
        """The node that follows, None where the run ends, `NO_WAY` where a value has no case."""
        if KINDS[self.kind].notifies:
            return self.ways.get("completed")  # it leads on whatever became of it
        way = self.ways.get(outcome)
        if not isinstance(way, dict):
            return way
        choice = output.get(self.field) if isinstance(output, dict) else None
        return way.get(choice, NO_WAY) if isinstance(choice, str) else NO_WAY

    @property
    def field(self) -> str:
        """What a switch on its output reads."""
        return "choice" if KINDS[self.kind].chooses else "go"

    def prompt(self, visit: int) -> object:
        """What its question shows."""
        if not KINDS[self.kind].chooses:
            return "go on?"
        return {"title": self.id, "summary": f"go on, {visit}?", "blocks": []}

    def subject(self, visit: int) -> object:
        """What its decision is about, which nobody is shown."""
        return {"of": self.id, "visit": visit}

    def spec(self) -> NodeSpec:
        """The node as pwf knows it."""
        effect = None
        if self.effect is not None:
            effect = EffectSpec(mode=self.effect, type="sim", observable=self.observable)
        retry = RetrySpec(times=self.retries, backoff_ms=self.backoff_ms) if self.retries else None
        ways = tuple(_way(outcome, self.field, target) for outcome, target in self.ways.items())
        return NodeSpec(
            id=self.id,
            kind=self.kind,
            is_async=KINDS[self.kind].stops_itself,
            timeout_ms=self.timeout_ms,
            retry=retry,
            effect=effect,
            open_ms=self.open_ms,
            default=None if self.default is None else canonical(self.default).decode(),
            validates=self.validates,
            decision=DECISION if KINDS[self.kind].chooses else None,
            notice="progress" if KINDS[self.kind].notifies else None,
            mount=self.mount,
            ways=ways,
        )


def _way(outcome: str, field: str, target: str | dict[str, str]) -> Way:
    if isinstance(target, str):
        return Way(outcome=outcome, target=target)
    cases = tuple(Case(value=value, target=node) for value, node in target.items())
    return Way(outcome=outcome, on=field, cases=cases)


@dataclass
class WorkflowModel:
    """A workflow. `nodes[0]` is the start."""

    name: str
    nodes: dict[str, NodeModel]
    start: str
    max_steps: int
    definition: WorkflowDefinition
    texts: dict[str, bytes]

    @property
    def path(self) -> str:
        return f"/sim/{self.name}.py"


def draw_workflow(name: str, seed: int, chance: random.Random, edition: int = 0) -> WorkflowModel:
    """A chain of nodes with loops back, failure ways, retries and time limits. `edition`: after so many edits."""
    count = chance.randint(1, 6)
    nodes = _draw_nodes(count, chance, f"{seed}:{name}")
    own = random.Random(f"{seed}:{name}:settings")
    settings = _draw_settings(own)
    for node in nodes.values():
        if settings is not None and _routes(node.kind, own):
            node.kind = ROUTE
    max_steps = chance.choice([6, 20, 100])
    start = _include(nodes, "n0", random.Random(f"{seed}:{name}:include"), f"{seed}:{name}")
    graph = WorkflowGraph(
        name=name,
        start=start,
        nodes=tuple(node.spec() for node in nodes.values()),
        file=f"/sim/{name}.py",
        max_steps=max_steps,
        input_schema={"type": "object", "required": ["n"]},
        settings=settings,
    )
    source, texts = root_source(
        name, f"# {name} of seed {seed}{f', {edition}' if edition else ''}\n".encode()
    )
    definition = WorkflowDefinition(
        definition_id=digest(repr((seed, graph, edition) if edition else (seed, graph)).encode()),
        graph=graph,
        root="/",
        sources=(source,),
    )
    return WorkflowModel(name, nodes, start, max_steps, definition, texts)


def _draw_nodes(count: int, chance: random.Random, stream: str) -> dict[str, NodeModel]:
    ids = [f"n{number}" for number in range(count)]
    nodes = {}
    kinds = PURE if chance.random() < PURE_SHARE else DRAWN
    for number, node_id in enumerate(ids):
        nodes[node_id] = _draw_node(
            node_id, chance.choice(kinds), ids[number + 1 :], ids[: number + 1], chance
        )
        # From a stream of its own, so that what a seed has drawn stays what it was.
        _draw_parts(nodes[node_id], random.Random(f"{stream}:{node_id}:parts"))
    return nodes


def _include(
    nodes: dict[str, NodeModel], start: str, chance: random.Random, stream: str, depth: int = 0
) -> str:
    """Put an included workflow, itself drawn so, before a node: all ways to that one enter it. The start, with that."""
    if depth == INCLUDED_DEPTH_MAX or chance.random() >= INCLUDED_SHARE:
        return start
    mount, following = f"m{depth}", chance.choice(sorted(nodes))
    child = _draw_nodes(chance.randint(1, 3), chance, f"{stream}:{mount}")
    own = random.Random(f"{stream}:{mount}:settings")
    settings = _draw_settings(own)
    for node in child.values():
        if settings is not None and _routes(node.kind, own):
            node.kind = ROUTE
    first = _include(child, "n0", chance, f"{stream}:{mount}", depth + 1)
    for node in nodes.values():
        node.ways = {outcome: _led(way, {following: mount}) for outcome, way in node.ways.items()}
    leaving = [node.id for node in child.values() if "completed" not in node.ways]
    for node in child.values():
        inside = {other: f"{mount}.{other}" for other in child}
        node.ways = {outcome: _led(way, inside) for outcome, way in node.ways.items()}
        if node.id in leaving:
            node.ways["completed"] = following
        if node.mount is not None:
            exits = {
                name: tuple(inside[leaf] for leaf in leaves) for name, leaves in node.mount.exits.items()
            }
            node.mount = msgspec.structs.replace(node.mount, exits=exits)
        node.id = inside[node.id]
        nodes[node.id] = node
    exits = {leaf: (f"{mount}.{leaf}",) for leaf in leaving}
    limit = chance.choice([3, 10, 100])
    spec = MountSpec(workflow="child", max_steps=limit, exits=exits, settings=settings)
    nodes[mount] = NodeModel(mount, ENTERING, mount=spec, ways={"completed": f"{mount}.{first}"})
    return mount if start == following else start


def _led(way: str | dict[str, str], to: dict[str, str]) -> str | dict[str, str]:
    """A way with other targets."""
    if isinstance(way, str):
        return to.get(way, way)
    return {value: to.get(target, target) for value, target in way.items()}


def with_text(model: WorkflowModel, text: bytes) -> WorkflowModel:
    """The same workflow after an edit of a comment."""
    source, texts = root_source(model.name, text)
    definition = msgspec.structs.replace(
        model.definition,
        definition_id=digest(repr((model.definition.graph, text)).encode()),
        sources=(source,),
    )
    return replace(model, definition=definition, texts=texts)


def root_source(name: str, text: bytes) -> tuple[SourceFile, dict[str, bytes]]:
    """The one file of a definition, and its text by digest."""
    source = SourceFile(path=f"{name}.py", digest=digest(text), size=len(text), kind="root")
    return source, {source.digest: text}


def _draw_parts(node: NodeModel, chance: random.Random) -> None:
    """A node with an effect may make several in its place."""
    if node.effect is None or chance.random() >= PARTS_SHARE:
        return
    node.effect, node.observable = "parts", False
    modes = [chance.choice(["idempotent", "manual", "manual"]) for _ in range(chance.randint(1, 4))]
    node.parts = tuple(
        PartModel(f"p{number}", mode, mode == "manual" and chance.random() < 0.8, large=chance.random() < 0.1)
        for number, mode in enumerate(modes)
    )


def _draw_settings(chance: random.Random) -> SettingsSpec | None:
    """What a workflow declares."""
    if chance.random() >= SETTINGS_SHARE:
        return None
    paths = (
        PathRule(path="", may={"human": ("read", "replace")}),
        PathRule(path="/fixed", may={}),
        PathRule(path="/said", may={"manager": ("add",)}),
    )
    return SettingsSpec(
        schema={"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
        initial='{"fixed":0,"n":0,"said":[]}',
        paths=paths,
        checks=chance.random() < 0.5,
    )


def _routes(kind: NodeKind, chance: random.Random) -> bool:
    """Whether a node of this kind routes by settings, in a workflow that has some."""
    return KINDS[kind].pure and chance.random() < ROUTES_SHARE


def _draw_node(
    node_id: str, kind: NodeKind, after: list[str], before: list[str], chance: random.Random
) -> NodeModel:
    node = NodeModel(node_id, kind)
    if KINDS[node.kind].prompts:
        node.validates = chance.random() < 0.5
    if KINDS[node.kind].has_effect:
        node.effect = chance.choice(["idempotent", "manual", "manual"])
        node.observable = node.effect == "manual" and chance.random() < 0.6
    if KINDS[node.kind].has_active_timeout:
        node.timeout_ms = chance.choice([600, 3_000, 10_000])
        if (
            chance.random() < 0.4
            and not KINDS[kind].notifies
            and (node.effect != "manual" or node.observable)
        ):
            node.retries, node.backoff_ms = chance.randint(1, 2), chance.choice([0, 500, 5_000])
    if KINDS[node.kind].has_deadline and chance.random() < 0.6:
        node.open_ms = chance.choice([500, 5_000, 20_000])
        if chance.random() < 0.5:
            node.default = {node.field: CHOICES[0] if KINDS[kind].chooses else chance.choice(CHOICES)}
            if KINDS[kind].chooses:
                node.default["text"] = None
    if after:
        onward = chance.choice(after[:2])
        looping = chance.random() < 0.25 and not KINDS[kind].notifies
        node.ways["completed"] = {"on": onward, "back": chance.choice(before)} if looping else onward
        if KINDS[node.kind].has_active_timeout and not KINDS[kind].notifies:
            for outcome in ("failed", "timed_out"):
                if chance.random() < 0.4:
                    node.ways[outcome] = chance.choice(after)
        if node.open_ms is not None and node.default is None:
            node.ways["timed_out"] = chance.choice(after)
    return node
