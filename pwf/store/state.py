"""A run's mutable state, as one struct: loaded once per command, changed by `moves` and
`place`, saved once by `change`.

Graphs never change under their digest, so decoded ones are kept in a small cache.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from pwf.errors import GraphError, NotFound, Rejected
from pwf.protocol.graph import NodeSpec, WorkflowGraph
from pwf.protocol.mounts import Entries, exceeds, mounts_of
from pwf.protocol.runner import effect_key
from pwf.protocol.settings import SettingsSpec
from pwf.protocol.views import ENDED
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)

GRAPHS_MAX = 64

_visits = msgspec.json.Decoder(dict[str, int])
_entries = msgspec.json.Decoder(Entries)
_graph = msgspec.json.Decoder(WorkflowGraph)
encode = msgspec.json.Encoder(order="deterministic").encode


class Graph:
    """A decoded graph with its nodes by id."""

    def __init__(self, graph: WorkflowGraph) -> None:
        self.graph = graph
        self.nodes = {node.id: node for node in graph.nodes}

    def limited(self, max_steps: int | None) -> Graph:
        """The same under another limit than the workflow's, where a run has one."""
        if max_steps is None:
            return self
        return Graph(msgspec.structs.replace(self.graph, max_steps=max_steps))

    @cached_property
    def settings(self) -> dict[str, SettingsSpec]:
        """What is declared, by the mount of the workflow that declares it; the run's own by the empty one."""
        own = {} if self.graph.settings is None else {"": self.graph.settings}
        mounts = {node.id: node.mount for node in self.graph.nodes if node.mount is not None}
        return own | {name: mount.settings for name, mount in mounts.items() if mount.settings is not None}

    @cached_property
    def targets(self) -> dict[tuple[str, str], frozenset[str | None]]:
        """(node, outcome) -> where it may lead; None: the run may end there."""
        found: dict[tuple[str, str], frozenset[str | None]] = {}
        for node in self.nodes.values():
            for way in node.ways:
                arms = {way.target} if way.target is not None else {case.target for case in way.cases}
                found[node.id, way.outcome] = frozenset(arms)
        return found

    def may_lead(self, node: str, outcome: str, target: str | None) -> bool:
        """Whether the stored graph has this way."""
        return target in self.targets.get((node, outcome), frozenset({None}))

    def effects_from(self, node: str) -> frozenset[str]:
        """The nodes with an outside effect that a run at `node` may come to, `node` among them."""
        reached, fresh = {node}, [node]
        while fresh:
            here = fresh.pop()
            ahead = {
                to for (of, _), arms in self.targets.items() if of == here for to in arms if to is not None
            }
            fresh.extend(ahead - reached)
            reached |= ahead
        return frozenset(one for one in reached if self.node(one).effect is not None)

    def node(self, node_id: str) -> NodeSpec:
        """The node; `GraphError` when the graph has none of that id."""
        try:
            return self.nodes[node_id]
        except KeyError:
            raise GraphError(f"workflow {self.graph.name!r} has no node {node_id!r}") from None


_graphs: dict[str, Graph] = {}


def graph_of(tx: Tx, definition_id: str) -> Graph:
    """The decoded graph of a definition."""
    found = _graphs.get(definition_id)
    if found is None:
        row = tx.one(Q.graph, {"definition_id": definition_id})
        if row is None:
            raise NotFound(f"there is no definition {definition_id}")
        if len(_graphs) >= GRAPHS_MAX:
            _graphs.pop(next(iter(_graphs)))
        found = _graphs[definition_id] = Graph(_graph.decode(row[0]))
    return found


class RunState(msgspec.Struct):
    """The mutable part of a run's row, with its entity's revision, generation and lease token."""

    run_no: int
    run_id: str
    workflow: str
    definition_id: str
    environment_id: str
    status: str
    hold: str | None
    hold_detail: str | None
    pause_requested: int
    title: str | None
    node: str
    visit: int
    visits: Any
    entries: Any
    steps: int
    attempts: int
    tries: int
    failures: int
    crashes: int
    daemon_deaths: int
    observe: str | None
    seq: int
    priority: int
    max_steps: int | None
    agent: str | None
    session_no: int | None
    due_wall_ms: int | None
    due_elapsed_ms: int | None
    due_boot_id: str | None
    started_wall_ms: int | None
    reason: str | None
    called_by: int | None
    revision: int
    generation: int
    lease_token: str | None
    placed: bool = False  # status, hold or due time has changed
    noted: int = 0  # the revision whose event was written last
    unwritten: dict[str, object] | None = None  # an attempt that has begun in this command and has no row yet

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    def limit(self, graph: Graph) -> int:
        """How many steps it may take."""
        return graph.graph.max_steps if self.max_steps is None else self.max_steps

    def spent(self, graph: Graph, following: str) -> str | None:
        """Whose limit forbids to enter a node, and what it is; None: it may be entered."""
        limit = self.limit(graph)
        if self.steps + 1 > limit:
            return f"the run took {limit} steps, its limit"
        for mount in mounts_of(following):
            spec = graph.node(mount).mount
            if spec and exceeds(self.entries, self.visits, mount, spec.max_steps - 1, self.steps):
                return f"{spec.workflow!r}, included as {mount!r}, took {spec.max_steps} steps, its limit"
        return None

    @property
    def effect_key(self) -> str:
        return effect_key(self.run_id, self.node, self.visit)

    @property
    def shown_status(self) -> str:
        """The status that every client sees."""
        return shown_status(self.status, self.hold)


def shown_status(status: str, hold: str | None) -> str:
    """`status` with the hold folded in: paused, ambiguous, held, else as it stands."""
    if hold is None:
        return status
    return {"paused": "paused", "effect_ambiguous": "ambiguous"}.get(hold, "held")


def load_run(tx: Tx, run_id: str, *, to_end: bool = False) -> RunState:
    """Load a run by its exact id; `NotFound` when there is none, `Rejected` when its row is damaged.

    `to_end`: the run is to be ended, which needs no more of its visits than its attempts tell.
    """
    row = tx.one(Q.load, {"run_id": run_id})
    if row is None:
        raise NotFound(f"there is no run {run_id!r}", hint="pwf ls lists the runs")
    run = RunState(*row)
    try:
        run.visits = _visits.decode(run.visits)
        run.entries = _entries.decode(run.entries)
    except (msgspec.MsgspecError, TypeError) as error:
        if not to_end:
            raise Rejected(
                f"the row of run {run_id} is damaged: {error}",
                hint=f"pwf state verify says what is wrong with it; pwf cancel {run_id} ends it",
            ) from error
        run.visits = {**dict(tx.all(Q.visits_of, {"run_no": run.run_no})), run.node: run.visit}
        run.entries = {}
    return run
