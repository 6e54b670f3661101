"""Judging what was submitted for a node by the workflow's own `validate=`: one word, in a process of its own.

Promises: whatever the function does, the answer is accepted, or a reason that can be shown to an agent.
"""

from __future__ import annotations

import msgspec

from pwf.protocol.runner import REASON_CHARS_MAX, Judged
from pwf.runner.base import descendants
from pwf.runner.base.failure import bounded
from pwf.runner.base.steps import Step, StepRaised, StepTimedOut, call
from pwf.workflow.settings import Settings


def judge(step: Step, data: bytes) -> Judged:
    """Ask the function about a value, which fits the type of the node. None accepts it; a text says why not.

    Raises `StepTimedOut` where the step's time is over.
    """
    validate = step.node.validate
    if validate is None:  # the stored graph has said that there is one
        return Judged(accepted=False, reason=f"the code of node {step.node.id!r} has no validate=")
    try:
        value = step.node.decode(data)
        said = call(step, lambda ctx: validate(ctx, value), step.node.validate_is_async)
    except msgspec.ValidationError as fault:
        return _rejected(str(fault))
    except StepRaised as raised:
        return _rejected(_words(raised.error))
    if said is None:
        return Judged(accepted=True)
    if isinstance(said, str) and said.strip():
        return _rejected(said)
    return _rejected(
        f"validate= of node {step.node.id!r} returned a value of type {type(said).__name__}: it must return None, or "
        "a text that says what to correct"
    )


def judge_alone(step: Step, data: bytes) -> Judged:
    """The same for an errand, which has no other outcome."""
    try:
        return judge(step, data)
    except StepTimedOut:
        descendants.end_all()
        return _rejected(f"validate= of node {step.node.id!r} took too long")


def judge_settings(declared: Settings | None, value: bytes) -> Judged:
    """Ask `check=` of the settings about what a change would make of them."""
    if declared is None:  # the stored graph has said that there are some
        return _rejected("the code of the workflow declares no settings")
    try:
        said = declared.objection(value)
    except BaseException as error:  # noqa: BLE001 - user code
        said = _words(error)
    return Judged(accepted=True) if said is None else _rejected(said)


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - user code: an exception's own __str__
        text = ""
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def _rejected(reason: str) -> Judged:
    return Judged(accepted=False, reason=bounded(reason, REASON_CHARS_MAX))
