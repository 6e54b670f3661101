"""The one tool for an agent that pwf has started itself: handing in the result of its own step.

Promises: it reaches the step that the environment names, and nothing else, the daemon neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from pwf.client.own_step import read_step, submit_step
from pwf.client.version import version
from pwf.errors import InvalidArgument, PwfError
from pwf.mcp.arguments import Result, read, result_of, schema_of
from pwf.mcp.server import answered, described, failed, serve_stdio
from pwf.mcp.tools import Said
from pwf.protocol.own_step import StepAnswer
from pwf.values import canonical

SUBMIT = "submit"
DOES = (
    "Hand in the result of your step. A result that is rejected comes back with the reason: correct it, and submit "
    "again. It has to fit this JSON Schema: {schema}"
)
SCHEMA_CHARS_MAX = 8_000  # the prompt has all of it


def serve_step() -> None:
    """Serve the host that started this process, until it closes our stdin. Raises `NotFound` outside a step."""
    schema = read_step().schema
    anyio.run(serve_stdio, make_step_server(bytes(schema).decode(), submit_step))


def make_step_server(schema: str, submit: Callable[[bytes], StepAnswer]) -> Server[Any]:
    """A server of one tool. `submit` hands canonical JSON in, in a thread."""
    schema = schema[:SCHEMA_CHARS_MAX]
    tool = described(SUBMIT, DOES.format(schema=schema), schema_of(Result, {}), changes=True)

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            if params.name != SUBMIT:
                raise InvalidArgument(f"there is no tool {params.name!r} here")
            value = result_of(read(Result, dict(params.arguments or {})))
            said = await anyio.to_thread.run_sync(submit, canonical(value, what="the value"))
        except PwfError as error:
            return failed(error)
        return answered(_said(said))

    return Server("pwf", version=version(), title="pwf", on_list_tools=list_tools, on_call_tool=call_tool)


def _said(answer: StepAnswer) -> Said:
    data: dict[str, Any] = {"verdict": answer.verdict}
    if answer.reason:
        data["reason"] = answer.reason
    if answer.verdict == "accepted":
        return Said(data, "Accepted. Your step is done.")
    again = "\nCorrect it, and submit again." if answer.verdict == "rejected" else "\nNothing more is taken."
    return Said(data, f"Rejected: {answer.reason}{again}")
