"""The adapter `acp`: an agent that speaks the Agent Client Protocol, through the protocol's official library.

The library wants an asyncio loop. So each turn has one, in a thread that lives as long as the turn, and speaks over a
socket; this thread serves the process, and carries whole lines between the two. A line that is no message is left out.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import threading
from contextlib import closing, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from pwf.protocol.agents import AgentCommand
from pwf.runner.base.steps import Step
from pwf.runner.kinds.agent_port import AgentFailed, Told, failure
from pwf.runner.kinds.agent_program import LINE_BYTES_MAX, Program, ProgramAgent
from pwf.runner.kinds.agent_tool import SERVES, Tool

if TYPE_CHECKING:
    from acp.client.connection import ClientSideConnection

HANDS_IN = "If you have the tool submit of the MCP server pwf, hand that value in with it: it says whether it is taken."
RECEIVE_BYTES = 256 * 1024
THREAD_END_S = 5.0  # of a turn's thread, once its socket is closed
# Nobody is there to ask: the node's `tools=` say what it may use, and without them its command's own options.
PERMITTED = ("allow_once", "allow_always")
REFUSED = ("reject_once", "reject_always")
ALWAYS = ("think",)  # which is no tool
#: All of the title that agents give the tool of the server pwf; a longer one may have another tool's arguments.
OWN_TOOL = re.compile(
    r"(tool: )?(mcp[_. -]{1,3})?pwf[_.:/ -]{1,3}submit( \(pwf mcp server\))?|submit \(pwf mcp server\)",
    re.IGNORECASE,
)


class AcpAgent(ProgramAgent):
    """See the module."""

    def __init__(self, configured: AgentCommand, step: Step, told: Told, tool: Tool | None) -> None:
        super().__init__(configured, step, told, tool)
        self._session: str | None = None
        self._has_tool = tool is not None and find_spec("mcp") is not None  # what its server is made with
        self.hands_in = HANDS_IN if self._has_tool else ""
        self.name = configured.name
        self.listener = Listener(told, step.node.spec.tools)

    def ask(self, prompt: str) -> str:
        """One turn. The first begins the conversation, or continues an earlier attempt's."""
        try:
            import acp  # noqa: F401 - what the thread needs; its import here says what is missing
        except ImportError as missing:
            raise AgentFailed(
                f"the adapter acp needs the package agent-client-protocol ({missing}): "
                "pip install 'pwf-workflows[acp]' "
                "where the project's interpreter is"
            ) from None
        if self._program is None:
            self._program = Program(self._configured, list(self._configured.command), self._step, self._tool)
        turn = _Turn(self, prompt)
        with self._program.attended():
            return turn.carry(self._program, self._step)

    async def speak(self, connection: ClientSideConnection, prompt: str) -> str:
        """In the turn's thread. Raises what the library does."""
        from acp import text_block

        if self._session is None:
            self._session = await self._begin(connection)
        self.listener.begin()
        answered = await connection.prompt(session_id=self._session, prompt=[text_block(prompt)])
        usage = answered.usage
        if usage is not None:
            read = (usage.cached_read_tokens or 0) + (usage.cached_write_tokens or 0)
            self._told.used(usage.input_tokens + read, usage.output_tokens, 0)
        if answered.stop_reason in ("refusal", "cancelled"):
            raise AgentFailed(f"agent {self._configured.name!r} has ended its turn: {answered.stop_reason}")
        return "".join(self.listener.said)

    async def _begin(self, connection: ClientSideConnection) -> str:
        from acp import PROTOCOL_VERSION, RequestError
        from acp.schema import ClientCapabilities, Implementation

        able = await connection.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(),
            client_info=Implementation(name="pwf", version="0"),
        )
        cwd, earlier, afresh = self._step.launch.root or os.getcwd(), self._step.conversation, ""
        if earlier is not None:
            can = able.agent_capabilities
            if can is not None and can.load_session:
                try:
                    await connection.load_session(cwd=cwd, session_id=earlier, mcp_servers=self._servers())
                except RequestError as error:
                    afresh = f"conversation {earlier} could not be continued: {error}"
                else:
                    self._told.conversation(earlier)
                    told_before = self._step.launch.conversation_micros / 1_000_000
                    self.listener.cost = max(self.listener.cost, told_before)
                    return earlier
            else:
                afresh = f"conversation {earlier} was not continued: the agent can continue none"
        begun = await connection.new_session(cwd=cwd, mcp_servers=self._servers())
        self._told.conversation(begun.session_id, afresh)
        return begun.session_id

    def _servers(self) -> list[Any]:
        """The tool, as an MCP server that the agent starts for its conversation."""
        from acp.schema import EnvVariable, McpServerStdio

        if self._tool is None or not self._has_tool:
            return []
        names = [EnvVariable(name=name, value=value) for name, value in self._tool.names().items()]
        return [McpServerStdio(name="pwf", command=sys.executable, args=list(SERVES), env=names)]


class _Turn:
    """One turn: a thread with the library's loop, and the lines between it and the process."""

    def __init__(self, agent: AcpAgent, prompt: str) -> None:
        self._agent = agent
        self._prompt = prompt
        self._answer = ""
        self._error: Exception | None = None
        self._is_over = False

    def carry(self, program: Program, step: Step) -> str:
        """Until the thread has ended. Raises `AgentFailed`, or `StepTimedOut`."""
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=self._run, args=(theirs,), daemon=True)
        with closing(ours):

            def heard() -> None:
                data = ours.recv(RECEIVE_BYTES)
                self._is_over |= not data
                program.send(data)

            thread.start()
            try:
                program.watch(ours.fileno(), heard)
                self._until_over(program, ours)
            except BaseException:
                ours.shutdown(socket.SHUT_RDWR)
                raise
            finally:
                program.unwatch(ours.fileno())
                thread.join(THREAD_END_S)
        if isinstance(self._error, ConnectionError):
            raise program.gone() from None
        if self._error is not None:
            raise _failure(self._agent, self._error) from None
        if len(self._answer) > step.launch.output_bytes_max:
            raise AgentFailed(f"the answer has more than the limit of {step.launch.output_bytes_max:,} bytes")
        return self._answer

    def _until_over(self, program: Program, ours: socket.socket) -> None:
        while not self._is_over:
            program.wait(lambda: self._is_over)
            while program.lines.ready:
                line = program.lines.ready.popleft()
                if _is_message(line):
                    ours.sendall(line + b"\n")
            if program.is_silent:
                ours.shutdown(socket.SHUT_WR)  # what the thread still waits for never comes
                return

    def _run(self, theirs: socket.socket) -> None:
        try:
            self._answer = asyncio.run(self._speak(theirs))
        except Exception as error:  # noqa: BLE001 - another thread's: it is raised where the turn was asked for
            self._error = error
        finally:
            theirs.close()

    async def _speak(self, theirs: socket.socket) -> str:
        from acp.client.connection import ClientSideConnection

        reader, writer = await asyncio.open_connection(sock=theirs, limit=LINE_BYTES_MAX)
        listener: Any = self._agent.listener  # it has what is asked of it; for the rest the library answers
        connection = ClientSideConnection(listener, writer, reader)
        try:
            return await self._agent.speak(connection, self._prompt)
        finally:
            await connection.close()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class Listener:
    """What the agent says and asks while it works. The names of the methods are the library's."""

    def __init__(self, told: Told, tools: tuple[str, ...] | None) -> None:
        self._told = told
        self._tools = tools
        self._has_begun = False
        self.cost = 0.0  # of the conversation, as far as it is counted
        self.said: list[str] = []

    def begin(self) -> None:
        """A turn: what was repeated of an earlier one is no answer to it."""
        self.said, self._has_begun = [], True

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """A piece of its answer, a tool that it uses, or what it has cost. Before the turn, what was is repeated."""
        kind = getattr(update, "session_update", "")
        if not self._has_begun:
            if kind == "usage_update" and update.cost is not None:
                self.cost = update.cost.amount
        elif kind == "agent_message_chunk" and getattr(update.content, "type", "") == "text":
            self.said.append(update.content.text)
            self._told.print(update.content.text)
        elif kind == "tool_call":
            self._told.print(f"[{update.title}]\n")
        elif kind == "usage_update" and update.cost is not None:
            more = max(0.0, update.cost.amount - self.cost)  # it tells the sum of the conversation
            self.cost = max(self.cost, update.cost.amount)
            self._told.used(0, 0, more)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        """Allow it where the step may use such a tool, or hands its result in; else refuse it."""
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        allowed = self._tools is None or _may_use(tool_call, self._tools)
        if not allowed:
            self._told.print(f"[refused: {tool_call.title or tool_call.kind}]\n")
        for kind in PERMITTED if allowed else REFUSED:
            for option in options:
                if option.kind == kind:
                    chosen = AllowedOutcome(outcome="selected", option_id=option.option_id)
                    return RequestPermissionResponse(outcome=chosen)
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    def on_connect(self, _: Any) -> None:
        """Nothing is asked before the turn."""


def _may_use(tool_call: Any, tools: tuple[str, ...]) -> bool:
    kind = tool_call.kind or "other"
    hands_in = kind == "other" and OWN_TOOL.fullmatch((tool_call.title or "").strip()) is not None
    return hands_in or kind in tools or kind in ALWAYS


def _is_message(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _failure(agent: AcpAgent, error: Exception) -> AgentFailed:
    if isinstance(error, AgentFailed):
        return error
    data = getattr(error, "data", None)
    more = "" if data is None else f" {msgspec.json.encode(data).decode()}"
    return failure(f"agent {agent.name!r} answered with an error: {error}{more}", f"{error}{more}")
