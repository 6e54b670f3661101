"""Checkpoint nodes: the function makes the question; the run is parked until it is answered."""

from __future__ import annotations

from pwf import values
from pwf.errors import PwfError
from pwf.protocol.kinds import NodeKind
from pwf.runner.base.output import refuse_large, refuse_unrun
from pwf.runner.base.steps import Ended, Question, Step, StepRaised, StepTimedOut, call, failed, timed_out

KIND: NodeKind = "checkpoint"


def run(step: Step) -> Ended | Question:
    """Ask the function for the prompt: any JSON."""
    try:
        return Question(_encode(step, call(step, step.node.fn, step.node.is_async)))
    except StepRaised as raised:
        return failed(step, raised.error)
    except StepTimedOut as late:
        return timed_out(step, late)


def _encode(step: Step, prompt: object) -> bytes:
    # Not the node's `returns`: that is the type of the answer.
    what = f"the prompt of node {step.node.id!r}"
    limit = step.launch.value_bytes_max
    try:
        refuse_unrun(prompt, what)
        refuse_large(prompt, limit, what)
        return values.canonical(prompt, limit=limit, what=what)
    except (PwfError, MemoryError) as error:
        raise StepRaised(error) from None
