"""Notify nodes: the function's text is a notice for people. It is stored with the end of the step, so each attempt that
completes makes one, and one that was interrupted none. The graph leads on whatever becomes of it.
"""

from __future__ import annotations

from pwf.protocol.kinds import NodeKind
from pwf.protocol.notices import cut
from pwf.runner.base.steps import Ended, Step, StepRaised, StepTimedOut, call, encode, failed, timed_out

KIND: NodeKind = "notify"


def run(step: Step) -> Ended:
    """Call the function; its text, cut to what a notice may have, is the output."""
    try:
        value = call(step, step.node.fn, step.node.is_async)
        return Ended(
            outcome="completed", output=encode(step, cut(value) if isinstance(value, str) else value)
        )
    except StepRaised as raised:
        return failed(step, raised.error)
    except StepTimedOut as late:
        return timed_out(step, late)
