"""`pwf mcp serve` behind the official client, over stdio and over HTTP: from a start to the output of the run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.test_agents import REVIEW
from tests.e2e.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(world: World) -> World:
    world.home.workflow("agent_review", REVIEW)
    return world


async def called(client: McpClient, name: str, **given: Any) -> dict[str, Any]:
    said = await client.call_tool(name, given)
    assert not said.is_error, said
    assert said.structured_content is not None
    return said.structured_content


async def played(client: McpClient, **session: Any) -> None:
    """A whole run: started, its step asked for, one wrong and one right result, its output."""
    run = (await called(client, "start", workflow="agent_review", input={"version": 3}, **session))["run"]
    step = await called(client, "my_step", **session)
    assert (step["run"], step["prompt"]) == (run, "Review version 3.")
    result = {"request": step["request"], "revision": step["revision"]}
    wrong = await client.call_tool("submit", {**result, "value": {"verdict": "later"}, **session})
    assert wrong.is_error
    assert (await called(client, "submit", **result, value={"verdict": "ship"}, **session))[
        "verdict"
    ] == "accepted"
    ended = await called(client, "status", run=run, wait_s=20, **session)
    assert (ended["status"], ended["output"]) == ("completed", "ship")
    assert (await called(client, "my_step", **session))["state"] == "ended"


async def test_a_host_plays_a_run_over_stdio(world: World) -> None:
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "pwf", "-C", str(world.home.project), "mcp", "serve", "--grant", "operator"],
        env=world.home.environment,
    )
    with anyio.fail_after(60):
        async with McpClient(program) as client:
            await played(client)


async def test_a_host_plays_a_run_over_http_and_nobody_without_the_token_is_answered(world: World) -> None:
    words = ("-C", str(world.home.project), "mcp", "serve", "--grant", "operator", "--http", "0")
    serving = world.home.spawn(*words, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert serving.stderr is not None
    try:
        address = serving.stderr.readline().decode().split("serving at ")[1].split(";")[0]
        token = (world.home.home / "mcp.token").read_text().strip()
        with anyio.fail_after(60):
            for wrong in ({}, {"authorization": "Bearer x"}, {"authorization": token}):
                async with httpx2.AsyncClient(headers=wrong) as http:
                    for ask in (http.get, http.post, http.delete):
                        assert (await ask(address)).status_code == 401
            foreign = {"authorization": f"Bearer {token}", "host": "evil.example"}
            async with httpx2.AsyncClient(headers=foreign) as http:
                assert (await http.post(address, json={})).status_code in (403, 421)
            async with (
                httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http,
                McpClient(streamable_http_client(address, http_client=http)) as client,
            ):
                assert (await client.call_tool("runs", {"session": "guessed"})).is_error
                session = (await called(client, "attach"))["session"]
                await played(client, session=session)
    finally:
        serving.terminate()
        serving.wait(20)
        for stream in (serving.stdout, serving.stderr):
            if stream is not None:
                stream.close()
