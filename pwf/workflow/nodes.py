"""Nodes: what a decorator makes of a function (`Node`), and what a runner executes (`NodeDef`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from pwf.errors import InvalidValue
from pwf.protocol.agents import ToolKind
from pwf.protocol.decision_spec import DecisionSpec
from pwf.protocol.graph import EffectSpec, NodeSpec, RetrySpec
from pwf.protocol.kinds import NodeKind
from pwf.protocol.notices import NoticeKind
from pwf.values import VALUE_BYTES_MAX, canonical
from pwf.workflow.deadline import Deadline
from pwf.workflow.effects import Effect, Observation
from pwf.workflow.round_trip import what_is_lost
from pwf.workflow.routes import Chain, Outcomes, Switch, cases_of, join
from pwf.workflow.schema import first_fault
from pwf.workflow.shell import ShellOptions, ShellResult
from pwf.workflow.source import Place

T = TypeVar("T")

_ALWAYS_READ_AS_WRITTEN = frozenset({str, int, float, bool, type(None)})

#: The type of a node whose output may be any JSON.
ANY_JSON = None


class Waited(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The output of a wait node: when it was due, in milliseconds since 1970 (UTC)."""

    due_ms: int

    @property
    def due(self) -> datetime:
        """The same as a time with a zone."""
        return datetime.fromtimestamp(self.due_ms / 1000, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDef:
    """A checked node, as a runner executes it. `returns` is the type that `ctx[node]` decodes to, None
    for any JSON.
    """

    id: str
    kind: NodeKind
    fn: Callable[..., Any]
    is_async: bool
    spec: NodeSpec
    decode: Callable[[bytes], Any]  # JSON text to what `ctx[node]` gives; raises msgspec.ValidationError
    returns: Any = ANY_JSON
    observe: Callable[..., Any] | None = None
    observe_is_async: bool = False
    shell: ShellOptions | None = None  # of shell nodes only
    validate: Callable[..., Any] | None = None  # of nodes for which something is submitted
    validate_is_async: bool = False

    @property
    def retry(self) -> RetrySpec | None:
        """How often it may be tried again."""
        return self.spec.retry

    @property
    def effect(self) -> EffectSpec | None:
        """The declared effect, of action and shell nodes."""
        return self.spec.effect

    def output_bytes(self, value: object, *, limit: int = VALUE_BYTES_MAX) -> bytes:
        """A returned (or observed) value as canonical JSON that `ctx[node]` can decode.

        Raises `InvalidValue` (with the path to the fault) or `ValueTooLarge`: the attempt has failed with it.
        """
        if self.shell is not None and not isinstance(value, ShellResult):  # the answer of `observe`
            codes = self.shell.ok_exit_codes
            value = ShellResult(exit_code=0 if 0 in codes else codes[0], parsed=value)
        data = canonical(value, limit=limit, what=f"the output of node {self.id!r}")
        if self.shell is None:
            self._check(value, data)
        return data

    def _check(self, value: object, data: bytes) -> None:
        if self.returns is not ANY_JSON:
            try:
                read = self.decode(data)
            except msgspec.ValidationError as fault:
                raise self._wrong_type(str(fault)) from fault
            lost = None if type(value) in _ALWAYS_READ_AS_WRITTEN else what_is_lost(value, read)
            if lost is not None:
                raise self._wrong_type(lost)
        elif self.spec.returns is not None:
            fault_text = first_fault(self.spec.returns, data)
            if fault_text is not None:
                raise self._wrong_type(fault_text)

    def _wrong_type(self, fault: str) -> InvalidValue:
        return InvalidValue(
            f"node {self.id!r} returned something else than its declared type: {fault}",
            hint=f"it stands in {self.spec.file}:{self.spec.line}",
        )

    def observation(self, answer: object) -> Observation:
        """Check what `observe` returned."""
        if isinstance(answer, Observation):
            return answer
        raise InvalidValue(
            f"observe of node {self.id!r} returned {answer!r:.80}",
            hint="return applied(output), not_applied() or unknown()",
        )


class Owner(Protocol):
    """The workflow that a node belongs to, as far as the node knows it."""

    @property
    def name(self) -> str:
        """The workflow's name."""
        ...


class Node(Generic[T]):
    """One step of a workflow, made by a decorator such as `@flow.compute`. Calling it calls the plain
    function.

    `a >> b` leads on when `a` completed; `a.on("failed") >> b` for other outcomes; `a.switch(…)` by its
    output.
    """

    def __init__(
        self,
        workflow: Owner,
        kind: NodeKind,
        fn: Callable[..., Any],
        *,
        id: str,
        place: Place,
        timeout_ms: int | None,
        retry: RetrySpec | None = None,
        effect: Effect | None = None,
        returns: Any = None,  # a type or a JSON Schema; None: taken from the annotation
        shell: ShellOptions | None = None,
        deadline: Deadline | None = None,  # of its question; None: it waits for ever
        validate: Callable[..., Any] | None = None,
        tools: tuple[ToolKind, ...] | None = None,
        decision: DecisionSpec | None = None,
        notice: NoticeKind | None = None,
    ) -> None:
        self.workflow = workflow
        self.kind = kind
        self.fn = fn
        self.id = id
        self.place = place
        self.timeout_ms = timeout_ms
        self.retry = retry
        self.effect = effect
        self.returns = returns
        self.shell = shell
        self.deadline = deadline
        self.validate = validate
        self.tools = tools
        self.decision = decision
        self.notice = notice
        self.__doc__ = inspect.getdoc(fn)
        self.__name__ = id
        self.__wrapped__ = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.kind} node {self.id!r} of workflow {self.workflow.name!r} at {self.place}>"

    def __rshift__(self, target: object) -> Chain:
        return join((), self, ("completed",), target)

    def __rrshift__(self, source: object) -> Chain:
        return join((), source, ("completed",), self)

    def on(self, *outcomes: str) -> Outcomes:
        """The way out for other outcomes: `node.on("failed", "timed_out") >> other`."""
        return Outcomes(self, outcomes, Place.of_caller())

    def switch(
        self,
        on: str | None = None,
        cases: Mapping[Any, Node[Any]] | None = None,
        **named: Node[Any],
    ) -> Switch:
        """The way out by the output itself, or by its field `on` (of a decision, by the choice): one case a value.

        `named` gives cases for values that are names; `cases` for any other text, numbers, booleans, None and
        enums.
        """
        field = "choice" if on is None and self.decision is not None else on
        return Switch(self, field, cases_of(cases, named), Place.of_caller())

    def stands_in(self, nodes: Mapping[str, NodeDef]) -> bool:
        """Whether this very node, not another of the same name, is one of `nodes`."""
        found = nodes.get(self.id)
        return found is not None and found.fn is self.fn


__all__ = ["ANY_JSON", "Node", "NodeDef", "Waited"]
