"""Runs a workflow in a test: in this process, without a daemon, with fake effects, given answers and virtual timers.

Owns one run in memory. Promises: nothing outside is touched unless it is asked for by name; types, ways, retries and
`NotApplied` mean what they mean in a real run, for the same code executes them; no timer is waited for. It knows
nothing of crashes: `pwf crashlab` is for these. A plain function that hangs is not timed out here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, overload

import msgspec

from pwf.errors import InvalidAnswer, InvalidValue, NotFound, SecretMissing
from pwf.protocol.graph import NodeSpec, RoutingFailed, route
from pwf.protocol.kinds import KINDS, PUBLISHING_KINDS, Outcome
from pwf.protocol.mounts import Entries, enter, mounts_of, steps_within
from pwf.protocol.runner import Launch, PastStep, StepError, Value, effect_key
from pwf.runner.base.failure import plain_error
from pwf.runner.base.judging import judge
from pwf.runner.base.secrets import Secrets
from pwf.runner.base.steps import End, Ended, Question, Step, Timer
from pwf.runner.kinds import RUN, action
from pwf.values import canonical
from pwf.workflow.context import Context
from pwf.workflow.nodes import Node, NodeDef
from pwf.workflow.schema import first_fault
from pwf.workflow.scopes import Scope, forget_within, publisher_of, sight
from pwf.workflow.shell import Captured, ShellResult
from pwf.workflow.workflow import Workflow

T = TypeVar("T")
Status = Literal["completed", "failed", "timed_out", "waiting", "ambiguous"]
RUN_ID = "tested"
BEGINS = datetime(2030, 1, 1, tzinfo=UTC)


#: As an answer: nobody answers. The deadline of the question passes, where it has one.
NO_ANSWER = object()
_NEVER = object()


class Unfaked(AssertionError):
    """An effect would have been made, and the test neither fakes it nor says that it is to be real."""


@dataclasses.dataclass(frozen=True)
class Each:
    """Made by `each`."""

    values: tuple[Any, ...]


def each(*values: Any) -> Each:
    """One value for each time that it is asked for; the last one goes on. An exception among them is raised."""
    if not values:
        raise ValueError("each() needs a value")
    return Each(values)


@dataclasses.dataclass(frozen=True)
class TestedStep:
    """One try of a node."""

    __test__ = False  # for pytest

    node: str
    visit: int
    tries: int
    outcome: Outcome
    output: Any = None
    error: StepError | None = None


@dataclasses.dataclass(frozen=True)
class Asked:
    """A question that was asked, and for which there was no answer where the run is `waiting`."""

    node: str
    prompt: Any


@dataclasses.dataclass
class Tested:
    """What became of the run.

    `status`: `waiting` where a question has no answer, `ambiguous` where nobody knows whether a manual effect
    happened, so that a real run would ask a person. `output` is that of the last node, as its type. `updates` are by
    type and key. `waited`: virtual time, of timers and of waits between tries.
    """

    status: Status
    output: Any = None
    error: StepError | None = None
    title: str | None = None
    steps: list[TestedStep] = dataclasses.field(default_factory=list)
    asked: list[Asked] = dataclasses.field(default_factory=list)
    updates: dict[tuple[str, str], Any] = dataclasses.field(default_factory=dict)
    waited: timedelta = timedelta(0)
    left: dict[str, Any] = dataclasses.field(default_factory=dict)  # outputs of included workflows, by mount

    @property
    def path(self) -> list[str]:
        """The nodes in the order in which they were entered; a further try is no further entry."""
        return [step.node for step in self.steps if step.tries == 1]

    @overload
    def __getitem__(self, node: Node[T]) -> T: ...
    @overload
    def __getitem__(self, node: str) -> Any: ...
    def __getitem__(self, node: Node[Any] | str) -> Any:
        """The output of a node's latest visit that completed, or what an included workflow was left with.

        A node of an included workflow is named by its whole id (`"review.lint"`). `KeyError` when there is none.
        """
        name = node.id if isinstance(node, Node) else node
        if name in self.left:
            return self.left[name]
        for step in reversed(self.steps):
            if step.node == name and step.outcome == "completed":
                return step.output
        raise KeyError(name)


def run(
    flow: Workflow[Any],
    input: object = None,
    *,
    effects: Mapping[str, Any] | None = None,
    real: Collection[str] = (),
    answers: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    settings: Any = None,
    begins: datetime = BEGINS,
    root: str | Path = ".",
) -> Tested:
    """Run a workflow from its start until it ends or nobody can go on.

    `effects`: by node, what an action gives or a command prints; by `"node/key"`, what `ctx.effect(key, …)` gives. A
    value is given as it is, an exception is raised, a function is called with `ctx` (with the request, for a part), and
    `each(…)` has one for each time. `real`: nodes whose effects are made. Any other effect is refused with `Unfaked`.
    `answers`: by node, what is answered or submitted; a function is called with the prompt; `NO_ANSWER` lets the
    deadline of the question pass. `secrets`: what `ctx.secret` gives. `settings`: what `ctx.settings` gives in place of
    the initial value; `each(…)` has one for each step, as though they were changed between them. What is included has
    its own initial ones.
    `begins`: when the virtual clock starts, for a timer with a date. `root`: where `ctx.file` reads.

    Raises `InvalidInput`, `InvalidAnswer` and (for settings) `InvalidValue` for what does not have its type, and
    `NotFound` for a name that the workflow does not have.
    """
    if input is None and flow.input_type is not None:
        input = {}  # every field has its default, or the refusal names one that has none
    tested = _Run(flow, canonical(input, what="input"), begins, Path(root))
    tested.fakes = _named(flow, "effects", effects or {})
    tested.answers = _named(flow, "answers", answers or {})
    tested.real = frozenset(_named(flow, "real", dict.fromkeys(real)))
    tested.secrets = Secrets(cast(Any, _Given(secrets or {})), flow.to_graph().secrets)
    if settings is not None:
        tested.settings = _settings(flow, settings)
    return tested.run()


def _named(flow: Workflow[Any], what: str, given: Mapping[str, T]) -> dict[str, T]:
    """Refuse a name that no node has: it would fake nothing, in silence."""
    for name in given:
        if name.partition("/")[0] not in flow.nodes:
            raise NotFound(
                f"{what}= names {name!r}, and workflow {flow.name!r} has no such node",
                hint=f"its nodes are: {', '.join(flow.nodes)}",
            )
    return dict(given)


def _settings(flow: Workflow[Any], given: Any) -> tuple[bytes, ...]:
    """The settings of each step; the last go on."""
    declared, spec = flow.declared_settings, flow.to_graph().settings
    if declared is None or spec is None:
        raise NotFound(
            f"settings= is given, and workflow {flow.name!r} has none",
            hint="declare them: flow.settings(type, initial=…)",
        )
    values = given.values if isinstance(given, Each) else (given,)
    found = tuple(canonical(value, what="settings=") for value in values)
    for data in found:
        fault = spec.schema and first_fault(spec.schema, data)
        fault = fault or declared.objection(data)
        if fault:
            raise InvalidValue(f"settings= of workflow {flow.name!r}: {fault}")
    return found


class _Given:
    """The test's secrets, in place of the daemon's."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def secret(self, name: str) -> str:
        if name not in self._values:
            raise SecretMissing(
                f"the test gives no secret {name!r}", hint=f"pwf.testing.run(…, secrets={{{name!r}: …}})"
            )
        return self._values[name]


class _Run:
    """One run in memory: the loop over nodes, and what the daemon would decide."""

    fakes: dict[str, Any]
    answers: dict[str, Any]
    real: frozenset[str]
    secrets: Secrets
    settings: tuple[bytes, ...] = ()

    def __init__(self, flow: Workflow[Any], input: bytes, begins: datetime, root: Path) -> None:
        self._flow = flow
        self._graph = flow.to_graph()
        self._input = Value(json=msgspec.Raw(input), size=len(input))
        self._now = self._begins = begins
        self._root = root
        self._told = Tested(status="failed")
        self._past: dict[str, PastStep] = {}
        self._completed: dict[str, PastStep] = {}
        self._visits: dict[str, int] = {}
        self._entries: Entries = {}
        self._uses: dict[str, int] = {}  # of each fake or answer
        self._parts: dict[tuple[str, int, str], Any] = {}  # what was applied once
        self._unfaked: Unfaked | None = None

    def run(self) -> Tested:
        at: str | None = self._graph.start
        before = self._context(self._flow.nodes[self._graph.start], 1, 1)
        _ = before.input  # else the first step that reads it fails
        self._told.title = self._flow.title_of(before)
        while at is not None:
            spent = self._spent(at)
            if spent is not None:
                self._fail(plain_error("max_steps", spent, at))
                break
            self._visits[at] = self._visits.get(at, 0) + 1
            if self._graph.node(at).mount is not None:
                enter(self._entries, self._visits, at)
            at = self._visit(self._flow.nodes[at])
        self._told.waited = self._now - self._begins
        return self._told

    def _spent(self, following: str) -> str | None:
        """Whose limit forbids a further step."""
        if sum(self._visits.values()) >= self._graph.max_steps:
            return f"more than {self._graph.max_steps} steps"
        for mount in mounts_of(following):
            spec = self._graph.node(mount).mount
            if spec and steps_within(self._entries, self._visits, mount) >= spec.max_steps:
                return f"more than {spec.max_steps} steps in {mount!r}"
        return None

    def _visit(self, node: NodeDef) -> str | None:
        """All tries of one visit. The node that follows; None where the run has ended or is parked."""
        tries = 0
        while True:
            tries += 1
            end = self._settled(node, self._try(node, tries))
            if end is None:
                return None
            self._note(node, tries, end)
            if end.outcome == "completed":
                break
            if end.settled == "unknown":
                self._told.status = "ambiguous"
                return None
            retry = node.spec.retry
            if end.settled == "applied" or retry is None or tries > retry.times:
                break
            self._now += timedelta(milliseconds=retry.delay_ms(tries))
        return self._follow(node.spec, end)

    def _try(self, node: NodeDef, tries: int) -> End:
        made = self._faked(node) if self._is_faked(node) else node
        step = Step(made, self._context(node, tries, self._attempts + 1), self._launch(node))
        execute = action.run if made is not node else RUN[node.kind]
        end = self.secrets.without(execute(step))
        if self._unfaked is not None:
            raise self._unfaked
        return end

    def _settled(self, node: NodeDef, end: End) -> Ended | None:
        """How the try ended, with a timer's time gone by and a question answered. None: it has no answer."""
        if isinstance(end, Ended):
            return end
        if isinstance(end, Timer):
            if end.due.delay_ms is not None:
                self._now += timedelta(milliseconds=end.due.delay_ms)
            else:
                self._now = max(self._now, datetime.fromtimestamp((end.due.wall_ms or 0) / 1000, UTC))
            due_ms = int(self._now.timestamp() * 1000)
            return Ended(outcome="completed", output=canonical({"due_ms": due_ms}))
        return self._answered(node, end)

    def _answered(self, node: NodeDef, question: Question) -> Ended | None:
        prompt = msgspec.json.decode(question.prompt)
        self._told.asked.append(Asked(node.id, prompt))
        answer = self._given(node.id, self.answers.get(node.id, _NEVER), prompt)
        if answer is NO_ANSWER and question.open_ms is not None:
            self._now += timedelta(milliseconds=question.open_ms)
            if question.default is None:
                return Ended(
                    outcome="timed_out", error=plain_error("timed_out", "nobody answered in time", node.id)
                )
            return Ended(outcome="completed", output=question.default.encode())
        if answer is NO_ANSWER or answer is _NEVER:
            self._told.status = "waiting"
            return None
        try:
            data = node.output_bytes(answer)
        except InvalidValue as fault:
            raise InvalidAnswer(
                f"the answer of node {node.id!r}: {fault.message}", hint=fault.hint
            ) from fault
        if node.validate is not None:
            judged = judge(Step(node, self._context(node, 1, self._attempts + 1), self._launch(node)), data)
            if not judged.accepted:
                raise InvalidAnswer(f"validate= of node {node.id!r} refuses the answer: {judged.reason}")
        return Ended(outcome="completed", output=data)

    def _note(self, node: NodeDef, tries: int, end: Ended) -> None:
        output = None if end.output is None else node.decode(end.output)
        visit = self._visits[node.id]
        self._told.steps.append(TestedStep(node.id, visit, tries, end.outcome, output, end.error))
        self._told.output, self._told.error = output, end.error
        if end.outcome == "completed":
            for mount in mounts_of(node.id):
                spec = self._graph.node(mount).mount
                if spec and any(node.id in leaves for leaves in spec.exits.values()):
                    self._told.left[mount] = output
        value = None if end.output is None else Value(json=msgspec.Raw(end.output), size=len(end.output))
        step = PastStep(node=node.id, visit=visit, outcome=end.outcome, output=value, error=end.error)
        for known in (self._past, self._completed) if end.outcome == "completed" else (self._past,):
            known.pop(node.id, None)
            known[node.id] = step
            if end.outcome == "completed" and node.spec.mount is not None:
                forget_within(node.id, known)

    def _follow(self, spec: NodeSpec, end: Ended) -> str | None:
        """The next node; None: the run has ended, as its last step did."""
        if end.outcome != "completed" and end.settled == "applied":
            self._told.status = "failed"
            return None
        try:
            following = route(
                spec, end.outcome, None if end.output is None else msgspec.json.decode(end.output)
            )
        except RoutingFailed as error:
            self._fail(plain_error("routing_failed", str(error), spec.id))
            return None
        if following is None:
            self._told.status = "timed_out" if end.outcome == "timed_out" else "failed"
            if end.outcome == "completed" or KINDS[spec.kind].notifies:
                self._told.status = "completed"
        return following

    def _fail(self, error: StepError) -> None:
        self._told.status, self._told.error, self._told.output = "failed", error, None

    # --- what a step gets -----------------------------------------------------------------------------------

    @property
    def _attempts(self) -> int:
        return len(self._told.steps)

    def _launch(self, node: NodeDef) -> Launch:
        return Launch(
            run_id=RUN_ID,
            generation=1,
            graph=self._graph,
            input=self._input,
            node=node.id,
            visit=self._visits[node.id],
            attempt=self._attempts + 1,
            root=str(self._root.resolve()),
        )

    def _context(self, node: NodeDef, tries: int, attempt: int) -> Context[Any]:
        visit = self._visits.get(node.id, 1)
        mode = None if node.effect is None else node.effect.mode
        seen = sight(
            self._flow.scopes,
            node.id,
            visit,
            entries=self._entries,
            input=self._input,
            past=self._past,
            completed=self._completed,
        )
        return Context(
            run_id=RUN_ID,
            node=seen.node,
            visit=seen.visit,
            attempt=attempt,
            tries=tries,
            input=seen.input,
            input_type=seen.scope.input_type,
            nodes=seen.scope.names,
            leaves=seen.scope.leaves,
            all_nodes=self._flow.nodes,
            past=seen.past,
            completed=seen.completed,
            read_value=lambda value: bytes(value.json or b"null"),
            effect_key=None if mode is None else effect_key(RUN_ID, node.id, visit),
            publish=publisher_of(node.id, self._publish) if node.kind in PUBLISHING_KINDS else None,
            read_file=self._read_file if self._graph.files else None,
            read_secret=self.secrets.get,
            make_effect=self._maker(node, visit) if mode == "parts" else None,
            settings=self._settings(seen.scope, attempt),
        )

    def _settings(self, scope: Scope, attempt: int) -> tuple[Any, bytes] | None:
        mount = self._graph.node(scope.mount).mount if scope.mount else None
        declared, spec = scope.settings, self._graph.settings if mount is None else mount.settings
        if declared is None or spec is None:
            return None
        given = (mount is None and self.settings) or (spec.initial.encode(),)
        return declared.decoded_type, given[min(attempt, len(given)) - 1]

    def _publish(self, kind: str, key: str, data: bytes) -> None:
        self._told.updates[kind, key] = msgspec.json.decode(self.secrets.masks.json(data))

    def _read_file(self, name: str) -> bytes:
        try:
            return (self._root / name).read_bytes()
        except OSError as error:
            raise NotFound(f"no file {name!r} in {self._root.resolve()}", hint="run(…, root=…)") from error

    # --- effects --------------------------------------------------------------------------------------------

    def _is_faked(self, node: NodeDef) -> bool:
        """Whether a value stands in for the node's function. One that makes its effects one by one runs itself."""
        if node.effect is None or node.id in self.real:
            return False
        if node.id not in self.fakes and node.effect.mode != "parts":
            raise Unfaked(
                f"node {node.id!r} has the effect {node.effect.type!r}: give effects={{{node.id!r}: …}}, "
                f"or real=[{node.id!r}]"
            )
        return node.id in self.fakes

    def _faked(self, node: NodeDef) -> NodeDef:
        """The node with a function that gives what the test says; a command has then printed it."""

        def fake(ctx: Any) -> Any:
            value = self._given(node.id, self.fakes[node.id], ctx)
            if node.shell is None or isinstance(value, ShellResult):
                return value
            data = value if isinstance(value, bytes) else str(value).encode()
            return node.shell.result(node.shell.ok_exit_codes[0], Captured.of(data), Captured.of(b""))

        return dataclasses.replace(node, fn=fake, is_async=False)

    def _maker(self, node: NodeDef, visit: int) -> Callable[..., Any]:
        def effect(key: str, request: Any, *, apply: Callable[[Any, str], Any], **_: Any) -> Any:
            known = (node.id, visit, key)
            name = f"{node.id}/{key}"
            if known not in self._parts:
                if name in self.fakes:
                    self._parts[known] = self._given(name, self.fakes[name], request)
                elif node.id in self.real:
                    self._parts[known] = apply(request, effect_key(RUN_ID, node.id, visit, key))
                else:
                    self._unfaked = Unfaked(
                        f"effect {key!r} of node {node.id!r}: give effects={{{name!r}: …}}, or real=[{node.id!r}]"
                    )
                    raise self._unfaked
            return self._parts[known]

        return effect

    def _given(self, name: str, given: Any, argument: Any) -> Any:
        """What the test says, this time."""
        if isinstance(given, Each):
            count = self._uses[name] = self._uses.get(name, 0) + 1
            given = given.values[min(count, len(given.values)) - 1]
        if isinstance(given, BaseException) or (isinstance(given, type) and issubclass(given, BaseException)):
            raise given
        return given(argument) if callable(given) else given


__all__ = ["NO_ANSWER", "Asked", "Each", "Tested", "TestedStep", "Unfaked", "each", "run"]
