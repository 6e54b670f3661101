"""A store with a clock, and everything that happens to runs, as short calls: no process, no workflow code.

`World.do` runs one command in a transaction of its own, and then `verify`, which must be clean: the rules hold
after every committed command, not only at the end. `Runner` speaks for the process of one generation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from pwf.protocol.graph import Case, EffectSpec, NodeSpec, RetrySpec, Way, WorkflowDefinition, WorkflowGraph
from pwf.protocol.kinds import KINDS
from pwf.protocol.runner import (
    Ask,
    BeginPart,
    Finish,
    Sequenced,
    SettlePart,
    StepError,
    Value,
    WaitUntil,
)
from pwf.protocol.spawn import Identity
from pwf.protocol.views import RunView
from pwf.store.batch import Job
from pwf.store.control import Control, cancel, pause, resume
from pwf.store.custody import runner_gone
from pwf.store.definitions import SaveDefinition, save_definition
from pwf.store.effects import ResolveEffect, resolve_effect
from pwf.store.entity_kinds import RunnerGone
from pwf.store.explain import Load
from pwf.store.launch import Launched, LaunchTerms, Parked, RunnerStarted, runner_started
from pwf.store.once import Done
from pwf.store.queue import Admit, Admitted, AdmittedRun, admit, rebase
from pwf.store.read_runs import RunQuery, run_summary, run_view
from pwf.store.receipts import ReceiptKey
from pwf.store.requests import AnswerRequest, answer
from pwf.store.runners import Current, Fence
from pwf.store.runs import RunEnvironment, StartRun, start_run
from pwf.store.step_parts import PartCall, part_call
from pwf.store.transitions import Applied, RunnerMessages, apply_messages
from pwf.store.verify import broken_rules, verify
from pwf.values import canonical, digest
from tests.store import arrows
from tests.store.arrows import Arrow
from tests.store.support import HandClock, make_spec

ENVIRONMENT = RunEnvironment(root="/project", interpreter="/usr/bin/python3", python="3.11", pwf="0.1.0")
IDEMPOTENT = EffectSpec(mode="idempotent", type="write")
MANUAL = EffectSpec(mode="manual", type="send")
OBSERVED = EffectSpec(mode="manual", type="send", observable=True)
PARTS = EffectSpec(mode="parts", type="send")

_pids = itertools.count(1000)


# --- graphs ---------------------------------------------------------------------------------------------------


def node(
    name: str,
    kind: str = "compute",
    *,
    to: str | None = None,
    on: dict[str, str] | None = None,
    cases: dict[Any, str] | None = None,
    field: str | None = None,
    **more: Any,
) -> NodeSpec:
    """A node: `to` after completed, or `cases` on its output (or its `field`); `on`: outcome -> node."""
    ways = [Way(outcome=outcome, target=target) for outcome, target in (on or {}).items()]  # type: ignore[arg-type]
    if to is not None:
        ways.append(Way(outcome="completed", target=to))
    if cases is not None:
        arms = tuple(Case(value=value, target=target) for value, target in cases.items())
        ways.append(Way(outcome="completed", on=field, cases=arms))
    return NodeSpec(id=name, kind=kind, ways=tuple(ways), **more)  # type: ignore[arg-type]


def graph(*nodes: NodeSpec, name: str = "flow", **more: Any) -> WorkflowGraph:
    """A workflow that starts at its first node."""
    return WorkflowGraph(name=name, start=nodes[0].id, nodes=nodes, **more)


def linear(count: int = 3, kind: str = "compute", **more: Any) -> WorkflowGraph:
    """a -> b -> c …, all of one kind."""
    names = [chr(ord("a") + index) for index in range(count)]
    following = [*names[1:], None]
    return graph(*(node(name, kind, to=to, **more) for name, to in zip(names, following, strict=True)))


def retry(times: int, backoff_ms: int = 1_000) -> RetrySpec:
    return RetrySpec(times=times, backoff_ms=backoff_ms)


def value(data: object) -> Value:
    encoded = canonical(data)
    return Value(json=msgspec.Raw(encoded), size=len(encoded))


def error(message: str = "it broke", code: str = "node_failed") -> StepError:
    return StepError(code=code, message=message)


# --- the world ------------------------------------------------------------------------------------------------


class World:
    """One database, one daemon (`epoch`), and a clock that the test moves."""

    def __init__(self, folder: Path, clock: HandClock | None = None) -> None:
        self.clock = clock or HandClock()
        self.spec = make_spec(folder, clock=self.clock)
        self.writer = self.spec.writer()
        self.epoch = 1
        self.root = "/project"
        self.checked = True
        self.tampered = False
        self.arrows: set[Arrow] = set()
        self.read(arrows.record, None)

    def close(self) -> None:
        """The rules have held after each command; that no page and no value is damaged is looked at once, here."""
        try:
            if self.checked and not self.tampered:
                self.check()
        finally:
            self.writer.close()

    def do(self, handler: Any, command: Any = None) -> Any:
        """One command. Its result, with a receipt's wrapping taken off; or raises its error, or its refusal."""
        result = self.done(handler, command)
        return result.unwrap() if isinstance(result, Done) else result

    def done(self, handler: Any, command: Any = None) -> Any:
        """One command's plain result; a `Done` keeps its refusal and `adopted`."""
        answered = self.writer.run([Job(handler, command)]).answers[0]
        self.follow()
        if self.checked:
            assert (broken := self.violations(broken_rules)) == [], broken
        if answered.error is not None:
            raise answered.error
        return answered.value

    def read(self, handler: Any, query: Any) -> Any:
        """A look: nothing to verify afterwards."""
        answered = self.writer.run([Job(handler, query)]).answers[0]
        if answered.error is not None:
            raise answered.error
        return answered.value

    def follow(self) -> None:
        """Whatever the last command did to runs, docs/states.md draws it."""
        taken = self.read(arrows.take, None)
        assert taken <= arrows.drawn(), f"docs/states.md does not draw {sorted(taken - arrows.drawn())}"
        self.arrows |= taken

    def check(self) -> None:
        violations = self.violations()
        assert violations == [], violations

    def violations(self, look: Any = verify) -> list[tuple[str, str | None]]:
        """(rule, run) of everything that `verify` finds, or `broken_rules` alone."""
        found = self.writer.run([Job(look, self.epoch)]).answers[0]
        assert found.error is None, found.error
        violations = found.value.violations if look is verify else found.value
        return [(violation.rule, violation.run_id) for violation in violations]

    def sql(self, text: str, params: dict[str, object] | None = None) -> list[tuple[Any, ...]]:
        """Rows, or a change behind everybody's back."""

        self.tampered |= not text.lstrip().upper().startswith("SELECT")
        rows = self.read(lambda tx, _: tx.all(text, params), None)
        self.read(arrows.take, None)  # what is changed behind everybody's back is nobody's move
        return rows  # type: ignore[no-any-return]

    # --- starting ---

    def code(self, flow: WorkflowGraph) -> SaveDefinition:
        """What a run of it executes."""
        definition_id = digest(canonical(flow))
        definition = WorkflowDefinition(definition_id=definition_id, graph=flow, root=self.root, sources=())
        return SaveDefinition(definition=definition, path=f"/project/{flow.name}.py", texts={})

    def define(self, flow: WorkflowGraph) -> str:
        """Save a definition; its id."""
        self.do(save_definition, self.code(flow))
        return digest(canonical(flow))

    def start(self, flow: WorkflowGraph, *, input: object = None, **more: Any) -> str:
        """A new run; its id."""
        return str(self.do(start_run, self.start_command(flow, input=input, **more)).run_id)

    def start_command(self, flow: WorkflowGraph, *, input: object = None, **more: Any) -> StartRun:
        facts = {
            "code": self.code(flow),
            "environment": ENVIRONMENT,
            "input": canonical(input),
        }
        return StartRun(**(facts | more))

    # --- running ---

    def admit(self, limit: int = 4) -> tuple[AdmittedRun, ...]:
        return self.admission(limit).runs

    def admission(self, limit: int = 4, **more: Any) -> Admitted:
        owner = f"daemon:{self.epoch}"
        command = Admit(limit=limit, epoch=self.epoch, owner=owner, lease_ms=30_000, **more)
        return self.do(admit, command)  # type: ignore[no-any-return]

    def launch(self, run_id: str | None = None) -> Runner:
        """Admit the next run (`run_id` says which one it must be) and tell its runner to begin."""
        runs = self.admit(1)
        assert runs, self.why(run_id) if run_id else "nothing was admitted"
        assert run_id is None or runs[0].run_id == run_id, (runs[0].run_id, run_id)
        runner = Runner(self, runs[0])
        runner.begin()
        return runner

    def run(self, flow: WorkflowGraph, **more: Any) -> Runner:
        """Start and launch."""
        return self.launch(self.start(flow, **more))

    def asking(self, flow: WorkflowGraph, prompt: object = "ok?", **more: Any) -> str:
        """A run whose first node asks, and whose process has left; its id."""
        runner = self.run(flow)
        kind = KINDS[flow.nodes[0].kind].asks
        assert kind is not None
        assert runner.ask(prompt, kind, **more) == "park"
        runner.leave()
        return runner.run_id

    def rebase(self) -> int:
        return int(self.do(rebase, None))

    def reboot(self, *, away_ms: int = 60_000) -> None:
        """Another boot: the clocks of this one begin anew."""
        self.clock.wall_ms += away_ms
        self.clock.elapsed_ms = self.clock.awake_ms = 5_000
        self.clock.boot_id += "'"

    # --- people ---

    def pause(self, run_id: str, **more: Any) -> Any:
        return self.do(pause, Control(run_id=run_id, actor="client:ann", **more))

    def resume(self, run_id: str, **more: Any) -> Any:
        return self.do(resume, Control(run_id=run_id, actor="client:ann", **more))

    def cancel(self, run_id: str, **more: Any) -> Any:
        return self.do(cancel, Control(run_id=run_id, actor="client:ann", **more))

    def answer(self, run_id: str, data: object, **more: Any) -> Any:
        return self.do(answer, self.answer_command(self.request_of(run_id), data, **more))

    def answer_command(self, request_id: str, data: object, **more: Any) -> AnswerRequest:
        facts: dict[str, Any] = {"actor": "client:ann"}
        return AnswerRequest(request_id=request_id, answer=canonical(data), **(facts | more))

    def recover(self, run_id: str, verdict: str, output: object = None, **more: Any) -> Any:
        command = ResolveEffect(run_id=run_id, verdict=verdict, output=canonical(output), **more)
        return self.do(resolve_effect, command)

    def request_of(self, run_id: str) -> str:
        """The newest request of a run."""
        rows = self.sql(
            "SELECT request_id FROM requests WHERE run_id = :run ORDER BY attempt DESC", {"run": run_id}
        )
        return str(rows[0][0])

    # --- looking ---

    def view(self, run_id: str, **load: Any) -> RunView:
        query = RunQuery(run_id=run_id, load=Load(**load))
        return self.read(run_view, query)  # type: ignore[no-any-return]

    def status(self, run_id: str) -> str:
        return str(self.read(run_summary, RunQuery(run_id=run_id)).summary.status)

    def why(self, run_id: str, **load: Any) -> Any:
        """The one reason."""
        return self.read(run_summary, RunQuery(run_id=run_id, load=Load(**load))).explanation

    def trail(self, run_id: str) -> list[str]:
        """Every attempt: "node.visit outcome"."""
        rows = self.sql(
            "SELECT a.node || '.' || a.visit || ' ' || a.status FROM attempts a JOIN runs USING (run_no)"
            " WHERE run_id = :run ORDER BY attempt",
            {"run": run_id},
        )
        return [row[0] for row in rows]

    def effects(self, run_id: str) -> list[tuple[str, int, str, int]]:
        """(node, visit, status, times begun) of every ledger row."""
        return self.sql(
            "SELECT e.node, e.visit, e.status, e.attempts FROM effects e JOIN runs ON run_no = entity_no"
            " WHERE run_id = :run ORDER BY e.node, e.visit",
            {"run": run_id},
        )  # type: ignore[return-value]

    def row(self, run_id: str) -> dict[str, Any]:
        """The run's row with its entity's counters."""
        names = [
            "status",
            "hold",
            "pause_requested",
            "node",
            "visit",
            "steps",
            "attempts",
            "tries",
            "failures",
            "crashes",
            "observe",
            "seq",
        ]
        names += ["due_wall_ms", "reason", "revision", "generation", "lease_token"]
        found = self.sql(
            f"SELECT {', '.join(names)} FROM runs JOIN entities ON entity_no = run_no WHERE run_id = :run",
            {"run": run_id},
        )
        return dict(zip(names, found[0], strict=True))

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything there is, for "nothing has changed"."""
        tables = [row[0] for row in self.sql("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {table: self.sql(f"SELECT * FROM {table}") for table in sorted(tables)}


# --- a runner -------------------------------------------------------------------------------------------------


class Runner:
    """The process of one generation, as the store sees it. Messages number themselves."""

    def __init__(self, world: World, admission: AdmittedRun) -> None:
        self.world = world
        self.admission = admission
        self.run_id = admission.run_id
        self.fence = Fence(
            run_id=admission.run_id,
            entity_no=admission.entity_no,
            generation=admission.generation,
            token=admission.token,
        )
        self.launched: Launched | None = None
        self.attempt = 0
        self.seq = 0
        self.drain = False
        self.stays = False  # with what it says next
        self.current: Current | None = None

    @property
    def launch(self) -> Any:
        """What the process was told."""
        assert self.launched is not None
        return self.launched.launch

    def begin(self, terms: LaunchTerms | None = None) -> Launched | Parked:
        pid = next(_pids)
        identity = Identity(pid=pid, start_tick=pid * 10, boot_id=self.world.clock.boot_id, session=pid)
        started = RunnerStarted(fence=self.fence, identity=identity, terms=terms or LaunchTerms())
        answered = self.world.do(runner_started, started)
        if isinstance(answered, Launched):
            self.launched, self.current = answered, answered.current
            self.attempt = answered.current.attempt
        return answered  # type: ignore[no-any-return]

    def make(self, kind: type[Any], /, **facts: Any) -> Any:
        """The next message, not sent yet."""
        self.seq += 1
        if kind is Ask:  # as a runner does whose function says nothing else
            asking = [node for node in self.launch.graph.nodes if KINDS[node.kind].asks == facts["kind"]]
            facts.setdefault("default", asking[0].default if asking else None)
        return kind(seq=self.seq, attempt=facts.pop("attempt", self.attempt), **facts)

    def finished(self, data: object = None, *, to: str | None = None, **more: Any) -> Finish:
        """A Finish of this attempt (completed with `data`); the next message is about the attempt after it."""
        outcome = more.setdefault("outcome", "completed")
        if outcome == "completed":
            more.setdefault("output", value(data))
        else:
            more.setdefault("error", error())
        message: Finish = self.make(Finish, next=to, **more)
        self.attempt += 1
        return message

    def send(self, *messages: Sequenced) -> list[str]:
        """The verdicts."""
        return [reply.verdict for reply in self.apply(messages).replies]

    def apply(self, messages: Iterable[Sequenced], **more: Any) -> Applied:
        facts = {"drain": self.drain, "stays": self.stays, **more}
        command = RunnerMessages(fence=self.fence, messages=tuple(messages), **facts)
        applied: Applied = self.world.do(apply_messages, command)
        self.current = applied.current
        return applied

    def finish(self, data: object = None, *, to: str | None = None, **more: Any) -> str:
        return self.send(self.finished(data, to=to, **more))[0]

    def fail(self, message: str = "it broke", **more: Any) -> str:
        return self.finish(outcome="failed", error=error(message), **more)

    def part(self, part: str, request: object = 1, **facts: Any) -> Any:
        """Begin an effect in mid-step; the answer."""
        facts = {"kind": "send", "mode": "manual", "observable": True, "attempt": self.attempt} | facts
        return self._call(BeginPart(part=part, request=value(request), **facts))

    def settle(self, part: str, status: str = "applied", **facts: Any) -> Any:
        """Say what became of one."""
        facts = {"attempt": self.attempt} | facts
        if status == "applied" and "error" not in facts:
            facts.setdefault("output", value(part))
        return self._call(SettlePart(part=part, status=status, **facts))

    def _call(self, call: BeginPart | SettlePart) -> Any:
        return self.world.do(part_call, PartCall(fence=self.fence, call=call))

    def ask(self, prompt: object = "ok?", kind: str = "checkpoint", **more: Any) -> str:
        return self.send(self.make(Ask, kind=kind, prompt=value(prompt), **more))[0]

    def wait(self, **time: int) -> str:
        return self.send(self.make(WaitUntil, **time))[0]

    def gone(self, *, proved: bool = True, **more: Any) -> None:
        """The process has ended (`timed_out`, `stopped`: by us)."""
        command = RunnerGone(
            entity_no=self.fence.entity_no,
            kind="run",
            name=self.run_id,
            generation=self.fence.generation,
            proved=proved,
            **more,
        )
        self.world.do(runner_gone, command)

    def die(self, how: str = "SIGSEGV", **more: Any) -> None:
        """The step has ended its own process."""
        self.gone(died=True, error=error(how, "runner_crashed"), **more)

    def leave(self) -> None:
        """Exit as told, after the last answer."""
        self.gone()


def key(name: str = "k1", operation: str = "run.start", payload: str = "p1") -> ReceiptKey:
    return ReceiptKey(scope_key=name, operation=operation, payload_digest=payload)
