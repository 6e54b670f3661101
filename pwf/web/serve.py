"""The server: hypercorn on trio, with one connection to the daemon.

Promises: it listens where the configuration says, loopback unless that says otherwise; no request is written into a
log, since its address may be a token. Ends with an error once the daemon is gone for good.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator

import trio
from hypercorn.config import Config as ServerConfig
from hypercorn.config import Sockets
from hypercorn.trio.run import worker_serve
from hypercorn.typing import Framework
from hypercorn.utils import wrap_app

from pwf.client.aio import Client, connect
from pwf.config import Web
from pwf.errors import PwfError, Unavailable
from pwf.places import Places
from pwf.web.app import make_app

READ_S_MAX = 30.0  # between two pieces of a request
STOP_S_MAX = 0.5  # for answers that are on their way
BACKLOG = 64


def serve(
    at: Places,
    web: Web,
    *,
    autostart: bool | None,
    serving: Callable[[], None],
    until_stdin_ends: bool = False,
) -> None:
    """Serve the pages until SIGTERM or SIGINT. `serving` is called in a thread once they can be opened.

    Raises `Unavailable` where nothing can listen there, and `DaemonUnreachable`.
    """
    with listening(web) as listener:
        trio.run(_serve, at, web, autostart, serving, until_stdin_ends, listener)


@contextlib.contextmanager
def listening(web: Web) -> Iterator[socket.socket]:
    """A socket that listens where the configuration says."""
    try:
        family, _, _, _, address = socket.getaddrinfo(web.host, web.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        raise Unavailable(
            f"{web.host} port {web.port} can not be listened to: {error.strerror or error}",
            hint="is another pwf web there? set port in the section [web] of the configuration",
        ) from error
    with listener:
        yield listener


async def _serve(
    at: Places,
    web: Web,
    autostart: bool | None,
    serving: Callable[[], None],
    until_stdin_ends: bool,
    listener: socket.socket,
) -> None:
    async with connect(at, autostart=autostart) as daemon:
        app: Framework = make_app(daemon, web, web.urls)  # type: ignore[assignment]  # hypercorn has ASGI types of its own
        end = _End()

        async def served(task_status: trio.TaskStatus[list[str]]) -> None:
            await worker_serve(
                wrap_app(app, 0, "asgi"),
                _settings(),
                sockets=Sockets([], [listener], []),
                shutdown_trigger=end.wait,
                task_status=task_status,
            )
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            await nursery.start(served)
            nursery.start_soon(end.by_signal)
            nursery.start_soon(end.by_loss, daemon)
            if until_stdin_ends:
                nursery.start_soon(end.by_stdin)
            await end.unless(serving)
    if end.why is not None:
        raise end.why


class _End:
    """When to stop serving, and why if nobody asked for it."""

    def __init__(self) -> None:
        self.why: PwfError | None = None
        self._event = trio.Event()

    async def wait(self) -> None:
        """Until then."""
        await self._event.wait()

    async def by_signal(self) -> None:
        """Somebody asks for it."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                self._event.set()

    async def by_stdin(self) -> None:
        """Who has started this process is gone."""
        async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
            while await stdin.receive_some():
                pass
        self._event.set()

    async def unless(self, serving: Callable[[], None]) -> None:
        """Nobody could be told that it serves."""
        try:
            await trio.to_thread.run_sync(serving)
        except PwfError as error:
            self.why = error
            self._event.set()

    async def by_loss(self, daemon: Client) -> None:
        """The daemon is gone."""
        self.why = await daemon.lost()
        self._event.set()


def _settings() -> ServerConfig:
    settings = ServerConfig()
    settings.accesslog = None
    settings.loglevel = "WARNING"
    settings.include_server_header = False
    settings.read_timeout = int(READ_S_MAX)
    settings.graceful_timeout = STOP_S_MAX
    settings.shutdown_timeout = STOP_S_MAX
    return settings
