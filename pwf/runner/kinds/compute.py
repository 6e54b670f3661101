"""Compute nodes: a pure function. It may run again after a crash, and before the previous step is
acknowledged.
"""

from __future__ import annotations

from pwf.protocol.kinds import NodeKind
from pwf.runner.base.steps import Ended, Step, StepRaised, StepTimedOut, call, encode, failed, timed_out

KIND: NodeKind = "compute"


def run(step: Step) -> Ended:
    """Call the function; its value is the output."""
    try:
        value = call(step, step.node.fn, step.node.is_async)
        return Ended(outcome="completed", output=encode(step, value))
    except StepRaised as raised:
        return failed(step, raised.error)
    except StepTimedOut as late:
        return timed_out(step, late)
