"""Subscriptions: a snapshot of a run or of a list of runs, then patches.

Owns, per subscription, the document that its client has. Promises: it listens before the snapshot is read,
so no change is missed; revisions are consecutive; a slow client gets the newest state when it is ready for
one, never a queue of old ones; at most `EVENTS_PER_S` go to one subscription. Null and absent are the same
in a view's own fields; where a patch would lose a null that means something, a whole snapshot is sent.
In: wake-ups of `Changes`. Out: events on the client's connection. A subscription that fails ends alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from pwf.actors.changes import Changes, Watch
from pwf.actors.connection import Caller
from pwf.actors.logging import Log
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
        self.subscriptions = 0

    def subscribe(self, caller: Caller, subscription: str, key: str, read: Read) -> None:
        """Begin: the first event is the snapshot. `key` is what wakes it; `read` gives the newest state.

        Raises `Conflict` for an id that is in use on this connection.
        """
        if subscription in caller.subscriptions:
            raise Conflict(f"subscription {subscription!r} exists on this connection")
        if len(caller.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise Rejected(f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions")
        follower = _Follower(caller, subscription, read, self._log)
        caller.subscriptions[subscription] = follower.end

        async def follow() -> None:
            self.subscriptions += 1
            try:
                with self._changes.watch(key) as follower.watch:
                    await follower.run()
            finally:
                self.subscriptions -= 1
                if caller.subscriptions.get(subscription) == follower.end:
                    del caller.subscriptions[subscription]

        caller.spawn(follow)

    def unsubscribe(self, caller: Caller, subscription: str) -> None:
        """End it. `NotFound` when there is none of that id."""
        end = caller.subscriptions.pop(subscription, None)
        if end is None:
            raise NotFound(f"there is no subscription {subscription!r} on this connection")
        end()


class _Follower:
    def __init__(self, caller: Caller, subscription: str, read: Read, log: Log) -> None:
        self._caller = caller
        self._subscription = subscription
        self._read = read
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
            await self.watch.wait(REREAD_S if told else RETRY_S)

    async def _tell(self) -> bool | None:
        """Send what is new. False: the state could not be read just now. None: the subscription has ended."""
        try:
            document = as_document(await self._read())
        except NotFound:
            await self._send("end", {})
            return None
        except PwfError as error:
            self._log.warning("view.unreadable", subscription=self._subscription, code=error.code)
            return False
        if self._revision and document == self._sent:
            return True
        try:
            await self._change(document)
        except FrameTooLarge:
            self._log.warning("view.too_large", subscription=self._subscription)
            await self._send("end", {})
            return None
        return True

    async def _change(self, document: Document) -> None:
        patch = diff(self._sent, document) if self._revision else None
        if patch is None:
            await self._send("snapshot", document)
        elif patch:
            await self._send("patch", patch)
        self._sent = document

    async def _send(self, kind: Any, body: Document) -> None:
        event = Event(
            subscription=self._subscription,
            kind=kind,
            revision=self._revision + 1,
            body=msgspec.Raw(msgspec.json.encode(body)),
        )
        await self._caller.send_event(event)
        self._revision += 1


def as_document(view: msgspec.Struct) -> Document:
    """The view as plain JSON data, as its client will hold it."""
    document: Document = msgspec.json.decode(msgspec.json.encode(view))
    return document
