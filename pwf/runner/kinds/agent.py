"""Agent nodes: the function makes the prompt. The run's own agent answers it here; without one the run is parked until
what somebody submits is accepted.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pwf.errors import InvalidValue
from pwf.protocol.agents import tools_in_words
from pwf.protocol.kinds import NodeKind
from pwf.runner.base.questions import question
from pwf.runner.base.steps import Ended, Question, Step
from pwf.values import canonical

KIND: NodeKind = "agent"


def run(step: Step) -> Ended | Question:
    """Ask the function for the prompt: a text."""
    asked = question(step, _check_text)
    if step.node.spec.tools is not None and isinstance(asked, Question):
        words = f"{msgspec.json.decode(asked.prompt)}\n\n{tools_in_words(step.node.spec.tools)}"
        asked = replace(asked, prompt=canonical(words, what="the prompt"))
    agent = step.launch.agent
    if agent is None or isinstance(asked, Ended):
        return asked
    from pwf.runner.kinds.headless import converse  # imports what runs without an agent do without

    return converse(step, agent, asked.prompt)


def _check_text(prompt: object, what: str) -> None:
    if not isinstance(prompt, str) or not prompt.strip():
        shown = "an empty text" if isinstance(prompt, str) else f"of type {type(prompt).__name__}"
        raise InvalidValue(f"{what} is {shown}", hint="return a text that says what the agent shall do")
