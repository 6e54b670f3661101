"""Assistant nodes: as agent nodes, but what the agent says is the output, as it stands."""

from __future__ import annotations

from pwf.protocol.kinds import NodeKind
from pwf.runner.base.steps import Ended, Question, Step
from pwf.runner.kinds import agent

KIND: NodeKind = "assistant"


def run(step: Step) -> Ended | Question:
    """Ask the function for the prompt, and the run's own agent, where it has one, for the reply."""
    return agent.run(step)
