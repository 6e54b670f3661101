"""The engine in a crash lab: it ends at planned points, has stand-ins for effects, and watches pure functions.

Only `pwf crashlab` makes a runner use it, by the run's environment and a plan that names the runner's home
(pwf/protocol/crashlab.py). Promises: with stand-ins no effect function and no command is ever run, and a pure
function that would touch the outside is refused; each planned point is used once, whatever generation comes to it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import msgspec

from pwf.errors import PwfError
from pwf.protocol.agents import AgentCommand
from pwf.protocol.crashlab import (
    LAB_VARIABLE,
    LabFolder,
    LabPlan,
    LabRecord,
    Point,
    decode_plan,
    decode_record,
    encode_record,
)
from pwf.protocol.graph import NodeSpec
from pwf.protocol.kinds import KINDS
from pwf.protocol.runner import MARKER_VARIABLE, Launch
from pwf.runner.base.failure import bounded, plain_error
from pwf.runner.base.parts import Doer, Parts
from pwf.runner.base.printed import Printed
from pwf.runner.base.steps import (
    End,
    Ended,
    Question,
    Step,
    StepRaised,
    StepTimedOut,
    Timer,
    call,
    encode,
    failed,
)
from pwf.runner.base.survivors import Survivors
from pwf.runner.base.wire import ValueReader, Wire
from pwf.runner.engine import Engine
from pwf.runner.kinds import observe, shell
from pwf.runner.kinds.agent_port import Told
from pwf.runner.kinds.submissions import Submissions, is_verbatim
from pwf.runner.lab.watch import Watch
from pwf.values import canonical
from pwf.workflow.callables import is_async
from pwf.workflow.effects import Observation
from pwf.workflow.shell import Captured, ShellResult
from pwf.workflow.timing import Due
from pwf.workflow.workflow import Workflow

SHOWN_MAX = 300


def lab_of(launch: Launch) -> tuple[LabFolder, LabPlan] | None:
    """The lab that this runner's run belongs to; None for every run of a real home."""
    path = os.environ.get(LAB_VARIABLE)
    if not path:
        return None
    folder = LabFolder(path)
    try:
        plan = decode_plan(folder.plan(launch.run_id).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None
    home_id = os.environ.get(MARKER_VARIABLE, "").partition(":")[0]
    return (folder, plan) if plan.home_id == home_id else None


class LabEngine(Engine):
    """An engine that can be told to die, and does nothing outside unless asked."""

    def __init__(
        self,
        wire: Wire,
        values: ValueReader,
        workflow: Workflow[Any],
        launch: Launch,
        printed: Printed,
        lab: tuple[LabFolder, LabPlan],
    ) -> None:
        super().__init__(wire, values, workflow, launch, printed, Survivors())
        self._folder, self._plan = lab
        wire.hold_nothing()  # a point lies right behind what was told
        self._watch = Watch(refuse=self._plan.stand_ins)
        self._asking = msgspec.structs.replace(launch, agent=None)  # what an agent is told, without the agent

    def run(self) -> None:
        super().run()
        self._reach("left", self._node, self._visit)

    # --- points ---------------------------------------------------------------------------------------------

    def _reach(self, phase: str, node: str, visit: int, part: str = "") -> None:
        """Come to a point: if the plan says so, and for the first time, this is where it ends."""
        point = Point(node, visit, phase, part)
        if point not in self._plan.kills:
            return
        try:
            os.close(
                os.open(
                    self._folder.reached(self._launch.run_id, point), os.O_CREAT | os.O_EXCL | os.O_WRONLY
                )
            )
        except FileExistsError:
            return
        if self._plan.victim == "runner":
            os.kill(os.getpid(), signal.SIGKILL)
        while True:  # the lab kills the daemon, whose end ends this process
            time.sleep(1)

    def _note(self, kind: Any, step: Step, **facts: Any) -> None:
        self._note_at(kind, step.node.id, self._visit, step.ctx.attempt, **facts)

    def _note_at(self, kind: Any, node: str, visit: int, attempt: int, **facts: Any) -> None:
        record = LabRecord(
            run_id=self._launch.run_id, kind=kind, node=node, visit=visit, attempt=attempt, **facts
        )
        with open(self._folder.ledger, "ab", buffering=0) as file:  # one write: whole lines, from any process
            file.write(self._secrets.masks.json(encode_record(record)) + b"\n")

    # --- several effects ------------------------------------------------------------------------------------

    def _parts(self, spec: NodeSpec) -> Parts | None:
        made = super()._parts(spec)
        return None if made is None else LabParts(made, self)

    def come_to(self, phase: str, part: str) -> None:
        """A point around an effect in mid-step."""
        with self._watch.over(None):
            self._reach(phase, self._node, self._visit, part)

    def note_part(self, part: str, output: object) -> None:
        """An effect in mid-step has happened, or its stand-in has."""
        try:
            said = canonical(output)
        except PwfError:
            said = b"null"
        with self._watch.over(None):
            self._note_at(
                "effect", self._node, self._visit, self._attempt, part=part, output=msgspec.Raw(said)
            )

    def given_to(self, part: str) -> object:
        """What the stand-in of an effect in mid-step gives."""
        given = self._given(self._node, self._visit)
        return given.get(part) if isinstance(given, dict) else None

    def look_for(self, part: str) -> Observation:
        """A perfect `observe` of one."""
        with self._watch.over(None):
            return self._look(self._node, self._visit, part)

    @property
    def stands_in(self) -> bool:
        return self._plan.stand_ins

    # --- executing ------------------------------------------------------------------------------------------

    def _execute(self, step: Step) -> End:
        node, visit = self._node, self._visit
        self._reach("begun", node, visit)
        self._note("begun", step)
        end = self._effect(step) if step.node.effect is not None else self._pure(step)
        self._reach("done", node, visit)
        return end

    def _propose(self, step: Step, end: End) -> bool:
        node, visit = self._node, self._visit
        going_on = super()._propose(step, end)
        self._reach("reported", node, visit)
        return going_on

    def _pure(self, step: Step) -> End:
        again: End | None = None
        with self._watch.over(lambda what: self._note("touched", step, first=what)):
            end = super()._execute(replace(step, launch=self._asking))
            if self._plan.twice and not KINDS[step.node.kind].sets_timer:  # a time may well differ
                again = super()._execute(Step(step.node, self._context(self._node, False), self._asking))
        if again is not None:
            self._compare(step, _essence(end), _essence(again))
        if isinstance(end, Timer):
            return Timer(_shortened(end.due, self._plan.timer_ms))
        if isinstance(end, Question) and KINDS[step.node.kind].headless and self._launch.agent is not None:
            return self._agent(step, self._launch.agent)
        return end

    def _agent(self, step: Step, configured: AgentCommand) -> Ended:
        """What the stand-in of the run's own agent says, with a conversation, judged as that of any."""
        Told(configured, step).conversation(step.conversation or f"lab-{self._visit}")
        given = Submissions(step)
        said = self._given(step.node.id, self._visit)
        with self._watch.over(None):
            given.by_answer(said if isinstance(said, str) and is_verbatim(step) else canonical(said).decode())
        if given.accepted is None:
            return Ended(
                outcome="failed", error=plain_error("submission_rejected", given.why_not, step.node.id)
            )
        return Ended(outcome="completed", output=given.accepted)

    def _compare(self, step: Step, first: str, second: str) -> None:
        if first != second:
            self._note("varies", step, first=bounded(first, SHOWN_MAX), second=bounded(second, SHOWN_MAX))

    # --- effects --------------------------------------------------------------------------------------------

    def _effect(self, step: Step) -> End:
        if step.parts is not None:
            return self._several(step)
        if self._plan.stand_ins:
            return self._stand_in(step)
        end = super()._execute(step)
        if isinstance(end, Ended) and not end.observed and _happened(end):
            self._note("effect", step, output=msgspec.Raw(end.output or b"null"))
        return end

    def _several(self, step: Step) -> End:
        """The function runs, with a stand-in for each effect; what else it does may be done again at any time."""
        if not self._plan.stand_ins:
            return super()._execute(step)
        if step.node.shell is not None:
            return self._stand_in(step)
        with self._watch.over(lambda what: self._note("touched", step, first=what)):
            return super()._execute(step)

    def _stand_in(self, step: Step) -> End:
        """What the effect's stand-in does: it is noted in the ledger instead of being done."""
        if self._observe:
            self._observe = False
            observed = observe.run(replace_observe(step, self._look(step.node.id, self._visit)))
            if observed is not None:
                return observed
        try:
            end = self._stand_in_command(step) if step.node.shell is not None else self._give(step)
        except StepRaised as raised:
            return failed(step, raised.error, settled="rejected" if step.manual else None)
        except StepTimedOut as late:
            return failed(step, late, settled="rejected" if step.manual else None)
        if end.outcome == "completed":
            self._note("effect", step, output=msgspec.Raw(end.output or b"null"))
        return end

    def _look(self, node: str, visit: int, part: str = "") -> Observation:
        """A perfect `observe`: the ledger knows what its stand-in did."""
        for line in self._folder.ledger.read_bytes().splitlines():
            record = decode_record(line)
            found = (record.kind, record.run_id, record.node, record.visit, record.part)
            if found == ("effect", self._launch.run_id, node, visit, part):
                return Observation("applied", msgspec.json.decode(record.output))
        return Observation("not_applied")

    def _given(self, node: str, visit: int) -> object:
        outputs = self._plan.outputs.get(node, ())
        raw = outputs[min(visit, len(outputs)) - 1] if outputs else msgspec.Raw(b"null")
        return msgspec.json.decode(raw)

    def _give(self, step: Step) -> Ended:
        output = encode(step, self._given(step.node.id, self._visit))
        return Ended(outcome="completed", output=output, settled="applied" if step.manual else None)

    def _stand_in_command(self, step: Step) -> Ended:
        """The command is asked for, and compared, and not run."""
        with self._watch.over(lambda what: self._note("touched", step, first=what)):
            command = again = self._words(step)
            if self._plan.twice and step.parts is None:  # an effect is made once in an attempt
                again = self._words(Step(step.node, self._context(self._node, True), self._launch))
        self._compare(step, command, again)
        given = None if step.parts is not None else self._given(step.node.id, self._visit)
        result = _shell_result(
            step, given if isinstance(given, dict) else {} if given is None else {"parsed": given}
        )
        options = step.node.shell
        assert options is not None
        if result.exit_code not in options.ok_exit_codes:
            message = f"the stand-in's exit code is {result.exit_code}"
            return Ended(
                outcome="failed",
                error=plain_error("command_failed", message, step.node.id),
                settled="rejected" if step.manual else None,
            )
        output = encode(step, result)
        return Ended(outcome="completed", output=output, settled="applied" if step.manual else None)

    def _words(self, step: Step) -> str:
        command = shell.command_of(step, call(step, step.node.fn, step.node.is_async))
        own = {name: value for name, value in command.environment.items() if os.environ.get(name) != value}
        return repr((command.argv, command.cwd, sorted(own.items()), command.stdin))


class LabParts(Parts):
    """Effects in mid-step, each with points around it, and perhaps a stand-in."""

    def __init__(self, made: Parts, lab: LabEngine) -> None:
        self.__dict__.update(made.__dict__)
        self._lab = lab

    def effect(self, key: str, request: Any, *, apply: Doer, observe: Doer | None = None, **more: Any) -> Any:
        doing = self._doing_async(key, apply) if is_async(apply) else self._doing(key, apply)
        looks = observe
        if observe is not None and self._lab.stands_in:
            looks = lambda request, effect_key: self._lab.look_for(key)  # noqa: E731 - is shorter than a function
        made = super().effect(key, request, apply=doing, observe=looks, **more)
        if is_async(apply):
            return self._settled_async(key, made)
        self._lab.come_to("settled", key)
        return made

    async def _settled_async(self, key: str, made: Awaitable[Any]) -> Any:
        output = await made
        self._lab.come_to("settled", key)
        return output

    def _doing(self, key: str, apply: Doer) -> Doer:
        def do(request: Any, effect_key: str) -> object:
            self._lab.come_to("applying", key)
            output = self._lab.given_to(key) if self._lab.stands_in else apply(request, effect_key)
            return self._done(key, output)

        return do

    def _doing_async(self, key: str, apply: Doer) -> Doer:
        async def do(request: Any, effect_key: str) -> object:
            self._lab.come_to("applying", key)
            output = self._lab.given_to(key) if self._lab.stands_in else await apply(request, effect_key)
            return self._done(key, output)

        return do

    def _done(self, key: str, output: object) -> object:
        self._lab.note_part(key, output)
        self._lab.come_to("applied", key)
        return output


def replace_observe(step: Step, answer: Observation) -> Step:
    """The step with an `observe` that gives this answer; one without keeps none."""
    if step.node.observe is None:
        return step
    return replace(step, node=replace(step.node, observe=lambda ctx: answer, observe_is_async=False))


def _shell_result(step: Step, given: dict[str, Any]) -> ShellResult:
    """The result of a stand-in for a command: `exit_code`, `stdout`, `stderr` and `parsed` as the user gave them."""
    options = step.node.shell
    assert options is not None
    codes = options.ok_exit_codes
    default = 0 if 0 in codes else codes[0]
    stdout, stderr = (Captured(text=_captured(given.get(name, ""))) for name in ("stdout", "stderr"))
    exit_code = int(given.get("exit_code", default))
    if "parsed" in given:
        return ShellResult(
            exit_code=exit_code, stdout_captured=stdout, stderr_captured=stderr, parsed=given["parsed"]
        )
    try:
        return options.result(exit_code, stdout, stderr)
    except Exception:  # noqa: BLE001 - user code: `parse`, of an output that nobody gave
        return ShellResult(exit_code=exit_code, stdout_captured=stdout, stderr_captured=stderr)


def _captured(value: object) -> str:
    return str(value.get("text", "")) if isinstance(value, dict) else str(value)


def _happened(end: Ended) -> bool:
    return end.outcome == "completed" or end.settled in ("applied", "unknown")


def _essence(end: End) -> str:
    """What of an end has to be the same each time."""
    if isinstance(end, Question):
        return end.prompt.decode()
    if isinstance(end, Ended):
        return (end.output or b"").decode() or f"{end.outcome}: {end.error.message if end.error else ''}"
    return ""


def _shortened(due: Due, most_ms: int) -> Due:
    if due.delay_ms is not None and due.delay_ms <= most_ms:
        return due
    return Due(delay_ms=most_ms)


def engine_of(
    wire: Wire, values: ValueReader, workflow: Workflow[Any], launch: Launch, printed: Printed
) -> Engine:
    """The engine for this launch: a lab's own where there is one."""
    lab = lab_of(launch)
    if lab is None:
        return Engine(wire, values, workflow, launch, printed, Survivors())
    return LabEngine(wire, values, workflow, launch, printed, lab)
