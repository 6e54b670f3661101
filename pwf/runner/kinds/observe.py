"""Observing: an earlier attempt at a manual effect may or may not have happened, and its old processes are
dead.

`observe` reads the outside system. Its answer settles the effect; `None` from `run` means that the effect
did not happen in an attempt that was merely interrupted, so that the node runs now.
"""

from __future__ import annotations

from pwf.protocol.runner import REF_CHARS_MAX
from pwf.runner.base.failure import bounded, plain_error
from pwf.runner.base.steps import (
    Ended,
    Step,
    StepRaised,
    StepTimedOut,
    call,
    encode,
    failed,
    timed_out,
)
from pwf.workflow.effects import Observation


def run(step: Step) -> Ended | None:
    """Ask `observe`. Unknown, late and failed answers leave the effect unknown: the daemon holds the run."""
    if step.node.observe is None:
        return _unknown(step, f"node {step.node.id!r} has no observe function")
    try:
        observation = _observe(step)
    except StepRaised as raised:
        return failed(step, raised.error, settled="unknown", observed=True)
    except StepTimedOut as late:
        end = timed_out(step, late)
        return Ended(outcome="failed", error=end.error, settled="unknown", observed=True)
    if observation.verdict == "unknown":
        return _unknown(step, f"observe of node {step.node.id!r} could not tell whether the effect happened")
    if observation.verdict == "applied":
        return _applied(step, observation)
    return _not_applied(step)


def _observe(step: Step) -> Observation:
    observe = step.node.observe
    assert observe is not None
    answer = call(step, observe, step.node.observe_is_async)
    try:
        return step.node.observation(answer)
    except Exception as error:  # noqa: BLE001 - user code: the repr of what observe returned
        raise StepRaised(error) from None


def _applied(step: Step, observation: Observation) -> Ended:
    ref = None if observation.ref is None else bounded(str(observation.ref), REF_CHARS_MAX)
    try:
        output = encode(step, observation.output)
    except StepRaised as raised:
        return failed(step, raised.error, settled="applied", observed=True)
    return Ended(outcome="completed", output=output, settled="applied", observed=True, effect_ref=ref)


def _not_applied(step: Step) -> Ended | None:
    outcome = step.launch.observe_then
    if outcome is None:
        return None
    return Ended(outcome=outcome, error=step.launch.observe_error, settled="rejected", observed=True)


def _unknown(step: Step, message: str) -> Ended:
    report = plain_error("effect_unknown", message, step.node.id)
    return Ended(outcome="failed", error=report, settled="unknown", observed=True)
