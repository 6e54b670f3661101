"""The adapter `exec`: a process for each turn, with the prompt on its stdin and the answer on its stdout.

Such an agent remembers nothing from one turn to the next, so each prompt says all. What it prints is kept as that of
any step. The process and all that it starts belong to the step, and end with the turn.
"""

from __future__ import annotations

import os

from pwf.protocol.agents import AgentCommand
from pwf.runner.base.steps import Step, StepTimedOut
from pwf.runner.kinds.agent_port import AgentFailed, Told, command_shown, failure, not_started
from pwf.runner.kinds.agent_tool import SUBMITS, Tool
from pwf.runner.kinds.capture import Capture, kept
from pwf.runner.kinds.command import Command, NotStarted, how_it_ended, run_command


class ExecAgent:
    """See the module."""

    remembers = False
    hands_in = f"If you can run commands, hand it in with: {SUBMITS} JSON"

    def __init__(self, configured: AgentCommand, step: Step, told: Told, tool: Tool | None) -> None:
        self._configured = configured
        self._name = configured.name
        self._step = step
        self._tool = tool

    def ask(self, prompt: str) -> str:
        """Start it with the prompt, and wait for its end."""
        step, tool, cap = self._step, self._tool, self._step.launch.output_bytes_max
        command = Command(
            argv=list(self._configured.command),
            cwd=step.launch.root or os.getcwd(),
            environment=dict(os.environ) if tool is None else tool.environment(),
            stdin=prompt.encode(),
            stdout=Capture(cap, None, kept(self._step, "out")),
            stderr=Capture(cap, None, kept(self._step, "err")),
            timeout_s=step.remaining_s,
            grace_s=step.launch.stop_grace_ms / 1000,
        )
        try:
            end = run_command(command) if tool is None else run_command(command, tool.serve)
        except NotStarted as refusal:
            raise not_started(self._configured, refusal.error) from None
        except OSError as error:
            raise AgentFailed(f"agent {self._name!r} could be watched no longer: {error}") from None
        finally:
            if tool is not None:
                tool.rest()
        step.survivors += end.leftovers
        if end.timed_out:
            raise StepTimedOut
        if end.exit_code != 0:
            said = command.stderr.tail() or command.stdout.tail() or "it has said nothing"
            shown = command_shown(self._configured)
            raise failure(
                f"agent {self._name!r} ({shown}) ended with {how_it_ended(end.exit_code)}:\n{said}", said
            )
        if command.stdout.dropped:
            raise AgentFailed(f"the answer of agent {self._name!r} has more than the limit of {cap:,} bytes")
        return bytes(command.stdout.kept).decode("utf-8", "replace")

    def end(self, *, at_once: bool) -> None:
        """Nothing: each process has ended with its turn."""
