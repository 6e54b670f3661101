"""The official client, in memory, on the tools of one host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from mcp.client.client import Client as McpClient

from pwf.client import connect
from pwf.mcp.server import make_server
from pwf.mcp.tools import Grant, Host
from tests.client.conftest import daemon, home
from tests.client.fake_daemon import FakeDaemon

__all__ = ["daemon", "home"]

Open = Callable[..., AbstractAsyncContextManager[McpClient]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def mcp(daemon: FakeDaemon) -> Open:
    """`async with mcp("worker") as client:`, with a bound of `wait_s_max`."""

    @asynccontextmanager
    async def opened(
        grant: Grant = "worker", *, wait_s_max: float = 5, session: str = "s1", **options: Any
    ) -> AsyncIterator[McpClient]:
        async with connect(daemon.places, autostart=False) as client:
            host = Host(client, session, wait_s_max=wait_s_max)
            async with McpClient(make_server(lambda given: host, grant, {}), **options) as found:
                yield found

    return opened
