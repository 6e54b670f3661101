"""Agent nodes: the function makes the prompt; the run is parked until what an agent submits is accepted."""

from __future__ import annotations

from pwf.errors import InvalidValue
from pwf.protocol.kinds import NodeKind
from pwf.runner.base.questions import question
from pwf.runner.base.steps import Ended, Question, Step

KIND: NodeKind = "agent"


def run(step: Step) -> Ended | Question:
    """Ask the function for the prompt: a text."""
    return question(step, _check_text)


def _check_text(prompt: object, what: str) -> None:
    if not isinstance(prompt, str) or not prompt.strip():
        shown = "an empty text" if isinstance(prompt, str) else f"of type {type(prompt).__name__}"
        raise InvalidValue(f"{what} is {shown}", hint="return a text that says what the agent shall do")
