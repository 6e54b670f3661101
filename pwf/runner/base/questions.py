"""What the function of a node that asks makes: the prompt, as it is stored with the request.

Knows nothing of the answer: its type is not the prompt's.
"""

from __future__ import annotations

from collections.abc import Callable

from pwf import values
from pwf.errors import PwfError
from pwf.runner.base.output import refuse_large, refuse_unrun
from pwf.runner.base.steps import Ended, Question, Step, StepRaised, StepTimedOut, call, failed, timed_out


def question(step: Step, check: Callable[[object, str], None] | None = None) -> Ended | Question:
    """Ask the function for the prompt. `check` gets it with its name, and raises `InvalidValue`."""
    try:
        prompt = _encode(step, call(step, step.node.fn, step.node.is_async), check)
    except StepRaised as raised:
        return failed(step, raised.error)
    except StepTimedOut as late:
        return timed_out(step, late)
    return Question(prompt, open_ms=step.node.spec.open_ms, default=step.node.spec.default)


def _encode(step: Step, prompt: object, check: Callable[[object, str], None] | None) -> bytes:
    what = f"the prompt of node {step.node.id!r}"
    limit = step.launch.value_bytes_max
    try:
        refuse_unrun(prompt, what)
        if check is not None:
            check(prompt, what)
        refuse_large(prompt, limit, what)
        return values.canonical(prompt, limit=limit, what=what)
    except (PwfError, MemoryError) as error:
        raise StepRaised(error) from None
