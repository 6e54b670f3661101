"""What a workflow is, as data: the definition that the resolver makes, the store keeps and everyone routes by.

It holds no code. `route` is the single place that says which node follows an outcome; the runner proposes with it,
and the daemon checks and decides with it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pwf.budgets import Budget
from pwf.errors import GraphError
from pwf.protocol.agents import ToolKind
from pwf.protocol.decision_spec import DecisionSpec
from pwf.protocol.kinds import KINDS, NodeKind, Outcome
from pwf.protocol.notices import NoticeKind
from pwf.protocol.settings import SettingsSpec
from pwf.values import shortened

type_ = type
EffectMode = Literal["idempotent", "manual"]
DeclaredMode = Literal[
    "idempotent", "manual", "parts"
]  # parts: the code makes several in mid-step, each of a mode of its own
Isolate = Literal[
    "fork", "spawn", "keep"
]  # a forked process for each run, one by exec, one that may have further runs

DEFAULT_TIMEOUT_MS = 15 * 60 * 1000
DEFAULT_MAX_STEPS = 100
DEFAULT_RECONCILE_MS = 60_000
MAX_STEPS_LIMIT = 1_000_000


class EffectSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The declared effect of a node. `observable`: an `observe=` function exists."""

    mode: DeclaredMode
    type: str
    observable: bool = False


class RetrySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`times` further tries after a failed outcome; the n-th waits `backoff_ms * factor**(n-1)`, at most `max_ms`."""

    times: int
    backoff_ms: int = 1_000
    factor: float = 2.0
    max_ms: int = 3_600_000

    def delay_ms(self, failures: int) -> int:
        """How long to wait after the `failures`-th failed try (1 is the first)."""
        return int(min(self.max_ms, self.backoff_ms * self.factor ** min(failures - 1, 64)))


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One arm of a switch: the JSON value (a scalar) and the node it leads to."""

    value: str | int | float | bool | None
    target: str


class Way(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The way out of a node for one outcome: either `target`, or `cases` on the output (or its field `on`)."""

    outcome: Outcome
    target: str | None = None
    on: str | None = None
    cases: tuple[Case, ...] = ()


class MountSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a node that enters an included workflow: its output is the child's input, and it leads to the child's start.

    `exits`: the nodes below it that leave the child when they complete, by the name of the exit.
    """

    workflow: str
    file: str = ""
    max_steps: int = DEFAULT_MAX_STEPS  # of each entry
    exits: dict[str, tuple[str, ...]] = {}
    settings: SettingsSpec | None = None  # of the child: each entry begins with the initial ones


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node. `file` and `line` are where its function stands. `timeout_ms` None is unlimited."""

    id: str
    kind: NodeKind
    file: str = ""
    line: int = 0
    doc: str = ""
    is_async: bool = False
    timeout_ms: int | None = DEFAULT_TIMEOUT_MS
    retry: RetrySpec | None = None
    effect: EffectSpec | None = None
    returns: dict[str, Any] | None = None  # JSON Schema of the output or answer
    open_ms: int | None = None  # how long its question is open; None: for ever
    default: str | None = None  # JSON: the answer when none came in time
    validates: bool = False  # a function of the workflow judges what is submitted
    tools: tuple[ToolKind, ...] | None = None  # that an agent may use for it; None: those that it has
    decision: DecisionSpec | None = None  # who decides, and between what
    notice: NoticeKind | None = None  # what its text is, where it notifies
    mount: MountSpec | None = None
    ways: tuple[Way, ...] = ()

    def way(self, outcome: str) -> Way | None:
        """The way out for an outcome, if one is declared. What notifies leads on as it does when it completed."""
        if outcome in ("failed", "timed_out") and KINDS[self.kind].notifies:
            outcome = "completed"
        return next((way for way in self.ways if way.outcome == outcome), None)


class ManagerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file of a resource manager declares. `initial_status` is a text of canonical JSON.

    `every_ms`: a settled resource is reconciled again after so long. `watches`: its resources are woken by changes of
    files. `deadline_ms`: of one reconcile.
    """

    spec_schema: dict[str, Any] | None = None
    status_schema: dict[str, Any] | None = None
    initial_status: str = "{}"
    every_ms: int | None = None
    watches: bool = False
    deadline_ms: int = DEFAULT_RECONCILE_MS
    is_async: bool = False
    line: int = 0  # where its reconcile function stands


class WorkflowGraph(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole workflow, or a resource manager. `file` is the root source file."""

    name: str
    start: str
    nodes: tuple[NodeSpec, ...]
    file: str = ""
    doc: str = ""
    max_steps: int = DEFAULT_MAX_STEPS
    input_schema: dict[str, Any] | None = None
    titled: bool = False  # has a `title=` function, which the first runner evaluates
    isolate: Isolate = "fork"
    source: Literal["pinned", "verify"] = "pinned"
    files: tuple[str, ...] = ()  # globs, relative to the project root
    manager: ManagerSpec | None = None  # of a resource manager, which has no nodes
    environment: tuple[str, ...] = ()  # variables that it needs, by name
    secrets: tuple[str, ...] = ()  # by name
    budget: Budget | None = None  # of its agents in a run
    settings: SettingsSpec | None = None

    def node(self, node_id: str) -> NodeSpec:
        """The node with this id; `GraphError` when there is none."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise GraphError(f"workflow {self.name!r} has no node {node_id!r}")


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recorded file. `module` is its import names, empty for the root file's own and for data (`files=`).

    Of a file that is included by name or path, it is what it was found by, one a line (a name, or a whole path).
    """

    path: str
    digest: str
    size: int
    kind: Literal["root", "included", "module", "data"] = "module"
    module: str = ""


class WorkflowDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the resolver answers and a run is bound to. `definition_id` is the digest of everything else in it."""

    definition_id: str
    graph: WorkflowGraph
    root: str
    sources: tuple[SourceFile, ...]
    packages: dict[str, str] = {}  # distribution -> version, of the installed packages that were imported
    warnings: tuple[str, ...] = ()


class RoutingFailed(Exception):
    """A value has no case. The message names the value and the cases; the run fails with it."""


def route(node: NodeSpec, outcome: str, output: object) -> str | None:
    """The id of the node that follows, or None when the run ends here.

    `output` is the decoded output (needed only by a switch). Raises `RoutingFailed` when no case matches.
    """
    way = node.way(outcome)
    if way is None:
        return None
    if way.target is not None:
        return way.target
    value = output
    if way.on is not None:
        if not isinstance(output, dict) or way.on not in output:
            raise RoutingFailed(
                f"node {node.id!r} switches on field {way.on!r}, which its output does not have"
            )
        value = output[way.on]
    for case in way.cases:
        if type_(case.value) is type_(value) and case.value == value:
            return case.target
    known = ", ".join(repr(case.value) for case in way.cases)
    raise RoutingFailed(
        f"node {node.id!r} has no case for {shortened(repr(value), 200)}; its cases are {known}"
    )
