"""The runner: one process that executes one generation of a run, and proposes each step's end to the daemon.

Owns: the position while this generation lasts. Promises: nothing but a pure node starts before every
earlier transition is acknowledged; after any reply but `go` nothing more runs; when it leaves, no process
of its own is left, or it does not claim so. Its last word needs no answer: nothing here would come of it. If it
dies: the daemon goes on from the last committed transition.

A plain blocking loop. Starting an event loop costs more than a whole run of one step may take, so only
async functions get one, for themselves.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from pwf import host
from pwf.errors import GraphError, NotFound
from pwf.protocol.graph import NodeSpec, RoutingFailed, route
from pwf.protocol.kinds import KINDS, PUBLISHING_KINDS, PURE_KINDS
from pwf.protocol.mounts import enter, exceeds, mounts_of
from pwf.protocol.runner import (
    Ask,
    Finish,
    Judged,
    Launch,
    PastStep,
    StepError,
    Titled,
    Value,
    WaitUntil,
    effect_key,
)
from pwf.runner.base import limits
from pwf.runner.base.failure import plain_error
from pwf.runner.base.parts import Parts
from pwf.runner.base.printed import Printed
from pwf.runner.base.secrets import Secrets
from pwf.runner.base.steps import End, Ended, Question, Step, Timer
from pwf.runner.base.surroundings import Surroundings
from pwf.runner.base.survivors import WAIT_S, Survivors
from pwf.runner.base.wire import DaemonGone, ValueReader, Wire
from pwf.runner.kinds import RUN, observe
from pwf.values import shortened
from pwf.workflow.context import Context
from pwf.workflow.scopes import ROOT, Scope, forget_within, publisher_of, sight
from pwf.workflow.workflow import Workflow

if TYPE_CHECKING:
    from pwf.runner.base.updates import Updates

HELD_TIMEOUT_MS_MIN = 60_000
FILES_NAMED_CHARS = 500


class Engine:
    """The loop over nodes. Speaks to the daemon through `wire` only, so that a test can be the daemon."""

    def __init__(
        self,
        wire: Wire,
        values: ValueReader,
        workflow: Workflow[Any],
        launch: Launch,
        printed: Printed | None = None,
        survivors: Survivors | None = None,
    ) -> None:
        self._wire = wire
        self._survivors = survivors
        self._printed = printed
        self._values = values
        self._secrets = Secrets(values, launch.graph.secrets)
        if printed is not None:
            printed.take_out(self._secrets.masks)
        self._workflow = workflow
        self._launch = launch
        self._pid = os.getpid()
        self._specs = {spec.id: spec for spec in launch.graph.nodes}
        self._updates: Updates | None = None
        self._entries = dict(launch.entries)
        self._past: dict[str, PastStep] = {}
        self._completed: dict[str, PastStep] = {}
        for step in launch.past:
            self._remember(step)
        self._visits = {launch.node: launch.visit, **launch.visits}
        self._made: tuple[str, bytes] = ("", b"")  # the last larger output of this runner, by digest
        self._surroundings = Surroundings()
        self.stained = ""  # what of this run no further one may have in its process
        # The position, and what holds for it alone.
        self._node = launch.node
        self._visit = launch.visit
        self._attempt = launch.attempt
        self._steps_taken = launch.steps_taken
        self._observe = launch.observe
        self._settings = launch.settings  # as this attempt sees them

    def run(self) -> None:
        """Run nodes until the run parks, ends, or is no longer ours. The last transition may still be held."""
        if self._launch.graph.titled and self._launch.wants_title:
            title = self._make_title()
            self._surroundings.restore(self._node)
            if title is not None:
                self._wire.send(Titled(title=title))
        while self._ready():
            step = self._step()
            if self._printed is not None:
                self._printed.begin(self._attempt)
            end = self._secrets.without(self._execute(step))
            if isinstance(end, Ended) and end.outcome != "completed":
                self.stained = f"step {self._node!r} {end.outcome.replace('_', ' ')}"
            self._settle(step)
            if self._secrets.masks:
                self.stained = "it was told a secret"
                step.survivors = self._secrets.without_in(step.survivors)
            with limits.Lifted():  # the limit is the steps', not ours
                going_on = self._propose(step, end)
            if not going_on:
                break

    def judge(self, submitted: Value) -> Judged:
        """An errand, in place of `run`: what the position's node says to what was submitted for it."""
        from pwf.runner.base.judging import judge_alone, judge_settings  # which errands alone need

        if self._launch.judges_settings:
            scope = self._workflow.scopes[self._launch.judges_scope]
            return judge_settings(scope.settings, self._read_value(submitted))
        step = self._step()
        try:
            return judge_alone(step, self._read_value(submitted))
        finally:
            if os.getpid() != self._pid:
                os._exit(1)  # as in `_execute`

    def _settle(self, step: Step) -> None:
        """What the step leaves besides its end: processes, its surroundings, its updates, what it printed."""
        if self._survivors is not None and host.has_children():
            step.survivors += self._survivors.end(min(WAIT_S, max(0.0, step.remaining_s)))
            if step.survivors:
                self.stained = f"step {step.node.id!r} left a process behind"
        if self._printed is not None:
            step.printed_bytes = self._printed.end()  # whose files are not the step's to have left open
        if self._surroundings.restore(step.node.id) and self._printed is not None:
            step.printed_bytes = self._printed.end()  # with what was said of it here
        if self._updates is not None:
            self._updates.flush()

    def _ready(self) -> bool:
        """Whether the node at the position may start."""
        pure = self._specs[self._node].kind in PURE_KINDS
        if pure and self._steps_taken < self._launch.graph.max_steps and not self._is_spent():
            return self._wire.drain()
        return self._wire.settle()

    def _is_spent(self) -> bool:
        """Whether an included workflow has taken more steps than it may, which the daemon ends."""
        for mount in mounts_of(self._node):
            spec = self._specs[mount].mount
            if spec and exceeds(self._entries, self._visits, mount, spec.max_steps, self._steps_taken + 1):
                return True
        return False

    def _step(self) -> Step:
        node = self._workflow.nodes.get(self._node)
        if node is None:
            raise GraphError(f"the code of workflow {self._launch.graph.name!r} has no node {self._node!r}")
        parts = self._parts(self._specs[self._node])
        self._settings = self._wire.settings or self._launch.settings
        context = self._context(self._node, node.kind in PUBLISHING_KINDS, parts)
        return Step(node, context, self._launch, parts, self._printed, tell=self._wire.send)

    def _parts(self, spec: NodeSpec) -> Parts | None:
        if spec.effect is None or spec.effect.mode != "parts":
            return None
        key_of = functools.partial(effect_key, self._outside_name, spec.id, self._visit)
        return Parts(
            self._values, self._attempt, spec, key_of, self._launch.value_bytes_max, self._secrets.masks
        )

    @property
    def _outside_name(self) -> str:
        return self._launch.outside_name or self._launch.run_id

    def _execute(self, step: Step) -> End:
        try:
            if self._observe:
                self._observe = False
                answer = observe.run(step)
                if answer is not None:
                    return answer
            end = RUN[step.node.kind](step)
            if step.parts is not None and (unsure := step.parts.unsure) is not None:
                return Ended(outcome="failed", error=unsure, settled="unknown", observed=True)
            return end
        finally:
            if os.getpid() != self._pid:
                os._exit(1)  # a fork that the step made and let return: only one process speaks for the run

    # --- proposing ------------------------------------------------------------------------------------------

    def _propose(self, step: Step, end: End) -> bool:
        """Send what happened. True when there is a next node, which is the position then."""
        if isinstance(end, Timer):
            seq = self._wire.take_seq()
            due = end.due
            self._wire.send_sequenced(
                WaitUntil(
                    seq=seq,
                    attempt=self._attempt,
                    delay_ms=due.delay_ms,
                    wall_ms=due.wall_ms,
                    active_ms=step.active_ms,
                    printed=step.printed_bytes,
                    survivors=step.survivors,
                ),
                seq,
                hold=True,
            )
            return False
        if isinstance(end, Question):
            self._ask(step, end)
            return False
        return self._finish(step, end)

    def _ask(self, step: Step, question: Question) -> None:
        prompt = self._wire.put(question.prompt)
        if self._wire.stop is not None:
            return
        kind = KINDS[step.node.kind].asks
        assert kind is not None  # or its function makes no question
        seq = self._wire.take_seq()
        ask = Ask(
            seq=seq,
            attempt=self._attempt,
            kind=kind,
            prompt=prompt,
            schema=self._specs[self._node].returns,
            subject=None if question.subject is None else Value(json=msgspec.Raw(question.subject)),
            timeout_ms=question.open_ms,
            default=question.default,
            active_ms=step.active_ms,
            printed=step.printed_bytes,
            survivors=step.survivors,
        )
        self._wire.send_sequenced(ask, seq, hold=True)

    def _finish(self, step: Step, end: Ended) -> bool:
        output = self._wire.put(end.output) if end.output is not None else None
        if self._wire.stop is not None:
            return False
        following, route_error = self._follow(end)
        seq = self._wire.take_seq()
        finish = Finish(
            seq=seq,
            attempt=self._attempt,
            outcome=end.outcome,
            output=output,
            error=end.error,
            next=following,
            route_error=route_error,
            settled=end.settled,
            observed=end.observed,
            effect_ref=end.effect_ref,
            limited=end.limited,
            settings=0 if self._settings is None else self._settings.change,
            active_ms=step.active_ms,
            printed=step.printed_bytes,
            survivors=step.survivors,
        )
        self._wire.send_sequenced(finish, seq, hold=self._may_hold(end, following))
        # A failed try may be tried again, which the daemon decides: never go past one without its word.
        if following is None or (end.outcome != "completed" and not self._wire.settle()):
            return False
        self._move(following, end, output)
        return True

    def _may_hold(self, end: Ended, following: str | None) -> bool:
        """Whether the end of this step may be told a moment later: after the next one has begun, or with `Leaving`.

        Until then the daemon takes this step for the one that runs. So not where it would soon end it for its time,
        which a step that never lets go of the interpreter could bring about; and neither after an interruption, nor
        where tries are counted, so that the step that takes its process with it is the one that is blamed.
        """
        here = self._specs[self._node]
        if following is None:
            return here.kind in PURE_KINDS
        if end.outcome != "completed" or self._launch.tries > 1:
            return False
        return _may_wait(here) and _may_wait(self._specs[following])

    def _follow(self, end: Ended) -> tuple[str | None, StepError | None]:
        """The node that the run should enter. A failed effect has a way out only if it surely did not happen."""
        spec = self._specs[self._node]
        if end.outcome != "completed" and end.settled in ("unknown", "applied"):
            return None, None
        try:
            return route(spec, end.outcome, self._switched(spec, end)), None
        except RoutingFailed as error:
            return None, plain_error("routing_failed", str(error), self._node)

    def _switched(self, spec: NodeSpec, end: Ended) -> object:
        way = spec.way(end.outcome)
        return msgspec.json.decode(end.output) if way is not None and way.cases and end.output else None

    def _move(self, following: str, end: Ended, output: Value | None) -> None:
        if output is not None and output.digest is not None and end.output is not None:
            self._made = (output.digest, end.output)
        self._remember(
            PastStep(node=self._node, visit=self._visit, outcome=end.outcome, output=output, error=end.error)
        )
        self._node = following
        self._visit = self._visits.get(following, 0) + 1
        self._visits[following] = self._visit
        if self._specs[following].mount is not None:
            enter(self._entries, self._visits, following)
        self._attempt += 1
        self._steps_taken += 1

    def _remember(self, step: PastStep) -> None:
        # Both mappings are in the order of the steps' ends.
        self._past.pop(step.node, None)
        self._past[step.node] = step
        if step.outcome == "completed":
            self._completed.pop(step.node, None)
            self._completed[step.node] = step
            spec = self._specs.get(step.node)  # a fork may have results of nodes that are there no more
            if spec is not None and spec.mount is not None:
                forget_within(step.node, self._past)
                forget_within(step.node, self._completed)

    # --- what a node may see --------------------------------------------------------------------------------

    def _context(self, node: str, publishes: bool, parts: Parts | None = None) -> Context[Any]:
        has_effect = self._specs[node].effect is not None
        seen = sight(
            self._workflow.scopes,
            node,
            self._visit,
            entries=self._entries,
            input=self._launch.input,
            past=self._past,
            completed=self._completed,
        )
        return Context(
            run_id=self._launch.run_id,
            node=seen.node,
            visit=seen.visit,
            attempt=self._attempt,
            tries=self._launch.tries if self._attempt == self._launch.attempt else 1,
            input=seen.input,
            input_type=seen.scope.input_type,
            nodes=seen.scope.names,
            leaves=seen.scope.leaves,
            all_nodes=self._workflow.nodes,
            past=seen.past,
            completed=seen.completed,
            read_value=self._read_value,
            effect_key=effect_key(self._outside_name, node, self._visit) if has_effect else None,
            publish=self._publisher(node) if publishes else None,
            read_file=self._read_file if self._launch.graph.files else None,
            read_secret=self._secrets.get,
            make_effect=None if parts is None else parts.effect,
            settings=self._declared(seen.scope),
        )

    def _declared(self, scope: Scope) -> tuple[Any, bytes] | None:
        """The settings of the workflow that the node stands in; an included one has its own at each entry."""
        declared, copy = scope.settings, self._settings
        if declared is None or copy is None:
            return None
        if scope.mount == ROOT:
            return declared.decoded_type, bytes(copy.value)
        changed = copy.scopes.get(scope.mount)
        if changed is not None and changed.entry == self._completed[scope.mount].visit:
            return declared.decoded_type, bytes(changed.value)
        mount = self._specs[scope.mount].mount
        assert mount is not None
        assert mount.settings is not None  # as its code declares them
        return declared.decoded_type, mount.settings.initial.encode()

    def _publisher(self, node: str) -> Callable[[str, str, bytes], None]:
        from pwf.runner.base.updates import Updates  # which pure nodes can do without

        updates = self._updates = self._updates or Updates(
            self._wire, self._launch.updates, self._secrets.masks
        )
        return publisher_of(node, functools.partial(updates.publish, self._attempt))

    def _read_value(self, value: Value) -> bytes:
        digest, data = self._made
        if value.digest is not None and value.digest == digest:
            return data
        return self._values.fetch(value, f"a value of run {self._launch.run_id}")

    def _read_file(self, name: str) -> bytes:
        value = self._launch.files.get(name)
        if value is None:
            known = shortened(", ".join(sorted(self._launch.files)), FILES_NAMED_CHARS) or "none"
            raise NotFound(
                f"no pinned file {name!r}; pinned are: {known}", hint="name it in Workflow(files=[…])"
            )
        return self._values.fetch(value, f"the pinned file {name!r}")

    def _make_title(self) -> str | None:
        """The run's title. It is only for people: one that can't be made is left out."""
        try:
            title = self._workflow.title_of(self._context(self._launch.graph.start, publishes=False))
            return None if title is None else self._secrets.masks.text(title)
        except DaemonGone:
            raise
        except BaseException:  # noqa: BLE001 - user code: `title`
            return None


def _may_wait(spec: NodeSpec) -> bool:
    """Whether it is a pure node without `retry`, whose time limit, if it has one, is far off when it begins."""
    unhurried = spec.timeout_ms is None or spec.timeout_ms >= HELD_TIMEOUT_MS_MIN
    return spec.kind in PURE_KINDS and spec.retry is None and unhurried
