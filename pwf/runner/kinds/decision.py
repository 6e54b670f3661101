"""Decision nodes: the function makes what a person is shown; the run is parked until a person decides."""

from __future__ import annotations

from pwf.errors import PwfError
from pwf.protocol.kinds import NodeKind
from pwf.runner.base.steps import Ended, Question, Step, StepRaised, StepTimedOut, call, failed, timed_out
from pwf.workflow.decisions import how_long_open, presented

KIND: NodeKind = "decision"


def run(step: Step) -> Ended | Question:
    """Ask the function for the presentation."""
    try:
        found = presented(call(step, step.node.fn, step.node.is_async), step.node.id)
        open_ms, default = how_long_open(found, step.node.spec)
    except StepRaised as raised:
        return failed(step, raised.error)
    except StepTimedOut as late:
        return timed_out(step, late)
    except PwfError as error:
        return failed(step, error)
    return Question(found.shown, found.subject, open_ms, default)
