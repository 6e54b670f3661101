"""`ctx`: everything a node's function may see of its run. Read-only, made anew for every attempt.

Outputs and input are fetched and decoded when they are first asked for, and decoded afresh for each context,
so that a function that changes what it got changes nothing for later nodes (nor for itself after a crash).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, overload

import msgspec

from pwf.errors import InvalidArgument, InvalidInput, InvalidValue, Rejected
from pwf.protocol.decision_spec import Block
from pwf.protocol.graph import EffectMode
from pwf.protocol.kinds import Outcome
from pwf.protocol.progress import PROGRESS, Progress
from pwf.protocol.runner import UPDATE_BYTES_MAX, UPDATE_NAME_MAX, PastStep, StepError, Value
from pwf.values import canonical
from pwf.workflow.deadline import NONE_GIVEN
from pwf.workflow.decisions import Presentation, present
from pwf.workflow.nodes import Node, NodeDef
from pwf.workflow.schema import decoder_of
from pwf.workflow.scopes import NO_LEAVES, Left
from pwf.workflow.suggest import nearest

InputT_co = TypeVar("InputT_co", covariant=True)
T = TypeVar("T")

ReadValue = Callable[[Value], bytes]  # the canonical JSON bytes of a value, inline or by digest
PublishUpdate = Callable[[str, str, bytes], None]  # type, key, canonical JSON
ReadFile = Callable[[str], bytes]  # a pinned data file, by its path relative to the root
ReadSecret = Callable[[str], str]
MakeEffect = Callable[..., Any]  # the arguments of `Context.effect`


_progress = msgspec.json.Decoder(Progress)


class NotCompleted(Rejected, LookupError):
    """The node has no output yet in this run."""


@dataclass(frozen=True, slots=True)
class Result:
    """How the latest accepted visit of a node ended. `output` is set when it completed, else `error`."""

    node: str
    visit: int
    outcome: Outcome
    output: Any = None
    error: StepError | None = None
    exit: str | None = None  # by which an included workflow was left


class Context(Generic[InputT_co]):
    """What the function of a node gets. `nodes`: by the ids that the code has for them; `all_nodes` by those of steps.

    `past` holds the latest accepted step of each node, and `completed` the latest that completed (it differs where a
    later visit failed; those of `past` unless given). `publish` is None where updates are not allowed. `settings`:
    their type and their JSON.
    """

    __slots__ = (
        "_all_nodes",
        "_cache",
        "_completed",
        "_input",
        "_input_type",
        "_input_value",
        "_leaves",
        "_make_effect",
        "_nodes",
        "_past",
        "_publish",
        "_read_file",
        "_read_secret",
        "_read_value",
        "_settings",
        "attempt",
        "effect_key",
        "node",
        "run_id",
        "tries",
        "visit",
    )

    def __init__(
        self,
        *,
        run_id: str,
        node: str,
        visit: int,
        attempt: int,
        tries: int = 1,
        input: Value,
        input_type: Any,
        nodes: Mapping[str, NodeDef],
        leaves: Mapping[str, Left] = NO_LEAVES,
        all_nodes: Mapping[str, NodeDef] | None = None,
        past: Mapping[str, PastStep],
        completed: Mapping[str, PastStep] | None = None,
        read_value: ReadValue,
        effect_key: str | None = None,
        publish: PublishUpdate | None = None,
        read_file: ReadFile | None = None,
        read_secret: ReadSecret | None = None,
        make_effect: MakeEffect | None = None,
        settings: tuple[Any, bytes] | None = None,
    ) -> None:
        put = object.__setattr__  # ours refuses
        put(self, "run_id", run_id)
        put(self, "node", node)
        put(self, "visit", visit)
        put(self, "attempt", attempt)
        put(self, "tries", tries)
        put(self, "effect_key", effect_key)
        put(self, "_input_value", input)
        put(self, "_input_type", input_type)
        put(self, "_nodes", nodes)
        put(self, "_leaves", leaves)
        put(self, "_all_nodes", nodes if all_nodes is None else all_nodes)
        put(self, "_past", past)
        put(self, "_completed", _completed(past) if completed is None else completed)
        put(self, "_read_value", read_value)
        put(self, "_publish", publish)
        put(self, "_read_file", read_file)
        put(self, "_read_secret", read_secret)
        put(self, "_make_effect", make_effect)
        put(self, "_settings", settings)
        put(self, "_cache", {})

    run_id: str
    node: str  # id of the node that runs
    visit: int  # number of this entry into the node, 1, 2, 3 …
    attempt: int  # number of the attempt within the run, 1, 2, 3 …
    tries: int  # number of the try within this visit, 1, 2, 3 …: more than 1 after a failure or a crash
    effect_key: (
        str | None
    )  # the same in all attempts of this visit, and no other's: give it to the outside system
    _input: Any  # decoded; unset until it is asked for
    _input_value: Value
    _input_type: Any
    _nodes: Mapping[str, NodeDef]
    _leaves: Mapping[str, Left]
    _all_nodes: Mapping[str, NodeDef]
    _past: Mapping[str, PastStep]
    _completed: Mapping[str, PastStep]
    _read_value: ReadValue
    _publish: PublishUpdate | None
    _read_file: ReadFile | None
    _read_secret: ReadSecret | None
    _make_effect: MakeEffect | None
    _settings: tuple[Any, bytes] | None  # their type, and JSON
    _cache: dict[str, Any]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ctx is read-only: return a value from the node in place of setting ctx.{name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("ctx is read-only")

    @property
    def input(self) -> InputT_co:
        """The run's input, as the type that the workflow declares (any JSON where it declares none)."""
        if not hasattr(self, "_input"):
            data = self._read_value(self._input_value)
            decode = decoder_of(self._input_type).decode
            object.__setattr__(self, "_input", _decode(data, decode, InvalidInput, "the run's input"))
        return self._input  # type: ignore[no-any-return]  # decoded as this type

    @overload
    def __getitem__(self, node: Node[T]) -> T: ...
    @overload
    def __getitem__(self, node: str) -> Any: ...
    def __getitem__(self, node: Node[Any] | str) -> Any:
        """The latest accepted output of a node, typed. `NotCompleted` when there is none."""
        step = self._step(node)
        if step.node not in self._cache:
            self._cache[step.node] = self._output(step)
        return self._cache[step.node]

    @property
    def outputs(self) -> Outputs:
        """The latest accepted outputs of all nodes that completed, by node or id."""
        return Outputs(self)

    @property
    def results(self) -> Results:
        """How each node that ended did so, by node or id: outcome, and output or error."""
        return Results(self)

    @property
    def settings(self) -> Any:
        """The run's settings as they were when this attempt began, as the type that the workflow declares."""
        if self._settings is None:
            raise Rejected(
                "this workflow has no settings", hint="declare them: flow.settings(type, initial=…)"
            )
        type_, data = self._settings
        return _decode(data, decoder_of(type_).decode, InvalidValue, "the run's settings")

    def publish(self, type: str, key: str, data: Any) -> None:
        """Write a durable update, at most 64 KiB of JSON: it replaces the run's current item of (`type`,
        `key`).

        Not in compute, wait and checkpoint nodes, which must be free of effects. `"progress"` has a fixed shape, which
        `ctx.progress` writes.
        """
        if self._publish is None:
            raise Rejected(
                f"node {self.node!r} can not publish: only action and shell nodes may have effects",
                hint=f"make {self.node!r} an action: @flow.action(effect=idempotent(…))",
            )
        for what, text in (("type", type), ("key", key)):
            if not isinstance(text, str) or not 1 <= len(text) <= UPDATE_NAME_MAX:
                raise InvalidArgument(
                    f"the update's {what} must be a text of 1 to {UPDATE_NAME_MAX} characters"
                )
        written = canonical(data, limit=UPDATE_BYTES_MAX, what=f"update {type}/{key}")
        if type == PROGRESS:
            _check_progress(written, key)
        self._publish(type, key, written)

    def progress(
        self,
        completed: float | None = None,
        total: float | None = None,
        unit: str | None = None,
        *,
        label: str | None = None,
        phase: str | None = None,
        status: str | None = None,
        key: str | None = None,
        started: datetime | None = None,
        at: datetime | None = None,
    ) -> None:
        """Say how far this step is: `completed` of `total`, shown as a bar with rate and time left.

        `key` names the bar where a step has several (else the node's id names it). `started` and `at` say when the work
        began and when this was measured, where somebody else measured it. As often as you like: what comes faster than
        20 times a second is thinned to the newest.
        """
        given = {
            "label": label,
            "phase": phase,
            "status": status,
            "completed": completed,
            "total": total,
            "unit": unit,
            "started_ms": _wall_ms(started),
            "at_ms": _wall_ms(at),
        }
        data = {name: value for name, value in given.items() if value is not None}
        self.publish(PROGRESS, self.node if key is None else key, data)

    def effect(
        self,
        key: str,
        request: Any,
        *,
        apply: Callable[[Any, str], Any],
        observe: Callable[[Any, str], Any] | None = None,
        mode: EffectMode = "manual",
        type: str | None = None,
    ) -> Any:
        """Make one of several effects of a step that declares `effect=parts()`; its output, as JSON gives it back.

        `key` names it within the visit, and `request` (any JSON) is what is wanted; both must depend on ctx alone. The
        daemon stores them before `apply(request, effect_key)` is called, and what that returns after. A call for an
        effect that has happened gives the stored output. `mode="manual"`: it is never applied again before its outcome
        is known; after a crash `observe(request, effect_key)` answers `applied(output)`, `not_applied()` or
        `unknown()`. `mode="idempotent"`: `apply` simply runs again. Where `apply` is async, await the result.

        Raises `Conflict` where the key was used with another request, `NotApplied` where it did not happen, what
        `apply` raises, and `EffectUnknown` where nobody can tell: let it end the step.
        """
        if self._make_effect is None:
            raise Rejected(
                f"node {self.node!r} does not say that it makes effects one by one",
                hint="declare them: @flow.action(effect=parts())",
            )
        return self._make_effect(key, request, apply=apply, observe=observe, mode=mode, type=type)

    def present(
        self,
        summary: str,
        *blocks: Block | str,
        title: str | None = None,
        fields: Mapping[str, object] | None = None,
        subject: object = None,
        timeout: timedelta | None = NONE_GIVEN,
        default: str = NONE_GIVEN,
    ) -> Presentation:
        """What a person is shown who decides: a summary, then fields, then blocks in order (a text is a paragraph).

        `title` is the node's name unless it is given. `subject` is data for the record only: no person or channel is
        shown it, and the answer binds it. `timeout` (None: it waits for ever) and `default` stand in place of the
        decision's own, for this proposal.
        """
        return present(
            summary,
            blocks,
            title=title or self.node,
            fields=fields,
            subject=subject,
            timeout=timeout,
            default=default,
        )

    def file(self, name: str) -> bytes:
        """The bytes of a data file that `Workflow(files=…)` pinned, by its path relative to the project
        root.
        """
        if self._read_file is None:
            raise Rejected("this run has no pinned files", hint="name them in Workflow(files=[…])")
        return self._read_file(name)

    def secret(self, name: str) -> str:
        """The value of a secret that `Workflow(secrets=…)` names, looked up now, by the daemon.

        pwf keeps its name alone: where the value appears in what the step returns, raises, publishes or prints, `***`
        is kept. Raises `SecretMissing` where it can't be had: the message says what to do.
        """
        if self._read_secret is None:
            raise Rejected("secrets are for the steps of a run", hint="ask in a node's function")
        return self._read_secret(name)

    def _find(self, node: Node[Any] | str) -> str:
        node_id = node.id if isinstance(node, Node) else node
        if not isinstance(node_id, str):
            raise InvalidArgument(f"ctx[…] takes a node or its id, not {node!r:.80}")
        if node_id not in self._nodes or (isinstance(node, Node) and not node.stands_in(self._nodes)):
            raise InvalidArgument(
                f"node {node_id!r} is not part of this workflow", hint=nearest(node_id, self._nodes)
            )
        return node_id

    def _step(self, node: Node[Any] | str) -> PastStep:
        node_id = self._find(node)
        completed = self._completed.get(node_id)
        if completed is not None:
            return completed
        step = self._past.get(node_id)
        done = ", ".join(map(repr, self._completed))
        so_far = f"completed so far: {done or 'none'}"
        if step is None:
            raise NotCompleted(
                f"node {self.node!r} asks for the output of {node_id!r}, which has not run; {so_far}",
                hint=f"lead the graph through {node_id!r} first, or ask ctx.outputs.get({node_id!r})",
            )
        raise NotCompleted(
            f"node {self.node!r} asks for the output of {node_id!r}, which ended as {step.outcome}; {so_far}",
            hint=f"ctx.results[{node_id!r}] has its outcome and error",
        )

    def _output(self, step: PastStep) -> Any:
        data = self._read_value(step.output) if step.output is not None else b"null"
        return _decode(
            data, self._all_nodes[step.node].decode, InvalidValue, f"the output of node {step.node!r}"
        )


class Outputs(Mapping[Any, Any]):  # asked by node, too: `node in ctx.outputs`
    """Outputs by node id. `outputs.get(node)` is None for a node that has not completed."""

    def __init__(self, ctx: Context[Any]) -> None:
        self._ctx = ctx

    @overload
    def __getitem__(self, node: Node[T]) -> T: ...
    @overload
    def __getitem__(self, node: str) -> Any: ...
    def __getitem__(self, node: Node[Any] | str) -> Any:
        return self._ctx[node]

    @overload
    def get(self, node: Node[T]) -> T | None: ...
    @overload
    def get(self, node: Node[T], default: T) -> T: ...
    @overload
    def get(self, node: str, default: Any = None) -> Any: ...
    def get(self, node: Node[Any] | str, default: Any = None) -> Any:
        return self[node] if node in self else default  # noqa: SIM401 - this is that method

    def __contains__(self, node: object) -> bool:
        key = node.id if isinstance(node, Node) else node
        return any(key == name for name in self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ctx._completed)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Results(Mapping[Any, Result]):
    """Results by node id: also of nodes that failed, timed out or were cancelled."""

    def __init__(self, ctx: Context[Any]) -> None:
        self._ctx = ctx

    def __getitem__(self, node: Node[Any] | str) -> Result:
        name = self._ctx._find(node)
        step = self._ctx._past.get(name)
        if step is None:
            raise NotCompleted(f"node {self._ctx.node!r} asks for the result of {name!r}, which has not run")
        left = self._ctx._leaves.get(step.node)
        return Result(
            node=name,
            visit=step.visit,
            outcome=step.outcome,
            output=self._ctx[name] if step.outcome == "completed" else None,
            error=step.error,
            exit=None if left is None else left.exit,
        )

    def get(self, node: Node[Any] | str, default: Any = None) -> Any:
        return self[node] if node in self else default  # noqa: SIM401 - this is that method

    def __contains__(self, node: object) -> bool:
        key = node.id if isinstance(node, Node) else node
        return key in self._ctx._past

    def __iter__(self) -> Iterator[str]:
        return iter(self._ctx._past)

    def __len__(self) -> int:
        return len(self._ctx._past)


def _completed(past: Mapping[str, PastStep]) -> dict[str, PastStep]:
    return {name: step for name, step in past.items() if step.outcome == "completed"}


def _decode(
    data: bytes, decode: Callable[[bytes], Any], error: type[InvalidInput] | type[InvalidValue], what: str
) -> Any:
    try:
        return decode(data)
    except msgspec.ValidationError as fault:
        raise error(f"{what} is not what its type says: {fault}") from fault


def _check_progress(written: bytes, key: str) -> None:
    try:
        _progress.decode(written)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(
            f"the progress {key!r} has not the shape of progress: {error}",
            hint="say ctx.progress(completed, total, unit, label=…), or publish under another type",
        ) from None


def _wall_ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
