"""One attempt, as the modules of the node kinds see it: `Step` in, `Ended`, `Timer` or `Question` out.

Calling the author's function is the one boundary where anything may be raised: `call` turns it into
`StepRaised` or `StepTimedOut`. Plain functions run here, on the main thread, and are timed out by the
daemon, which ends the process; async functions run under `trio.run`, and are timed out here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pwf.errors import PwfError
from pwf.protocol.agents import Limited
from pwf.protocol.kinds import Outcome
from pwf.protocol.runner import AgentReport, Launch, StepError
from pwf.protocol.survivors import Survivor
from pwf.runner.base import descendants, limits
from pwf.runner.base.failure import leaves, plain_error, step_error
from pwf.runner.base.output import refuse_large, refuse_unrun
from pwf.runner.base.parts import Parts, how_it_ended
from pwf.runner.base.printed import Printed
from pwf.runner.base.wire import DaemonGone
from pwf.workflow.context import Context
from pwf.workflow.nodes import NodeDef
from pwf.workflow.timing import Due

Settled = Literal["applied", "rejected", "unknown"]


class StepRaised(Exception):
    """The author's function raised `error`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class StepTimedOut(Exception):
    """The step's time was over. `error` is what its clean-up raised, if anything."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt ended. `output` is canonical JSON, set when it completed; else `error` is."""

    outcome: Outcome
    output: bytes | None = None
    error: StepError | None = None
    settled: Settled | None = None  # manual effects only
    observed: bool = False
    effect_ref: str | None = None
    limited: Limited | None = None


@dataclass(frozen=True, slots=True)
class Timer:
    """The run waits until this time."""

    due: Due


@dataclass(frozen=True, slots=True)
class Question:
    """The run waits for an answer. `prompt` is canonical JSON; so are `default`, and `subject`, of a decision."""

    prompt: bytes
    subject: bytes | None = None
    open_ms: int | None = None  # None: for ever
    default: str | None = None


End = Ended | Timer | Question


def _unheard(report: AgentReport) -> None:
    """Nobody wants to know: a step outside a run."""


@dataclass(slots=True)
class Step:
    """One attempt at a node. `launch` has the run's limits."""

    node: NodeDef
    ctx: Context[Any]
    launch: Launch
    parts: Parts | None = None  # where the node makes effects in mid-step
    printed: Printed | None = None
    printed_bytes: int = 0  # of all that it printed, what is kept; known at its end
    survivors: tuple[Survivor, ...] = ()  # processes that it left behind, and that were ended
    started: float = field(default_factory=time.monotonic)
    tell: Callable[[AgentReport], None] = _unheard

    @property
    def manual(self) -> bool:
        """Whether the effect must never be repeated blindly."""
        return self.node.effect is not None and self.node.effect.mode == "manual"

    @property
    def conversation(self) -> str | None:
        """That of an agent, which an earlier attempt had begun."""
        return self.launch.conversation if self.ctx.attempt == self.launch.attempt else None

    @property
    def remaining_s(self) -> float:
        """Seconds until the timeout; infinite where there is none."""
        if self.node.spec.timeout_ms is None:
            return math.inf
        return self.started + self.node.spec.timeout_ms / 1000 - time.monotonic()

    @property
    def active_ms(self) -> int:
        """How long the attempt has run, without the machine's sleep."""
        return int((time.monotonic() - self.started) * 1000)


def call(step: Step, fn: Callable[[Any], Any], is_async: bool) -> object:
    """Call a function of the author with ctx. Whatever it raises comes as `StepRaised` or `StepTimedOut`."""
    try:
        return _call_async(step, fn) if is_async else fn(step.ctx)
    except (DaemonGone, StepTimedOut):
        raise
    except BaseException as error:  # noqa: BLE001 - user code: sys.exit ends the step, not the runner
        raise StepRaised(error) from None


def encode(step: Step, value: object) -> bytes:
    """The output as canonical JSON, its size bounded before it is copied; `StepRaised` when it can't be."""
    what = f"the output of node {step.node.id!r}"
    limit = step.launch.value_bytes_max
    try:
        refuse_unrun(value, what)
        refuse_large(value, limit, what)
        return step.node.output_bytes(value, limit=limit)
    except (PwfError, MemoryError) as error:
        raise StepRaised(error) from None
    except Exception as error:  # noqa: BLE001 - user code: properties and hooks of the returned objects
        raise StepRaised(error) from None


def failed(
    step: Step, error: BaseException, *, settled: Settled | None = None, observed: bool = False
) -> Ended:
    """The outcome `failed`, with what the step raised."""
    if (earlier := how_it_ended(error)) is not None:
        return Ended(outcome=earlier[0], error=earlier[1], settled=settled, observed=observed)
    with limits.Lifted():
        report = _describe(step, error)
    return Ended(outcome="failed", error=report, settled=settled, observed=observed)


def timed_out(step: Step, late: StepTimedOut, *, settled: Settled | None = None) -> Ended:
    """The outcome `timed_out`, once no process that the step started is left."""
    descendants.end_all()
    message = f"node {step.node.id!r} took longer than its timeout of {_seconds(step.node.spec.timeout_ms)}"
    if late.error is None:
        report = plain_error("timed_out", message, step.node.id)
    else:
        report = step_error(
            late.error, step.node.id, code="timed_out", message=f"{message}; then its clean-up failed"
        )
    return Ended(outcome="timed_out", error=report, settled=settled)


def _describe(step: Step, error: BaseException) -> StepError:
    limit = step.launch.memory_bytes_max
    if limit is not None and any(isinstance(leaf, MemoryError) for leaf in leaves(error)):
        message = f"node {step.node.id!r} needed more memory than the limit of {limit:,} bytes"
        return step_error(error, step.node.id, code="memory_limit", message=message)
    if isinstance(error, PwfError) and error.code in ("invalid_value", "value_too_large"):
        return step_error(error, step.node.id, code=error.code)
    return step_error(error, step.node.id)


def _call_async(step: Step, fn: Callable[[Any], Any]) -> object:
    import trio

    return trio.run(_bounded, fn, step.ctx, step.remaining_s)


async def _bounded(fn: Callable[[Any], Any], ctx: Context[Any], seconds: float) -> object:
    import trio

    # A scope of our own: a timeout that the author set inside raises or passes as they wrote it.
    scope = trio.move_on_after(max(0.0, seconds))
    try:
        with scope:
            return await fn(ctx)
    except BaseException as error:
        if scope.cancel_called:
            raise StepTimedOut(error) from None
        raise
    raise StepTimedOut


def _seconds(timeout_ms: int | None) -> str:
    return "no time" if timeout_ms is None else f"{timeout_ms / 1000:g} s"
