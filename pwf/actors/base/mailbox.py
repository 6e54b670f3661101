"""A bounded inbox: what an actor's handle puts in, its one task takes out.

Promises: order is kept; a sender waits while the inbox is full; once the actor has stopped, senders get `Unavailable`,
and so does everybody whose message waits or is worked on then.
Wake-ups that may be lost or doubled don't belong here (they are events that carry nothing).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec
import trio

from pwf.actors.base.reply import Reply, Withdrawn
from pwf.errors import PwfError, Unavailable

T = TypeVar("T")
R = TypeVar("R")


class Message(msgspec.Struct, Generic[R], frozen=True, kw_only=True, eq=False):
    """What an actor is asked for, and the place of its one answer."""

    reply: Reply[R] = msgspec.field(default_factory=Reply)


class Mailbox(Generic[T]):
    """One receiver, many senders. `owner` names the actor in errors."""

    def __init__(self, bound: int, owner: str) -> None:
        self._send, self._receive = trio.open_memory_channel[T](bound)
        self._owner = owner

    # --- for the handle ---

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
            raise self._stopped() from None

    async def put_surely(self, item: T) -> None:
        """The same for what has happened already, and must be learned of: a cancel waits until it is handed over.

        Only for an actor that waits for nothing but its inbox, so that this is soon.
        """
        if not self.put_now(item):
            with trio.CancelScope(shield=True):
                await self.put(item)

    def put_now(self, item: T) -> bool:
        """Hand over without waiting. False: the inbox is full, or closed."""
        try:
            self._send.send_nowait(item)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    # --- for the actor ---

    async def take(self, most: int) -> list[T]:
        """Wait for one, then take what else is there, at most `most` in all. A checkpoint only when it waits."""
        return self.take_now(most) or [await self._receive.receive(), *self.take_now(most - 1)]

    def take_now(self, most: float = math.inf) -> list[T]:
        """What is there, at most `most`. Does not wait."""
        found: list[T] = []
        with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
            while len(found) < most:
                found.append(self._receive.receive_nowait())
        return found

    async def take_one(self, by: float) -> T | None:
        """The next, or None when none has come by that time of trio's clock."""
        with trio.CancelScope(deadline=by):
            return (await self.take(1))[0]
        return None

    @property
    def count(self) -> int:
        """How many wait."""
        return self._receive.statistics().current_buffer_used

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return self.count == 0

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """The actor serves within this block. When it ends, however that comes, those who still wait are told."""
        try:
            yield
        finally:
            for left in self.close():
                if isinstance(left, Message):
                    left.reply.fail(self._stopped())

    async def answer(self, message: Message[R], work: Callable[[Any], Awaitable[R]]) -> bool:
        """Do the work of a message (`work(message)`) and answer it; whether the asker has the answer.

        A `PwfError` is an answer. Any other end of the work is the actor's, and the asker is told that it has stopped.
        """
        if message.reply.withdrawn:
            return False
        try:
            value = await work(message)
        except Withdrawn:
            return False
        except PwfError as error:
            return message.reply.fail(error)
        except BaseException:
            message.reply.fail(self._stopped())
            raise
        return message.reply.give(value)

    def close(self) -> list[T]:
        """Take no more; what was put in and never taken."""
        left = self.take_now()
        self._receive.close()
        return left

    def _stopped(self) -> Unavailable:
        return Unavailable(f"{self._owner} has stopped")


async def ask(inbox: Mailbox[Any], message: Message[R]) -> R:
    """Put a message into an inbox and wait for its answer. Cancelled: see `Reply`."""
    await inbox.put(message)
    return await message.reply.wait()
