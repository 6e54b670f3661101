"""Who sent a request, as its handler sees them. The connection that made it owns it; others read, and send events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from pwf.actors.sessions.session_coordinator import SessionHandle
from pwf.host.identity import Identity
from pwf.protocol.frames import Event, Request, Response


@dataclass(eq=False)
class Caller:
    """The client of one connection, and the way to send it events. Only the connection changes its facts; `session` is
    set by the operation that attaches one.
    """

    number: int
    send_event: Callable[[Event], Awaitable[None]]
    client_id: str = ""
    peer: Identity | None = None  # the process that connected; None where it could not be told
    session: SessionHandle | None = None  # that has attached here
    begin: Callable[[Callable[[], Awaitable[None]]], None] | None = (
        None  # a task that ends with the connection
    )
    attaching: trio.Event | None = None  # what comes after an attach waits for it
    received_ns: int | None = None  # by `time.monotonic_ns`: all its requests so far had come by then
    is_gone: bool = False
    _wakes: set[Callable[[], None]] = field(default_factory=set)

    @contextmanager
    def calling(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` when the client goes away. It must only wake others."""
        self._wakes.add(wake)
        try:
            yield
        finally:
            self._wakes.discard(wake)

    def end(self) -> None:
        """For the connection: the client has gone, and whoever serves it beyond its requests is woken."""
        self.is_gone = True
        for wake in tuple(self._wakes):
            wake()


Handler = Callable[[Request, Caller], Awaitable[Response]]
