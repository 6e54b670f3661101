"""Streamable HTTP on loopback, for hosts that start no process of their own.

Promises: listens on 127.0.0.1 only; every request names the token of a file that only its user can read, compared in
constant time, or gets 401 and leaves no trace; a foreign Host or Origin is refused (the SDK's guard against rebinding).
"""

from __future__ import annotations

import hmac
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Receive, Scope, Send

from pwf.errors import ConfigError, Unavailable
from pwf.ids import Ids

ADDRESS = "127.0.0.1"
PATH = "/mcp"
SCHEME = "bearer "
DRAIN_S_MAX = 3


def token_at(path: Path) -> str:
    """The token of this file, which is made where there is none. Raises `ConfigError` for one that others can read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return _read(path)
    with os.fdopen(descriptor, "w") as file:
        file.write(Ids().token() + "\n")
    return _read(path)


def _read(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="ascii") as file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
            raise ConfigError(
                f"{path} can be read by others", hint=f"rm {path}, and start again: a new one is made"
            )
        found = file.read().strip()
    if len(found) < 32:
        raise ConfigError(f"{path} holds no token", hint=f"rm {path}, and start again: a new one is made")
    return found


def guarded(app: ASGIApp, token: str) -> ASGIApp:
    """The app behind its token."""

    async def asgi(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _bears(scope, token):
            await app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return asgi


def _bears(scope: Scope, token: str) -> bool:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) != 1 or given[0][: len(SCHEME)].lower() != SCHEME.encode():
        return False
    return hmac.compare_digest(given[0][len(SCHEME) :].strip(), token.encode())


def listen(port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises `Unavailable` where it is taken."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((ADDRESS, port))
    except OSError as error:
        found.close()
        raise Unavailable(
            f"port {port} can not be used: {error.strerror}", hint="pwf mcp --http 0 takes a free one"
        ) from error
    return found


async def serve_http(
    server: Server[Any], token: str, at: socket.socket, ready: Callable[[str], None]
) -> None:
    """Serve until the process is told to end. `ready` gets the address, once it is listened at."""
    app = guarded(server.streamable_http_app(streamable_http_path=PATH), token)
    settings = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=DRAIN_S_MAX,
        server_header=False,
    )
    at.listen()
    ready(f"http://{ADDRESS}:{at.getsockname()[1]}{PATH}")
    await uvicorn.Server(settings).serve(sockets=[at])
