"""Action nodes: a function with a declared effect, and what is known of the effect afterwards.

An idempotent effect simply fails. A manual effect is settled as applied when the function returned (even
where the value can not be stored), as rejected when it raised `NotApplied`, and is unknown after anything
else.
"""

from __future__ import annotations

from pwf.protocol.kinds import NodeKind
from pwf.runner.base.failure import leaves
from pwf.runner.base.steps import (
    Ended,
    Settled,
    Step,
    StepRaised,
    StepTimedOut,
    call,
    encode,
    failed,
    timed_out,
)
from pwf.workflow.effects import NotApplied

KIND: NodeKind = "action"


def run(step: Step) -> Ended:
    """Apply the effect; the function's value is the output."""
    try:
        value = call(step, step.node.fn, step.node.is_async)
    except StepRaised as raised:
        return failed(step, raised.error, settled=settled_by(step, raised.error))
    except StepTimedOut as late:
        return timed_out(step, late, settled="unknown" if step.manual else None)
    applied: Settled | None = "applied" if step.manual else None
    try:
        return Ended(outcome="completed", output=encode(step, value), settled=applied)
    except StepRaised as raised:
        return failed(step, raised.error, settled=applied)


def settled_by(step: Step, error: BaseException) -> Settled | None:
    """What an exception says about a manual effect; of a group, each one must say that it did not happen."""
    if not step.manual:
        return None
    return "rejected" if all(isinstance(leaf, NotApplied) for leaf in leaves(error)) else "unknown"
