"""One process of `pwf mcp`, from its connection to the daemon to the end of its host.

Owns who calls: over stdio the one host that started it, over HTTP each that has attached. The SDK's server is
asyncio's here, since its HTTP side is; the client library works there as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from pwf.client.aio import Client, connect
from pwf.errors import NotFound
from pwf.ids import Ids
from pwf.mcp.http import listen, serve_http, token_at
from pwf.mcp.server import make_server, serve_stdio
from pwf.mcp.tools import Grant, Host

ATTACHED_MAX = 256  # the one that has been silent the longest makes place
SESSION = {"type": "string", "description": "The session that the tool attach has given."}


def serve_host(grant: Grant, *, wait_s_max: float, session: str | None) -> None:
    """Serve the host that started this process, until it is gone."""

    async def main() -> None:
        async with connect() as client:
            host = Host(client, session or Ids().new(), wait_s_max=wait_s_max)
            await serve_stdio(make_server(lambda given: host, grant, {}))

    anyio.run(main)


def serve_hosts(grant: Grant, *, wait_s_max: float, port: int, ready: Callable[[str, Path], None]) -> None:
    """Serve hosts over HTTP until the process is told to end. `ready` gets the address and the token's file."""

    async def main() -> None:
        async with connect() as client:
            path = client.places.home / "mcp.token"
            token = token_at(path)
            attached = Attached(client, wait_s_max)
            server = make_server(attached.of, grant, {"session": SESSION}, attached.attach)
            with listen(port) as at:
                await serve_http(server, token, at, lambda address: ready(address, path))

    anyio.run(main)


class Attached:
    """The hosts that have attached over HTTP, by the handle that each was given."""

    def __init__(self, client: Client, wait_s_max: float) -> None:
        self._client = client
        self._wait_s_max = wait_s_max
        self._hosts: OrderedDict[str, Host] = OrderedDict()

    def attach(self) -> str:
        """A new session; its handle, which nobody can guess."""
        handle = Ids().token()
        self._hosts[handle] = Host(self._client, handle, wait_s_max=self._wait_s_max)
        while len(self._hosts) > ATTACHED_MAX:
            self._hosts.popitem(last=False)
        return handle

    def of(self, given: dict[str, Any]) -> Host:
        """Whose call it is; the handle is taken from what was given. Raises `NotFound`."""
        handle = given.pop("session", None)
        host = self._hosts.get(handle) if isinstance(handle, str) else None
        if host is None:
            raise NotFound("there is no such session here; call the tool attach for one")
        self._hosts.move_to_end(str(handle))
        return host
