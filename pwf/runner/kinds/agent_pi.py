"""The adapter `pi-rpc`: the pi coding agent in its RPC mode, one JSON message a line.

The conversation is a file of pi's, whose path is its id. pi's own tries after an error are turned off: the node's
`retry=` says how often a step is tried.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from pwf.protocol.agents import AgentCommand
from pwf.runner.base.steps import Step
from pwf.runner.kinds.agent_port import AgentFailed, Told, failure
from pwf.runner.kinds.agent_program import Program, ProgramAgent
from pwf.runner.kinds.agent_tool import Tool

TOOL = os.path.join(os.path.dirname(__file__), "pi_step.js")  # an extension of pi's
HANDS_IN = "If you have the tool submit, hand that value in with it; it says whether it is accepted."
#: pi's own tools, by the kinds that `tools=` names.
PI_TOOLS = {
    "read": ("read", "ls"),
    "search": ("grep", "find"),
    "edit": ("edit", "write"),
    "execute": ("bash",),
}
RPC = ("--mode", "rpc")
_UPDATE = b'{"type":"message_update"'  # each repeats all that its message has so far
_DIALOGS = ("select", "confirm", "input", "editor")  # of extensions: nobody is there to answer


class PiAgent(ProgramAgent):
    """See the module."""

    def __init__(self, configured: AgentCommand, step: Step, told: Told, tool: Tool | None) -> None:
        super().__init__(configured, step, told, tool)
        self.hands_in = HANDS_IN if tool is not None else ""
        self._number = 0

    def ask(self, prompt: str) -> str:
        """One turn. The first begins the conversation, or continues an earlier attempt's."""
        program = self._program
        if program is None:
            argv = [*self._configured.command, *(() if "--mode" in self._configured.command else RPC)]
            if self._tool is not None:
                argv += ["--extension", TOOL]
            if self._step.node.spec.tools is not None:
                argv += _allowed(self._step.node.spec.tools, has_submit=self._tool is not None)
            program = self._program = Program(self._configured, argv, self._step, self._tool)
            with program.attended():
                self._begin(program)
        with program.attended():
            # What begins with a slash is a command of pi's.
            said = self._call(program, "prompt", message=f" {prompt}" if prompt.startswith("/") else prompt)
            if not said.get("success"):
                raise AgentFailed(f"agent {self._configured.name!r} took no prompt: {said.get('error')}")
            return self._answer(program)

    def _begin(self, program: Program) -> None:
        self._call(program, "set_auto_retry", enabled=False)
        earlier, afresh = self._step.conversation, ""
        if earlier is not None:
            if not os.path.exists(earlier):
                afresh = f"conversation {earlier} is gone"
            else:
                said = self._call(program, "switch_session", sessionPath=earlier)
                if not said.get("success") or _of(said, "data").get("cancelled"):
                    afresh = (
                        f"conversation {earlier} could not be continued: {said.get('error') or 'refused'}"
                    )
        file = _of(self._call(program, "get_state"), "data").get("sessionFile")
        self._told.conversation(file if isinstance(file, str) else None, afresh)

    def _call(self, program: Program, command: str, **more: Any) -> dict[str, Any]:
        """Its response to a command."""
        self._number += 1
        wanted = f"pwf-{self._number}"
        program.send(msgspec.json.encode({"id": wanted, "type": command, **more}) + b"\n")
        while True:
            message = self._next(program)
            if message.get("type") == "response" and message.get("id") == wanted:
                return message

    def _answer(self, program: Program) -> str:
        """What its last message says, when it has ended its work."""
        text = error = ""
        while True:
            message = self._next(program)
            kind = message.get("type")
            if kind == "message_end" and _of(message, "message").get("role") == "assistant":
                said = _of(message, "message")
                text = self._said(said)
                error = (
                    str(said.get("errorMessage") or "")
                    if said.get("stopReason") in ("error", "aborted")
                    else ""
                )
            elif kind == "tool_execution_start":
                self._told.print(f"[{message.get('toolName')}]\n")
            elif kind == "agent_end":
                break
        if error:
            raise failure(f"agent {self._configured.name!r} answered with an error: {error}", error)
        limit = self._step.launch.output_bytes_max
        if len(text) > limit:
            raise AgentFailed(
                f"the answer of agent {self._configured.name!r} has more than the limit of {limit:,} bytes"
            )
        return text

    def _said(self, message: dict[str, Any]) -> str:
        usage = _of(message, "usage")
        read = sum(_number(usage, name) for name in ("input", "cacheRead", "cacheWrite"))
        cost = _number(_of(usage, "cost"), "total")
        if read or cost:
            self._told.used(int(read), int(_number(usage, "output")), cost)
        blocks = message.get("content")
        pieces = [one for one in blocks if isinstance(one, dict)] if isinstance(blocks, list) else []
        text = "".join(str(one.get("text", "")) for one in pieces if one.get("type") == "text")
        self._told.print(f"{text}\n" if text else "")
        return text

    def _next(self, program: Program) -> dict[str, Any]:
        """Its next message. A line that is none is left out; a dialog is cancelled."""
        while True:
            line = program.next_line()
            if line.startswith(_UPDATE):
                continue
            try:
                message = msgspec.json.decode(line)
            except (msgspec.MsgspecError, RecursionError):
                continue
            if not isinstance(message, dict):
                continue
            if message.get("type") == "extension_ui_request" and message.get("method") in _DIALOGS:
                answer = {"type": "extension_ui_response", "id": message.get("id"), "cancelled": True}
                program.send(msgspec.json.encode(answer) + b"\n")
                continue
            return message


def _allowed(tools: tuple[str, ...], *, has_submit: bool) -> list[str]:
    """The option that leaves it these."""
    names = [name for kind in tools for name in PI_TOOLS.get(kind, ())]
    if has_submit:
        names.append("submit")
    return ["--tools", ",".join(names)] if names else ["--no-tools"]


def _of(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _number(data: dict[str, Any], name: str) -> float:
    found = data.get(name)
    return found if isinstance(found, int | float) else 0
