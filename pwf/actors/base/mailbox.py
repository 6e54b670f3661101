"""A bounded inbox: what an actor's handle puts in, its one task takes out.

Promises: order is kept; a sender waits while the inbox is full; once it is closed, senders get `Unavailable`.
Wake-ups that may be lost or doubled don't belong here (they are events that carry nothing).
"""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from pwf.errors import Unavailable

T = TypeVar("T")


class Mailbox(Generic[T]):
    """One receiver, many senders. `owner` names the actor in errors."""

    def __init__(self, bound: int, owner: str) -> None:
        self._send, self._receive = trio.open_memory_channel[T](bound)
        self._owner = owner

    async def put(self, item: T) -> None:
        """Hand over; waits while the inbox is full. Cancelled: it was not handed over.

        A checkpoint only when it waits: who hands over waits for the answer next.
        """
        try:
            try:
                self._send.send_nowait(item)
            except trio.WouldBlock:
                await self._send.send(item)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Unavailable(f"{self._owner} has stopped") from None

    async def take(self, most: int) -> list[T]:
        """Wait for one, then take what else is there, at most `most` in all. A checkpoint only when it waits."""
        found: list[T] = []
        while len(found) < most:
            try:
                found.append(self._receive.receive_nowait())
            except trio.WouldBlock:
                if found:
                    break
                found.append(await self._receive.receive())
        return found

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return self._receive.statistics().current_buffer_used == 0

    def close(self) -> list[T]:
        """Take no more; what was put in and never taken."""
        left: list[T] = []
        while True:
            try:
                left.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break
        self._receive.close()
        return left
