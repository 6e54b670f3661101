"""`pwf mcp serve` behind the official client, over stdio and over HTTP: from a start to the output of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.test_agents import REVIEW
from tests.e2e.world import PATIENCE_S, World, wait_for
from tests.mcp.conftest import called

pytestmark = [pytest.mark.anyio, pytest.mark.rest]  # each with a daemon of its own


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(world: World) -> World:
    world.home.workflow("agent_review", REVIEW)
    return world


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


def over_stdio(world: World) -> McpClient:
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "pwf", "-C", str(world.home.project), "mcp", "serve", "--grant", "operator"],
        env=world.home.environment,
    )
    return McpClient(program)


async def test_a_host_plays_a_run_over_stdio(world: World) -> None:
    with anyio.fail_after(60):
        async with over_stdio(world) as client:
            await played(client)


def test_the_client_of_the_documentation_plays_a_run(world: World) -> None:
    page = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text()
    program = world.home.project / "client.py"
    program.write_text(page.split("```python\n")[1].split("```")[0])
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, program, "agent_review", '{"version": 3}'],
        cwd=world.home.project,
        env={**world.home.environment, "PATH": beside},
        input='{"verdict": "later"}\n{"verdict": "ship"}\n',
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Review version 3.") == 2, "what was refused is given again"
    assert "later" in done.stderr
    assert done.stdout.splitlines()[-1] == "completed ship None"


@contextmanager
def serving(world: World) -> Iterator[tuple[str, str]]:
    """The address and the token."""
    words = ("-C", str(world.home.project), "mcp", "serve", "--grant", "operator", "--http", "0")
    served = world.home.spawn(*words, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert served.stderr is not None
    try:
        address = served.stderr.readline().decode().split("serving at ")[1].split(";")[0]
        yield address, (world.home.home / "mcp.token").read_text().strip()
    finally:
        served.terminate()
        served.wait(20)
        for stream in (served.stdout, served.stderr):
            if stream is not None:
                stream.close()


@asynccontextmanager
async def client_of(address: str, token: str) -> AsyncIterator[McpClient]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http,
        McpClient(streamable_http_client(address, http_client=http)) as client,
    ):
        yield client


@pytest.mark.rest
async def test_a_host_plays_a_run_over_http_and_nobody_without_the_token_is_answered(world: World) -> None:
    with serving(world) as (address, token), anyio.fail_after(60):
        for wrong in ({}, {"authorization": "Bearer x"}, {"authorization": token}):
            async with httpx2.AsyncClient(headers=wrong) as http:
                for ask in (http.get, http.post, http.delete):
                    assert (await ask(address)).status_code == 401
        foreign = {"authorization": f"Bearer {token}", "host": "evil.example"}
        async with httpx2.AsyncClient(headers=foreign) as http:
            assert (await http.post(address, json={})).status_code in (403, 421)
        async with client_of(address, token) as client:
            assert (await client.call_tool("runs", {"session": "guessed"})).is_error
            session = (await called(client, "attach"))["session"]
            await played(client, session=session)


SLOW = """
from pathlib import Path
import time

flow = Workflow("slowly")
here = Path(__file__).parents[2]

def check(ctx, value):
    (here / "begun").touch()
    while not (here / "judge").exists():
        time.sleep(0.02)

@flow.agent(returns=str, validate=check)
def first(ctx):
    return "First."

@flow.agent(returns=str)
def second(ctx):
    return "Second."

flow.graph(first >> second)
"""


async def test_a_step_that_was_accepted_while_its_host_did_not_listen_makes_place_for_the_next(
    world: World,
) -> None:
    world.home.workflow("slowly", SLOW)
    with serving(world) as (address, token), anyio.fail_after(60):
        async with client_of(address, token) as client:
            own = {"session": (await called(client, "attach"))["session"]}
            run = (await called(client, "start", workflow="slowly", **own))["run"]
            step = await called(client, "my_step", **own)
            result = {"request": step["request"], "revision": step["revision"], "json": '"done"', **own}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "submit", result)
                begun = world.home.project / "begun"
                await anyio.to_thread.run_sync(wait_for, begun.exists, PATIENCE_S)
                tasks.cancel_scope.cancel()  # the host gives up the call; its verdict comes later
            assert (await called(client, "my_step", **own))["request"] == step["request"]
            (world.home.project / "judge").touch()
            step = await other_than(client, step, own)
            assert step["prompt"] == "Second."
            request = step["request"]
            await anyio.to_thread.run_sync(lambda: world.home.run("submit", request, "done"))
            ended = await other_than(client, step, own)
            assert (ended["state"], ended["run"]) == ("ended", run)


@pytest.mark.rest
async def test_a_submission_that_is_judged_over_a_stop_of_the_daemon_has_one_verdict_for_who_asks_again(
    world: World,
) -> None:
    """A host gives the call up while it is being judged, and asks again, with the same arguments, afterwards."""
    words = {"slowly": "long", "begun": "long_begun", '"judge"': '"long_judge"'}
    text = SLOW
    for old, new in words.items():
        text = text.replace(old, new)
    world.home.workflow("long", text)
    begun = world.home.project / "long_begun"
    with serving(world) as (address, token), anyio.fail_after(90):
        async with client_of(address, token) as client:
            own = {"session": (await called(client, "attach", id="desk"))["session"]}
            run = (await called(client, "start", workflow="long", **own))["run"]
            step = await called(client, "my_step", **own)
            result = {"request": step["request"], "revision": step["revision"], "json": '"done"'}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "submit", {**result, **own})
                await anyio.to_thread.run_sync(wait_for, begun.exists, PATIENCE_S)
                tasks.cancel_scope.cancel()
            await anyio.to_thread.run_sync(world.stop_daemon)
            begun.unlink()
            await anyio.to_thread.run_sync(world.home.run, "start")
            await anyio.to_thread.run_sync(wait_for, begun.exists, PATIENCE_S)
            (world.home.project / "long_judge").touch()
            again = {"session": (await called(client, "attach", id="desk"))["session"]}
            verdict = "validating"
            while verdict == "validating":
                verdict = (await called(client, "submit", **result, **again))["verdict"]
            assert verdict == "accepted"
            assert (await called(client, "submit", **result, **again))["verdict"] == "accepted"
            assert (await other_than(client, step, again))["prompt"] == "Second."
            await called(client, "cancel", run=run, **again)
    kinds = [event.kind for event in world.events(run)]
    assert kinds.count("submitted") == 1
    assert [step.status for step in world.view(run).steps if step.node == "first"] == ["completed"]


async def other_than(client: McpClient, step: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """What my_step gives once it does not give this step."""
    while True:
        found = await called(client, "my_step", wait_s=1, **own)
        if found["state"] != "nothing" and found.get("request") != step["request"]:
            return found
        await anyio.sleep(0.02)


async def test_a_host_outlives_a_stop_of_the_daemon_and_has_its_step_again(world: World) -> None:
    with anyio.fail_after(60):
        async with over_stdio(world) as client:
            run = (await called(client, "start", workflow="agent_review", input={"version": 3}))["run"]
            first = await called(client, "my_step")
            await anyio.to_thread.run_sync(world.stop_daemon)
            await anyio.to_thread.run_sync(world.home.run, "start")
            step = await called(client, "my_step")
            assert (step["run"], step["request"]) == (run, first["request"])
            result = {"request": step["request"], "revision": step["revision"], "value": {"verdict": "ship"}}
            assert (await called(client, "submit", **result))["verdict"] == "accepted"
