"""The port to an agent that works by itself, and what is said of it while it works.

Owns what an adapter and the step have between them: how a turn ends, and what the daemon is told of the conversation.
"""

from __future__ import annotations

import shlex
import time
from typing import Protocol

from pwf.protocol.agents import AgentCommand
from pwf.protocol.runner import CONVERSATION_CHARS_MAX, AgentReport
from pwf.runner.base.steps import Step
from pwf.runner.kinds.agent_limits import limit_in
from pwf.values import shortened

AFRESH_CHARS_MAX = 500
COMMAND_SHOWN = 200


class AgentFailed(Exception):
    """The agent could not be spoken to, or ended without an answer. Its text says how."""


class AgentLimited(AgentFailed):
    """It has met a usage limit. `until_ms`: the wall time when that ends; None where nobody has said."""

    def __init__(self, text: str, until_ms: int | None) -> None:
        super().__init__(text)
        self.until_ms = until_ms


def failure(text: str, said: str) -> AgentFailed:
    """What `said` means, which an agent gave in place of an answer."""
    found = limit_in(said, time.time())
    return AgentFailed(text) if found is None else AgentLimited(text, found.until_ms)


def command_shown(configured: AgentCommand) -> str:
    """Its command, as a failure names it."""
    return shortened(shlex.join(configured.command), COMMAND_SHOWN)


def not_started(configured: AgentCommand, error: OSError | ValueError) -> AgentFailed:
    """Nothing of it has run."""
    shown = command_shown(configured)
    return AgentFailed(f"agent {configured.name!r} could not be started: {shown}: {error}")


class Agent(Protocol):
    """One agent, for one step. An adapter promises: when `end` returns, no process of the agent is left; whatever the
    agent writes, in whatever size, and whatever it does with its pipes, is handled.
    """

    remembers: bool  # what was said in an earlier turn of this step
    hands_in: str  # how it can hand its result in, in words for it; empty where it has no such tool

    def ask(self, prompt: str) -> str:
        """One turn: what the agent answers. Raises `AgentFailed`, or `StepTimedOut` when the step's time is over."""

    def end(self, *, at_once: bool) -> None:
        """End it. `at_once`: without time for it to end by itself. May be called when it has never begun."""


class Told:
    """What the agent has reported of this attempt, told to the daemon as soon as it is known."""

    def __init__(self, configured: AgentCommand, step: Step) -> None:
        self._step = step
        self._agent = configured.name
        self._conversation: str | None = None
        self._afresh = ""
        self.input_tokens = self.output_tokens = self.cost_micros = 0

    def conversation(self, conversation: str | None, afresh: str = "") -> None:
        """Its id. `afresh`: why it is not the one that an earlier attempt had begun."""
        self._conversation = None if conversation is None else conversation[:CONVERSATION_CHARS_MAX]
        self._afresh = afresh[:AFRESH_CHARS_MAX]
        if self._conversation is not None or afresh:
            self.send()

    def used(self, input_tokens: int, output_tokens: int, cost: float) -> None:
        """So much more. `cost`: in dollars."""
        self.input_tokens += max(0, input_tokens)
        self.output_tokens += max(0, output_tokens)
        self.cost_micros += max(0, round(cost * 1_000_000))
        self.send()

    def send(self) -> None:
        """Tell it all: each report says the sums of the attempt."""
        self._step.tell(
            AgentReport(
                attempt=self._step.ctx.attempt,
                agent=self._agent,
                conversation=self._conversation,
                afresh=self._afresh,
                input_tokens=self.input_tokens,
                output_tokens=self.output_tokens,
                cost_micros=self.cost_micros,
            )
        )

    def print(self, text: str) -> None:
        """Keep what the agent says as what the step prints."""
        if self._step.printed is not None and text:
            self._step.printed.write("out", text.encode("utf-8", "replace"))
