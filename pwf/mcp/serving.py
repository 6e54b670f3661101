"""One process of `pwf mcp`, from its connection to the daemon to the end of its host.

Owns who calls: over stdio the one host that started it, over HTTP each that has attached. The SDK's server is
asyncio's here, since its HTTP side is; the client library works there as well.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from pwf.client.aio import Client, connected
from pwf.client.session import open_session
from pwf.client.starting import autostart_allowed
from pwf.errors import NotFound
from pwf.ids import Ids, check_key
from pwf.mcp.forms import Forms
from pwf.mcp.host_process import host_pid
from pwf.mcp.http import listen, serve_http, token_at
from pwf.mcp.server import make_server, serve_stdio
from pwf.mcp.session import HostSession
from pwf.mcp.tools import Grant, Host
from pwf.places import places

ATTACHED_MAX = 256  # the one that has been silent the longest makes place
SESSION = {"type": "string", "description": "The session that the tool attach has given."}


def serve_host(grant: Grant, *, wait_s_max: float, session: str | None) -> None:
    """Serve the host that started this process, until it is gone."""

    async def main() -> None:
        name, agent = session or Ids().new(), host_pid(os.getpid())
        async with (
            _project(grant) as project,
            opened(name, project, wait_s_max, agent) as host,
            anyio.create_task_group() as tasks,
        ):
            await serve_stdio(make_server(lambda given: host, grant, {}, forms=Forms(places(), tasks)))
            tasks.cancel_scope.cancel()

    anyio.run(main)


def serve_hosts(grant: Grant, *, wait_s_max: float, port: int, ready: Callable[[str, Path], None]) -> None:
    """Serve hosts over HTTP until the process is told to end. `ready` gets the address and the token's file."""

    async def main() -> None:
        path = places().home / "mcp.token"
        async with _project(grant) as project, anyio.create_task_group() as tasks:
            token = token_at(path)
            attached = Attached(tasks, lambda session_id: opened(session_id, project, wait_s_max))
            server = make_server(attached.of, grant, {"session": SESSION}, attached.attach)
            with listen(port) as at:
                await serve_http(server, token, at, lambda address: ready(address, path))
            tasks.cancel_scope.cancel()

    anyio.run(main)


@asynccontextmanager
async def _project(grant: Grant) -> AsyncIterator[Client | None]:
    """What an operator acts with. A daemon is started here where none serves."""
    async with connected(Client(places(), autostart=autostart_allowed(), stays=True)) as client:
        yield client if grant == "operator" else None


@asynccontextmanager
async def opened(
    session_id: str, project: Client | None, wait_s_max: float, agent: int | None = None
) -> AsyncIterator[Host]:
    """A host with a session, which is let go in the end. `agent`: the host's process, where it is known."""
    async with (
        open_session(session_id, name="mcp", host_pid=agent) as session,
        anyio.create_task_group() as tasks,
    ):
        own = HostSession(session)
        tasks.start_soon(own.watch)
        try:
            yield Host(own, project, wait_s_max=wait_s_max)
        finally:
            await own.leave()
            tasks.cancel_scope.cancel()


class Attached:
    """The hosts that have attached over HTTP, by the handle that each was given: each a task, with a session."""

    def __init__(
        self, tasks: TaskGroup, open_host: Callable[[str], AbstractAsyncContextManager[Host]]
    ) -> None:
        self._tasks = tasks
        self._open_host = open_host
        self._hosts: OrderedDict[str, tuple[Host, anyio.Event]] = OrderedDict()

    async def attach(self, session_id: str = "") -> dict[str, str]:
        """A session, a new one where none is named: its id, and the handle to it, which nobody can guess. Who had it
        here before is let go.
        """
        if session_id:
            check_key(session_id, "session id")
        for handle, (host, over) in list(self._hosts.items()):
            if host.own.session_id == session_id:
                over.set()
                del self._hosts[handle]
        session_id = session_id or Ids().new()
        handle = await self._tasks.start(self._hold, session_id)
        while len(self._hosts) > ATTACHED_MAX:
            _, (_, over) = self._hosts.popitem(last=False)
            over.set()
        return {"session": handle, "id": session_id}

    def of(self, given: dict[str, Any]) -> Host:
        """Whose call it is; the handle is taken from what was given. Raises `NotFound`."""
        handle = given.pop("session", None)
        found = self._hosts.get(handle) if isinstance(handle, str) else None
        if found is not None and found[0].own.session.is_over:
            found[1].set()  # its task lets it go
            del self._hosts[str(handle)]
            found = None
        if found is None:
            raise NotFound("there is no such session here; call the tool attach for one")
        self._hosts.move_to_end(str(handle))
        return found[0]

    async def _hold(self, session_id: str, *, task_status: TaskStatus[str]) -> None:
        handle = Ids().token()
        over = anyio.Event()
        async with self._open_host(session_id) as host:
            self._hosts[handle] = (host, over)
            task_status.started(handle)
            await over.wait()
