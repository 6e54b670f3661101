"""Wait nodes: the function says until when; the daemon keeps the time, and no process waits."""

from __future__ import annotations

from pwf.errors import PwfError
from pwf.protocol.kinds import NodeKind
from pwf.runner.base.output import refuse_unrun
from pwf.runner.base.steps import Ended, Step, StepRaised, StepTimedOut, Timer, call, failed, timed_out
from pwf.workflow.timing import due_of

KIND: NodeKind = "wait"


def run(step: Step) -> Ended | Timer:
    """Ask the function for the time."""
    try:
        value = call(step, step.node.fn, step.node.is_async)
    except StepRaised as raised:
        return failed(step, raised.error)
    except StepTimedOut as late:
        return timed_out(step, late)
    try:
        refuse_unrun(value, f"the time of node {step.node.id!r}")
        return Timer(due_of(value, step.node.id))
    except (PwfError, OverflowError, ValueError) as error:
        return failed(step, error)
