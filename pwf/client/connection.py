"""A connection to the daemon's socket for the asynchronous client: bytes in, bytes out.

anyio's own Unix streams are not used: under asyncio, cancelling their `receive` in the very moment in which data
arrives reports an InvalidStateError to the event loop, and a client is closed just when its last answers come.
"""

from __future__ import annotations

import socket

import anyio

from pwf.client.core import CallReply
from pwf.errors import PwfError


class Connection:
    """One reading and one writing task at a time. Use it as a context manager, or call `close`."""

    def __init__(self, connected: socket.socket) -> None:
        """Takes over a connected socket that does not block."""
        self._socket = connected

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; no task may be waiting on it any more."""
        self._socket.close()

    async def receive(self, bytes_max: int) -> bytes:
        """Some bytes; empty at the end. Raises `OSError` when the connection is lost."""
        while True:
            await anyio.wait_readable(self._socket)
            try:
                return self._socket.recv(bytes_max)
            except (BlockingIOError, InterruptedError):
                continue

    async def send(self, data: bytes) -> None:
        """All of it. Raises `OSError` when the connection is lost; a part may have been sent then, or on cancel."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except (BlockingIOError, InterruptedError):
                await anyio.wait_writable(self._socket)


class Waiter:
    """One call that waits for its answer."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.answer: CallReply | PwfError | None = None
