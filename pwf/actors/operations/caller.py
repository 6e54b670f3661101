"""Who sent a request, as its handler sees them. The connection that made it owns it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from pwf.protocol.frames import Event, Request, Response


@dataclass(eq=False)
class Caller:
    """Who sent a request, for handlers: the client, and the way to send it events."""

    number: int
    send_event: Callable[[Event], Awaitable[None]]
    client_id: str = ""
    subscriptions: dict[str, Callable[[], None]] = field(default_factory=dict)
    nursery: trio.Nursery | None = None
    received_ns: int | None = None  # by `time.monotonic_ns`: all its requests so far had come by then

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task for as long as this connection lives."""
        assert self.nursery is not None
        self.nursery.start_soon(task)


Handler = Callable[[Request, Caller], Awaitable[Response]]
