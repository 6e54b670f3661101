"""A bounded inbox: what an actor's handle puts in, its one task takes out.

Promises: order is kept; a sender waits while the inbox is full; once the actor has stopped, senders get `Unavailable`,
and so does everybody whose message waits or is worked on then.
Wake-ups that may be lost or doubled don't belong here (they are events that carry nothing).
It does what a memory channel of trio does for one receiver, at less cost: every step passes several of these.
"""

from __future__ import annotations

import contextlib
from collections import deque
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

    __slots__ = ("_bound", "_is_closed", "_items", "_owner", "_receiver", "_senders")

    def __init__(self, bound: int, owner: str) -> None:
        self._bound = bound
        self._owner = owner
        self._items: deque[T] = deque()
        self._receiver: trio.lowlevel.Task | None = None  # while it waits
        self._senders: dict[trio.lowlevel.Task, T] = {}  # that wait for room, in order
        self._is_closed = False

    # --- for the handle ---

    async def put(self, item: T) -> None:
        """Hand over; waits while the inbox is full. Cancelled: it was not handed over.

        A checkpoint only when it waits: who hands over waits for the answer next.
        """
        if self.put_now(item):
            return
        if self._is_closed:
            raise self._stopped()
        task = trio.lowlevel.current_task()
        self._senders[task] = item

        def withdraw(_: object) -> trio.lowlevel.Abort:
            del self._senders[task]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(withdraw)

    async def put_surely(self, item: T) -> None:
        """The same for what has happened already, and must be learned of: a cancel waits until it is handed over.

        Only for an actor that waits for nothing but its inbox, so that this is soon.
        """
        if not self.put_now(item):
            with trio.CancelScope(shield=True):
                await self.put(item)

    def put_now(self, item: T) -> bool:
        """Hand over without waiting. False: the inbox is full, or closed."""
        if self._is_closed or len(self._items) >= self._bound:
            return False
        self._items.append(item)
        if self._receiver is not None:
            task, self._receiver = self._receiver, None
            trio.lowlevel.reschedule(task)
        return True

    # --- for the actor ---

    async def take(self, most: int, *, gathers: bool = False) -> list[T]:
        """Wait for one, then take what else is there, at most `most` in all. A checkpoint only when it waits.

        `gathers`: when it has waited it lets everybody else go first once, who may have more.
        """
        if not self._items:
            while not self._items:
                self._receiver = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
            if gathers:
                await trio.lowlevel.checkpoint()
        return self.take_now(most)

    def _stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        self._receiver = None
        return trio.lowlevel.Abort.SUCCEEDED

    def take_now(self, most: int | None = None) -> list[T]:
        """What is there, at most `most`. Does not wait."""
        items = self._items
        count = len(items) if most is None else min(most, len(items))
        found = [items.popleft() for _ in range(count)]
        while self._senders and len(items) < self._bound:
            self._let_in()
        return found

    def _let_in(self) -> None:
        """The item of the sender that has waited longest."""
        task = next(iter(self._senders))
        self._items.append(self._senders.pop(task))
        trio.lowlevel.reschedule(task)

    async def take_one(self, by: float) -> T | None:
        """The next, or None when none has come by that time of trio's clock."""
        with trio.CancelScope(deadline=by):
            return (await self.take(1))[0]
        return None

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._items)

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._items

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
        self._is_closed = True
        while self._senders:
            self._let_in()
        return self.take_now()

    def _stopped(self) -> Unavailable:
        return Unavailable(f"{self._owner} has stopped")


async def ask(inbox: Mailbox[Any], message: Message[R]) -> R:
    """Put a message into an inbox and wait for its answer. Cancelled: see `Reply`."""
    await inbox.put(message)
    return await message.reply.wait()
