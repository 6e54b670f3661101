"""The tools behind the official SDK's server: listed, called, bounded, and answered in words.

Promises: a tool that fails answers with an error that a model can read, and the connection goes on; while a call
waits, the host is told that it goes on, where it asked for that. If the host gives a call up, its task is cancelled;
what the daemon has taken by then stays, and the same call again adopts it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from pwf.client.version import version
from pwf.errors import InvalidArgument, PwfError, Unavailable
from pwf.mcp.arguments import Attach, read, schema_of
from pwf.mcp.forms import Forms
from pwf.mcp.tools import Grant, Host, Said, Tool, offered
from pwf.values import canonical

PROGRESS_S = 5.0
ANSWER_S_MAX = 5.0  # of the daemon, after the wait that was asked for
INSTRUCTIONS = (
    "pwf runs durable workflows. Some of their steps are yours: call my_step, do what it says, and hand in the result "
    "with submit; then call my_step again. Answers that say ask again mean it: a long wait comes back before your "
    "host gives it up. Questions to people are answered by people, not here."
)

MY_STEP = "my_step"
ATTACH = "attach"  # over HTTP only: it is answered before anybody is asked who calls
ATTACH_DOES = (
    "Begin a session, or go on with one of your own; every other tool wants the `session` that this gives. Call it "
    "once."
)
Attacher = Callable[[str], Awaitable[dict[str, Any]]]
Hosts = Callable[[dict[str, Any]], Host]


def make_server(
    hosts: Hosts,
    grant: Grant,
    more: dict[str, Any],
    attach: Attacher | None = None,
    forms: Forms | None = None,
) -> Server[Any]:
    """A server that offers a grant. `hosts` finds who calls, and takes from the arguments what says so: the
    properties `more`, which `attach` gives, for an id or for none. `forms`: what the host's person is asked.
    """
    tools = offered(grant)
    listed = [
        described(name, tool.does, schema_of(tool.takes, more), changes=tool.changes)
        for name, tool in tools.items()
    ]
    if attach is not None:
        listed.insert(0, described(ATTACH, ATTACH_DOES, schema_of(Attach, {})))

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if forms is not None:
            forms.meet(context.session)
            if params.name == MY_STEP:
                await forms.take(params.input_responses)
                if (first := forms.asked()) is not None:
                    return first
        try:
            if attach is not None and params.name == ATTACH:
                return answered(Said(await attach(read(Attach, dict(params.arguments or {})).id)))
            tool = tools.get(params.name)
            if tool is None:
                raise InvalidArgument(f"there is no tool {params.name!r} under the grant {grant}")
            given = dict(params.arguments or {})
            host = hosts(given)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_tell, context, host.wait_s_max)
                with host.own.call():
                    said = await _called(tool, host, given)
                tasks.cancel_scope.cancel()
        except PwfError as error:
            return failed(error)
        if isinstance(said, PwfError):
            return failed(said)
        return answered(said)

    return Server(
        "pwf",
        version=version(),
        title="pwf",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the one host that started this process, until it closes our stdin."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _called(tool: Tool, host: Host, given: dict[str, Any]) -> Said | PwfError:
    """A refusal is handed out of the task group, which would wrap it."""
    try:
        with anyio.move_on_after(host.wait_s_max + ANSWER_S_MAX):
            return await tool.call(host, read(tool.takes, given))
    except PwfError as error:
        return error
    return Unavailable("pwf does not answer; it may be stopped just now. Call this again later")


async def _tell(context: ServerRequestContext[Any], whole_s: float) -> None:
    begun = time.monotonic()
    while True:
        await anyio.sleep(PROGRESS_S)
        await context.session.report_progress(time.monotonic() - begun, whole_s, "waiting")


def described(name: str, does: str, schema: dict[str, Any], *, changes: bool = False) -> types.Tool:
    """A tool as hosts see it."""
    return types.Tool(
        name=name,
        description=does,
        input_schema=schema,
        annotations=types.ToolAnnotations(read_only_hint=not changes, open_world_hint=False),
    )


def answered(said: Said) -> types.CallToolResult:
    """What a tool says, for programs and for the model."""
    text = canonical(said.data).decode() if said.text is None else said.text
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=said.data
    )


def failed(error: PwfError) -> types.CallToolResult:
    """An error as a model can read it; what a person would type next is none of its business."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=error.message)],
        structured_content={"error": error.code, "message": error.message},
        is_error=True,
    )
