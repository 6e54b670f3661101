"""The one tool for an agent that pwf has started: the official client, in memory, on a step that is played."""

from __future__ import annotations

import json

import pytest
from mcp.client.client import Client as McpClient

from pwf.errors import Unavailable
from pwf.mcp.step import make_step_server
from pwf.protocol.own_step import StepAnswer

pytestmark = pytest.mark.anyio
SCHEMA = '{"type":"object","properties":{"ship":{"type":"boolean"}}}'


def submit(value: bytes) -> StepAnswer:
    """A step that wants `{"ship": true}`, and is over when it is told so."""
    given = json.loads(value)
    if given == "over":
        raise Unavailable("the step can not be reached any more")
    if given == {"ship": True}:
        return StepAnswer(verdict="accepted")
    return StepAnswer(verdict="rejected" if isinstance(given, dict) else "closed", reason="ship it")


async def test_its_one_tool_says_what_it_takes_and_what_becomes_of_a_result() -> None:
    async with McpClient(make_step_server(SCHEMA, submit)) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "submit"
        assert SCHEMA in (tool.description or "")
        assert set(tool.input_schema) == {"type", "properties", "required", "additionalProperties"}
        verdicts = []
        for given in ({"value": {"ship": False}}, {"json": "1"}, {"json": '{"ship": true}'}):
            said = await client.call_tool("submit", given)
            assert said.structured_content is not None
            verdicts.append(said.structured_content["verdict"])
        assert verdicts == ["rejected", "closed", "accepted"]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("submit", {}),
        ("submit", {"value": {}, "json": "1"}),
        ("submit", {"json": "{"}),
        ("submit", {"json": '"over"'}),
        ("my_step", {}),
        ("start", {"workflow": "w"}),
    ],
)
async def test_whatever_else_is_called_is_an_error_that_a_model_can_read(
    name: str, given: dict[str, str]
) -> None:
    async with McpClient(make_step_server(SCHEMA, submit)) as client:
        said = await client.call_tool(name, given)
        assert said.is_error
