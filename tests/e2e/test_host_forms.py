"""A decision as a form of an MCP host, with the real daemon, `pwf mcp serve` and the official client over stdio."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters

from tests.e2e.home import Home, wait_for
from tests.e2e.test_decisions import RELEASE
from tests.e2e.world import PATIENCE_S
from tests.mcp.conftest import called
from tests.secret_files import keep_secret

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

CONFIG = """
[channels.mcp]
kind = "mcp"
token = "hosts"
hosts = ["claude-code"]
"""
AUDIENCE = '[audiences.operator]\nchannels = ["mcp"]\n'
TOKEN = "a-word-of-the-user"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def asked(home: Home) -> Home:
    """A run waits for a decision of an audience that names the channel."""
    home.config(CONFIG + AUDIENCE)
    keep_secret(home.home / "secrets" / "hosts", TOKEN)
    home.workflow("decide_release", RELEASE)
    home.run("run", "decide_release", "--until", "parked", code=7)
    return home


class Person:
    """Sees forms, and says `ship` to each from the moment on when `decides` is set."""

    def __init__(self) -> None:
        self.forms: list[Any] = []
        self.decides = anyio.Event()

    async def ask(self, context: Any, params: Any) -> types.ElicitResult:
        self.forms.append(params)
        await self.decides.wait()
        return types.ElicitResult(action="accept", content={"choice": "ship"})

    async def sees(self, count: int) -> None:
        """Until so many forms were shown."""
        await anyio.to_thread.run_sync(wait_for, lambda: len(self.forms) >= count, PATIENCE_S)


def host(home: Home, person: Person, mode: str) -> AbstractAsyncContextManager[McpClient]:
    words = ["-m", "pwf", "-C", str(home.project), "mcp", "serve"]
    program = StdioServerParameters(command=sys.executable, args=words, env=home.environment)
    info = types.Implementation(name="claude-code", version="1")
    return McpClient(program, elicitation_callback=person.ask, client_info=info, mode=mode)


async def until_decided(home: Home, client: McpClient) -> str:
    """The run's end; the host calls meanwhile, as its model would."""
    while True:
        await called(client, "my_step", wait_s=0)
        done = await anyio.to_thread.run_sync(lambda: home.json("show", "@last"))
        if done["summary"]["status"] == "completed":
            return str((await anyio.to_thread.run_sync(lambda: home.run("output", "@last"))).stdout)
        await anyio.sleep(0.05)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_what_the_person_at_a_host_accepts_decides_and_is_kept_as_theirs(
    asked: Home, mode: str
) -> None:
    person = Person()
    person.decides.set()
    with anyio.fail_after(60):
        async with host(asked, person, mode) as client:
            assert "ship text 1" in await until_decided(asked, client)
    (form,) = person.forms
    assert "s3cret-subject" not in repr(form)
    (decision,) = asked.json("decisions", "--all")["decisions"]
    winner = decision["winner"]
    assert (winner["who"], winner["channel"]) == ("mcp:the person at claude-code", "mcp")


async def test_a_form_that_was_open_when_the_daemon_died_is_there_again_and_decides_once(asked: Home) -> None:
    person = Person()
    with anyio.fail_after(90):
        async with host(asked, person, "legacy") as client:
            await called(client, "my_step", wait_s=0)
            await person.sees(1)
            await anyio.to_thread.run_sync(asked.kill_daemon)
            await anyio.to_thread.run_sync(lambda: asked.run("start"))
            await person.sees(2)
            person.decides.set()
            assert "ship text 1" in await until_decided(asked, client)
    (decision,) = asked.json("decisions", "--all")["decisions"]
    assert decision["winner"]["channel"] == "mcp"
    assert asked.json("channel", "status")["messages"] == []


async def test_an_audience_that_does_not_name_the_channel_is_asked_by_no_form(home: Home) -> None:
    home.config(CONFIG)
    keep_secret(home.home / "secrets" / "hosts", TOKEN)
    home.workflow("decide_release", RELEASE)
    home.run("run", "decide_release", "--until", "parked", code=7)
    person = Person()
    with anyio.fail_after(60):
        async with host(home, person, "legacy") as client:
            await called(client, "my_step", wait_s=1)
    assert person.forms == []
    assert home.json("channel", "status")["channels"][0]["messages"] == {}
