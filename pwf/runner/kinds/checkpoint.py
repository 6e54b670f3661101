"""Checkpoint nodes: the function makes the question; the run is parked until it is answered."""

from __future__ import annotations

from pwf.protocol.kinds import NodeKind
from pwf.runner.base.questions import question
from pwf.runner.base.steps import Ended, Question, Step

KIND: NodeKind = "checkpoint"


def run(step: Step) -> Ended | Question:
    """Ask the function for the prompt: any JSON."""
    return question(step)
