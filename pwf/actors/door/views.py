"""Views: subscriptions. Each is a snapshot of a run or of a list of runs, then patches.

Owns, per subscription, its task and the document that its client has, and per view the newest document: however many
follow it, a change is read once and its patch is made once. Promises: it listens before the snapshot is read,
so no change is missed; revisions are consecutive; a slow client gets the newest state when it is ready for
one, never a queue of old ones; at most `EVENTS_PER_S` go to one subscription, and `AT_ONCE` more after a rest. Null
and absent are the same in a view's own fields; where a patch would lose a null that means something, a whole snapshot
is sent.
In: `subscribe`, `unsubscribe`; wake-ups of `Changes`, and of a connection that ends. Out: events on the client's
connection. A subscription that fails ends alone. If the actor dies: the daemon ends.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import msgspec
import trio

from pwf.actors.base.apart import apart
from pwf.actors.base.changes import Changes, Watch
from pwf.actors.base.logging import Log
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.operations.caller import Caller
from pwf.errors import Conflict, FrameTooLarge, NotFound, PwfError, Rejected
from pwf.protocol.frames import Event
from pwf.protocol.merge_patch import diff

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 256
TAKE_MAX = 64
EVENTS_PER_S = 20
AT_ONCE = 4  # further events after a rest, which need not wait: a step that ends and the next one that asks
SUBSCRIPTIONS_MAX = 32  # per connection
REREAD_S = 60.0  # the store's own change sets are complete; this only bounds a bug
REREAD_CALM_S = 600.0  # where nothing but the store can change what is shown
RETRY_S = 1.0

Document = dict[str, Any]
Read = Callable[[], Awaitable[msgspec.Struct]]
IsCalm = Callable[[Any], bool]  # whether nothing but the store can change a state, neither time nor files


def never(_state: object) -> bool:
    """Of a view that time or files may change."""
    return False


# --- messages -------------------------------------------------------------------------------------------------


class Subscribe(Message[None], frozen=True, kw_only=True, eq=False):
    """Follow a view for a client: `key` is what wakes it; `read` gives the newest state of `view`."""

    caller: Caller
    subscription: str
    key: str
    view: Hashable
    read: Read
    is_calm: IsCalm


class Unsubscribe(Message[None], frozen=True, kw_only=True, eq=False):
    """Follow it no more."""

    caller: Caller
    subscription: str


# --- the handle -----------------------------------------------------------------------------------------------


class ViewsHandle:
    """What others hold of it."""

    def __init__(self, inbox: Mailbox[Subscribe | Unsubscribe]) -> None:
        self._inbox = inbox

    async def subscribe(
        self,
        caller: Caller,
        subscription: str,
        key: str,
        view: Hashable,
        read: Read,
        is_calm: IsCalm = never,
    ) -> None:
        """Begin: the first event is the snapshot. `key` is what wakes it; `read` gives the newest state of `view`,
        which stands for the same state for every subscriber; one that `is_calm` is seldom read without a wake-up. It
        ends with its connection.

        Raises `Conflict` for an id that is in use on this connection, `Rejected` for one too many.
        """
        await ask(
            self._inbox,
            Subscribe(
                caller=caller, subscription=subscription, key=key, view=view, read=read, is_calm=is_calm
            ),
        )

    async def unsubscribe(self, caller: Caller, subscription: str) -> None:
        """End it. `NotFound` when there is none of that id."""
        await ask(self._inbox, Unsubscribe(caller=caller, subscription=subscription))


# --- the actor ------------------------------------------------------------------------------------------------


class Views:
    """The actor, with one task for each subscription."""

    def __init__(self, changes: Changes, log: Log) -> None:
        self._changes = changes
        self._log = log
        self._topics: dict[Hashable, _Topic] = {}
        self._followers: dict[Caller, dict[str, _Follower]] = {}
        self._inbox: Mailbox[Subscribe | Unsubscribe] = Mailbox(INBOX_MAX, "the keeper of views")
        self.handle = ViewsHandle(self._inbox)

    async def run(self) -> None:
        """Serve until cancelled."""
        with self._inbox.open():
            async with trio.open_nursery() as nursery:
                while True:
                    for message in await self._inbox.take(TAKE_MAX):
                        try:
                            if isinstance(message, Subscribe):
                                nursery.start_soon(self._follow, message, self._handle_subscribe(message))
                            else:
                                self._handle_unsubscribe(message)
                        except PwfError as error:
                            message.reply.fail(error)
                        else:
                            message.reply.give(None)

    # --- handlers ---

    def _handle_subscribe(self, message: Subscribe) -> _Follower:
        caller, subscription = message.caller, message.subscription
        followers = self._followers.get(caller, {})
        if subscription in followers:
            raise Conflict(f"subscription {subscription!r} exists on this connection")
        if len(followers) >= SUBSCRIPTIONS_MAX:
            raise Rejected(f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions")
        topic = self._topics.setdefault(message.view, _Topic(message.read, message.is_calm))
        topic.followers += 1
        follower = _Follower(caller, subscription, topic, self._log)
        self._followers.setdefault(caller, {})[subscription] = follower
        return follower

    def _handle_unsubscribe(self, message: Unsubscribe) -> None:
        follower = self._followers.get(message.caller, {}).get(message.subscription)
        if follower is None:
            raise NotFound(f"there is no subscription {message.subscription!r} on this connection")
        follower.end()
        self._forget(follower)

    # --- the task of one subscription ---

    async def _follow(self, message: Subscribe, follower: _Follower) -> None:
        """One that fails ends alone."""
        topic, watch = follower.topic, follower.watch
        try:
            with (
                self._changes.calling(message.key, topic.change),
                self._changes.calling(message.key, watch.wake),
                message.caller.calling(watch.wake),
            ):
                topic.change()  # whoever comes anew sees what is, also where nobody says that it changes
                await follower.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client went away
        except Exception as error:  # noqa: BLE001 - supervision: the failure must stay its own
            self._log.error("view.failed", subscription=message.subscription, error=repr(error))
        finally:
            topic.followers -= 1
            if not topic.followers and self._topics.get(message.view) is topic:
                del self._topics[message.view]
            self._forget(follower)

    def _forget(self, follower: _Follower) -> None:
        """Free its name, unless another has it by now."""
        followers = self._followers.get(follower.caller, {})
        if followers.get(follower.subscription) is follower:
            del followers[follower.subscription]
            if not followers:
                del self._followers[follower.caller]


class _Topic:
    """One view's newest state, for all who follow it."""

    def __init__(self, read: Read, is_calm: IsCalm) -> None:
        self.followers = 0
        self.reread_s = REREAD_S
        self._read = read
        self._is_calm = is_calm
        self._changes = 0
        self._shown = -1  # the changes that `_document` surely has
        self._document: Document = {}
        self._bytes = 0  # of the newest
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
                state = await self._read()
                data = msgspec.json.encode(state)
            finally:
                self._reading = None
                reading.set()
            self._shown, self._bytes = has, len(data)
            self.reread_s = REREAD_CALM_S if self._is_calm(state) else REREAD_S
            document = msgspec.json.decode(data)  # as its clients will hold it
            if document != self._document:
                self._document = document
        return self._document

    async def patch(self, old: Document, new: Document) -> bytes | None:
        """The encoded patch from one state to the other; None where a snapshot must be sent."""
        if self._patch is not None and self._patch[0] is old and self._patch[1] is new:
            return self._patch[2]
        found = await apart(self._bytes, lambda: diff(old, new))
        patch = None if found is None else msgspec.json.encode(found)
        self._patch = (old, new, patch)
        return patch


class _Follower:
    """One subscription: what its client has, and whether it has ended."""

    def __init__(self, caller: Caller, subscription: str, topic: _Topic, log: Log) -> None:
        self.caller = caller
        self.subscription = subscription
        self.topic = topic
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
        even = -math.inf  # when the next would go, were they spread evenly
        while not (self._ended or self.caller.is_gone):
            told = await self._tell()
            if told is None:
                return
            now = trio.current_time()
            even = max(even, now - AT_ONCE / EVENTS_PER_S) + 1 / EVENTS_PER_S
            await trio.sleep(max(even - now, 0))
            if not await self.watch.wait(self.topic.reread_s if told else RETRY_S):
                self.topic.change()  # nobody says so when files or the load change, or a wake-up was lost

    async def _tell(self) -> bool | None:
        """Send what is new. False: the state could not be read just now. None: the subscription has ended."""
        try:
            document = await self.topic.document()
        except NotFound:
            await self._send("end", b"{}")
            return None
        except PwfError as error:
            self._log.warning("view.unreadable", subscription=self.subscription, code=error.code)
            return False
        if self._revision and document is self._sent:
            return True
        try:
            await self._change(document)
        except FrameTooLarge:
            self._log.warning("view.too_large", subscription=self.subscription)
            await self._send("end", b"{}")
            return None
        return True

    async def _change(self, document: Document) -> None:
        patch = await self.topic.patch(self._sent, document) if self._revision else None
        if patch is None:
            await self._send("snapshot", msgspec.json.encode(document))
        elif patch != b"{}":
            await self._send("patch", patch)
        self._sent = document

    async def _send(self, kind: Any, body: bytes) -> None:
        event = Event(
            subscription=self.subscription, kind=kind, revision=self._revision + 1, body=msgspec.Raw(body)
        )
        await self.caller.send_event(event)
        self._revision += 1
