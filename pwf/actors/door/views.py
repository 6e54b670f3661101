"""Subscriptions: a snapshot of a run or of a list of runs, then patches.

Owns, per subscription, the document that its client has, and per view the newest one: however many follow it, a change
is read once and its patch is made once. Promises: it listens before the snapshot is read,
so no change is missed; revisions are consecutive; a slow client gets the newest state when it is ready for
one, never a queue of old ones; at most `EVENTS_PER_S` go to one subscription. Null and absent are the same
in a view's own fields; where a patch would lose a null that means something, a whole snapshot is sent.
In: wake-ups of `Changes`. Out: events on the client's connection. A subscription that fails ends alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import msgspec
import trio

from pwf.actors.base.changes import Changes, Watch
from pwf.actors.base.logging import Log
from pwf.actors.operations.caller import Caller
from pwf.errors import Conflict, FrameTooLarge, NotFound, PwfError, Rejected
from pwf.protocol.frames import Event
from pwf.protocol.merge_patch import diff

EVENTS_PER_S = 20
SUBSCRIPTIONS_MAX = 32  # per connection
REREAD_S = 60.0  # the store's own change sets are complete; this only bounds a bug
RETRY_S = 1.0

Document = dict[str, Any]
Read = Callable[[], Awaitable[msgspec.Struct]]


class Views:
    """Handle of all subscriptions; their tasks live in the nurseries of their connections."""

    def __init__(self, changes: Changes, log: Log) -> None:
        self._changes = changes
        self._log = log
        self._topics: dict[Hashable, _Topic] = {}
        self.subscriptions = 0

    def subscribe(self, caller: Caller, subscription: str, key: str, view: Hashable, read: Read) -> None:
        """Begin: the first event is the snapshot. `key` is what wakes it; `read` gives the newest state of `view`,
        which stands for the same state for every subscriber.

        Raises `Conflict` for an id that is in use on this connection.
        """
        if subscription in caller.subscriptions:
            raise Conflict(f"subscription {subscription!r} exists on this connection")
        if len(caller.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise Rejected(f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions")
        topic = self._topics.setdefault(view, _Topic(read))
        follower = _Follower(caller, subscription, topic, self._log)
        topic.followers += 1
        caller.subscriptions[subscription] = follower.end

        async def follow() -> None:
            self.subscriptions += 1
            try:
                with self._changes.calling(key, topic.change), self._changes.watch(key) as follower.watch:
                    topic.change()  # whoever comes anew sees what is, also where nobody says that it changes
                    await follower.run()
            finally:
                self.subscriptions -= 1
                topic.followers -= 1
                if not topic.followers:
                    self._topics.pop(view, None)
                if caller.subscriptions.get(subscription) == follower.end:
                    del caller.subscriptions[subscription]

        caller.spawn(follow)

    def unsubscribe(self, caller: Caller, subscription: str) -> None:
        """End it. `NotFound` when there is none of that id."""
        end = caller.subscriptions.pop(subscription, None)
        if end is None:
            raise NotFound(f"there is no subscription {subscription!r} on this connection")
        end()


class _Topic:
    """One view's newest state, for all who follow it."""

    def __init__(self, read: Read) -> None:
        self.followers = 0
        self._read = read
        self._changes = 0
        self._shown = -1  # the changes that `_document` surely has
        self._document: Document = {}
        self._reading: trio.Event | None = None
        self._patch: tuple[Document, Document, bytes | None] | None = None

    def change(self) -> None:
        """What was read before may be old."""
        self._changes += 1

    async def document(self) -> Document:
        """The state as it is now or later; the very same object while nothing has changed.

        A cancelled reader leaves it to the next. Raises what reading raises.
        """
        wanted = self._changes
        while self._shown < wanted:
            if self._reading is not None:
                await self._reading.wait()
                continue
            reading = self._reading = trio.Event()
            has = self._changes
            try:
                document = as_document(await self._read())
            finally:
                self._reading = None
                reading.set()
            self._shown = has
            if document != self._document:
                self._document = document
        return self._document

    def patch(self, old: Document, new: Document) -> bytes | None:
        """The encoded patch from one state to the other; None where a snapshot must be sent."""
        if self._patch is None or self._patch[0] is not old or self._patch[1] is not new:
            found = diff(old, new)
            self._patch = (old, new, None if found is None else msgspec.json.encode(found))
        return self._patch[2]


class _Follower:
    def __init__(self, caller: Caller, subscription: str, topic: _Topic, log: Log) -> None:
        self._caller = caller
        self._subscription = subscription
        self._topic = topic
        self._log = log
        self._revision = 0
        self._sent: Document = {}
        self._ended = False
        self.watch = Watch()

    def end(self) -> None:
        """Stop after what is being sent now: an event is never cut off in the middle."""
        self._ended = True
        self.watch.wake()

    async def run(self) -> None:
        while not self._ended:
            told = await self._tell()
            if told is None:
                return
            await trio.sleep(1 / EVENTS_PER_S)
            if not await self.watch.wait(REREAD_S if told else RETRY_S):
                self._topic.change()  # nobody says so when files or the load change, or a wake-up was lost

    async def _tell(self) -> bool | None:
        """Send what is new. False: the state could not be read just now. None: the subscription has ended."""
        try:
            document = await self._topic.document()
        except NotFound:
            await self._send("end", b"{}")
            return None
        except PwfError as error:
            self._log.warning("view.unreadable", subscription=self._subscription, code=error.code)
            return False
        if self._revision and document is self._sent:
            return True
        try:
            await self._change(document)
        except FrameTooLarge:
            self._log.warning("view.too_large", subscription=self._subscription)
            await self._send("end", b"{}")
            return None
        return True

    async def _change(self, document: Document) -> None:
        patch = self._topic.patch(self._sent, document) if self._revision else None
        if patch is None:
            await self._send("snapshot", msgspec.json.encode(document))
        elif patch != b"{}":
            await self._send("patch", patch)
        self._sent = document

    async def _send(self, kind: Any, body: bytes) -> None:
        event = Event(
            subscription=self._subscription, kind=kind, revision=self._revision + 1, body=msgspec.Raw(body)
        )
        await self._caller.send_event(event)
        self._revision += 1


def as_document(view: msgspec.Struct) -> Document:
    """The view as plain JSON data, as its client will hold it."""
    document: Document = msgspec.json.decode(msgspec.json.encode(view))
    return document
