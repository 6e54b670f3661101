"""The client's side of `pwf.client.v1` without any I/O: bytes in, happenings out, bytes to send.

Promises: each request is matched with its answer by id; each changing command has an idempotency key and is
sent again under it on a new connection; each subscription's document follows its revisions exactly, and a
gap asks for a new snapshot. Reads are sent again too: they change nothing. Nothing here waits, sleeps, or
touches a socket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, Unpack

import msgspec

from pwf.client.answers import error_from, failure_of
from pwf.errors import FrameTooLarge, InvalidArgument, ProtocolError, PwfError, ValueTooLarge
from pwf.ids import Ids
from pwf.protocol.frames import (
    EMPTY,
    FRAME_BYTES_MAX,
    PROTOCOL,
    ErrorFrame,
    Event,
    FrameSplitter,
    Hello,
    Request,
    Response,
    decode_daemon_frame,
    encode,
)
from pwf.protocol.merge_patch import apply
from pwf.protocol.operations import (
    OPERATIONS,
    VIEWS,
    Nothing,
    RunListPayload,
    SubscribePayload,
    UnsubscribePayload,
    ViewName,
)
from pwf.protocol.resources import ResourceListPayload, ResourceRef


class More(TypedDict, total=False):
    """What a request may say besides its payload.

    `expected_revision`: only if the run is still at it. `key`: sent again under it, a change is made once.
    `contents`: digests of fields of the payload that were sent before.
    """

    run_id: str | None
    expected_revision: int | None
    key: str | None
    contents: dict[str, str]


class CallReply(NamedTuple):
    """A good answer: the operation's result type, and `accepted` or `adopted` (done before, or by
    another).
    """

    result: Any
    outcome: str
    revision: int | None
    receipt: str | None


@dataclass(eq=False)
class Subscription:
    """A view that follows the daemon's state. `document` is the newest state as plain JSON data.

    `news` counts the states seen; `error` says why it ended, where it ended badly.
    """

    id: str
    view: ViewName
    run_id: str | None = None
    query: RunListPayload | None = None
    about: ResourceRef | ResourceListPayload | None = None
    document: dict[str, Any] | None = None
    revision: int = 0
    news: int = 0
    ended: bool = False
    error: PwfError | None = None

    def value(self) -> msgspec.Struct:
        """The newest state, typed. Raises `ProtocolError` when the daemon sent something else."""
        wanted = VIEWS[self.view].body
        try:
            return msgspec.json.decode(msgspec.json.encode(self.document), type=wanted)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"the daemon sent a view that is not a {wanted.__name__}: {error}") from error


class Answered(NamedTuple):
    """A request is settled: by a reply, or by the error it raises."""

    request_id: str
    reply: CallReply | PwfError


class News(NamedTuple):
    """A subscription has a new state, or has ended."""

    subscription: Subscription


class Broken(NamedTuple):
    """The daemon refused the connection, or does not speak the protocol: reconnecting would not help."""

    error: PwfError


Happening = Answered | News | Broken


@dataclass
class _Pending:
    request: Request
    subscription: Subscription | None = None
    opens: bool = False  # of what a connection begins with


Opening = Callable[[], list[tuple[str, msgspec.Struct]]]
Opened = Callable[[CallReply | PwfError], None]


@dataclass
class ClientCore:
    """State of one client over all its connections."""

    version: str
    ids: Ids = field(default_factory=Ids)
    client_id: str = ""

    def __post_init__(self) -> None:
        self.client_id = self.client_id or self.ids.new()
        self.hello: Hello | None = None
        self._splitter = FrameSplitter()
        self._outgoing = bytearray()
        self._pending: dict[str, _Pending] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._next_request = 0
        self._opening: Opening | None = None
        self._opened: Opened | None = None

    def open_with(self, opening: Opening, opened: Opened) -> None:
        """What every further connection begins with, before anything else, and who hears the answers."""
        self._opening, self._opened = opening, opened

    def connected(self) -> None:
        """A new connection stands: greet, then send again what has no answer, then restore the
        subscriptions.
        """
        self.hello = None
        self._splitter = FrameSplitter()
        self._outgoing.clear()
        self._outgoing += encode(Hello(protocol=PROTOCOL, version=self.version, client_id=self.client_id))
        again = [one for one in self._pending.values() if one.subscription is None and not one.opens]
        self._pending = {pending.request.request_id: pending for pending in again}
        for operation, payload in () if self._opening is None else self._opening():
            request = self._build(operation, payload)
            self._pending[request.request_id] = _Pending(request, opens=True)
            self._outgoing += encode(request)
        for pending in again:
            self._outgoing += encode(pending.request)
        for subscription in list(self._subscriptions.values()):
            self._ask_view(subscription)

    def take_outgoing(self) -> bytes:
        """The bytes to send now."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def request(self, operation: str, payload: msgspec.Struct | None = None, **more: Unpack[More]) -> str:
        """Put one request into the outgoing bytes; return its id. Raises when it does not fit the
        operation.
        """
        request = self._build(operation, payload, **more)
        try:
            data = encode(request)
        except FrameTooLarge as error:
            what, size = _largest(operation, payload, len(request.payload))
            raise ValueTooLarge(
                f"{what} has {size:,} bytes; one request holds at most {FRAME_BYTES_MAX:,}",
                hint="put the data into a file, and pass its path",
            ) from error
        self._pending[request.request_id] = _Pending(request)
        self._outgoing += data
        return request.request_id

    def forget(self, request_id: str) -> None:
        """Nobody waits for this answer any more; it is not sent again."""
        self._pending.pop(request_id, None)

    def subscribe(
        self,
        view: ViewName,
        *,
        run_id: str | None = None,
        query: RunListPayload | None = None,
        about: ResourceRef | ResourceListPayload | None = None,
    ) -> Subscription:
        """Follow a run, or a list of runs; with `about` a resource, or a list of them."""
        subscription = Subscription(id=self.ids.new(), view=view, run_id=run_id, query=query, about=about)
        self._subscriptions[subscription.id] = subscription
        self._ask_view(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop following. Doing it twice is fine."""
        subscription.ended = True
        if self._subscriptions.pop(subscription.id, None) is not None:
            self.forget(self.request("view.unsubscribe", UnsubscribePayload(id=subscription.id)))

    def receive(self, data: bytes) -> list[Happening]:
        """What the received bytes mean. After a `Broken` the connection is to be closed."""
        found: list[Happening] = []
        try:
            for line in self._splitter.feed(data):
                found += self._frame(line)
        except PwfError as error:
            found.append(Broken(error))
        return found

    def fail_all(self, error: PwfError) -> list[Happening]:
        """The client is given up: every request and subscription ends with this error."""
        found: list[Happening] = [Answered(request_id, error) for request_id in self._pending]
        for subscription in self._subscriptions.values():
            subscription.ended, subscription.error = True, error
            found.append(News(subscription))
        self._pending.clear()
        self._subscriptions.clear()
        return found

    # --- inside ---------------------------------------------------------------------------------------------

    def _build(self, operation: str, payload: msgspec.Struct | None, **more: Unpack[More]) -> Request:
        known = OPERATIONS.get(operation)
        if known is None:
            raise InvalidArgument(f"there is no operation {operation!r}")
        body = known.payload() if payload is None else payload
        if not isinstance(body, known.payload):
            raise InvalidArgument(
                f"{operation} takes a {known.payload.__name__}, not a {type(body).__name__}",
            )
        run_id, key = more.get("run_id"), more.get("key")
        if known.needs_run and run_id is None:
            raise InvalidArgument(f"{operation} needs a run_id")
        self._next_request += 1
        if key is None and known.changes:
            key = self.ids.token()
        return Request(
            request_id=f"{self.client_id}-{self._next_request}",
            client_id=self.client_id,
            operation=operation,
            run_id=run_id,
            expected_revision=more.get("expected_revision"),
            idempotency_key=key,  # an empty one too: the daemon refuses it
            payload=msgspec.Raw(msgspec.json.encode(body)) if body != Nothing() else EMPTY,
            contents=more.get("contents", {}),
        )

    def _ask_view(self, subscription: Subscription) -> None:
        about = subscription.about
        payload = SubscribePayload(
            id=subscription.id,
            view=subscription.view,
            query=subscription.query,
            resource=about if isinstance(about, ResourceRef) else None,
            resources=about if isinstance(about, ResourceListPayload) else None,
        )
        request = self._build("view.subscribe", payload, run_id=subscription.run_id)
        self._pending[request.request_id] = _Pending(request, subscription)
        self._outgoing += encode(request)

    def _frame(self, line: bytes) -> list[Happening]:
        frame = decode_daemon_frame(line)
        if isinstance(frame, ErrorFrame):
            return [Broken(error_from(frame.error))]
        if isinstance(frame, Hello):
            if frame.protocol != PROTOCOL:
                raise ProtocolError(
                    f"the daemon speaks {frame.protocol}, this client speaks {PROTOCOL}",
                    hint="pwf stop, and run the command again",
                )
            self.hello = frame
            return []
        if self.hello is None:
            raise ProtocolError("the daemon's first frame was not its hello")
        return self._answer(frame) if isinstance(frame, Response) else self._event(frame)

    def _answer(self, response: Response) -> list[Happening]:
        pending = self._pending.pop(response.request_id, None)
        if pending is None:
            return []  # given up, or answered on an earlier connection
        reply = _reply(pending.request.operation, response)
        if pending.opens:
            assert self._opened is not None
            self._opened(reply)
            return []
        subscription = pending.subscription
        if subscription is None:
            return [Answered(response.request_id, reply)]
        if isinstance(reply, PwfError):
            self._subscriptions.pop(subscription.id, None)
            subscription.ended, subscription.error = True, reply
            return [News(subscription)]
        return []

    def _event(self, event: Event) -> list[Happening]:
        subscription = self._subscriptions.get(event.subscription)
        if subscription is None:
            return []
        if event.kind == "end":
            self._subscriptions.pop(subscription.id, None)
            subscription.ended = True
            return [News(subscription)]
        body = _decode(event.body)
        if event.kind == "patch":
            if subscription.document is None or event.revision != subscription.revision + 1:
                self._restart(subscription)
                return []
            body = apply(subscription.document, body)
        elif body == subscription.document:
            subscription.revision = event.revision
            return []  # restored after a reconnect, and nothing has changed
        subscription.document, subscription.revision = body, event.revision
        subscription.news += 1
        if VIEWS[subscription.view].needs_run:
            # `@last` or a prefix may mean another run by the time of the next connection.
            subscription.run_id = body.get("summary", {}).get("run_id", subscription.run_id)
        return [News(subscription)]

    def _restart(self, subscription: Subscription) -> None:
        """Ask for a new snapshot under a new id, so that what is still on its way for the old one is
        ignored.
        """
        del self._subscriptions[subscription.id]
        self.forget(self.request("view.unsubscribe", UnsubscribePayload(id=subscription.id)))
        subscription.id = self.ids.new()
        self._subscriptions[subscription.id] = subscription
        self._ask_view(subscription)


def _largest(operation: str, payload: msgspec.Struct | None, whole: int) -> tuple[str, int]:
    """What was given that is the largest, and its size: that of the input, not of all that goes along with it."""
    given = {} if payload is None else {name: getattr(payload, name) for name in payload.__struct_fields__}
    sizes = {f"the {name}": len(bytes(raw)) for name, raw in given.items() if isinstance(raw, msgspec.Raw)}
    return max(sizes.items(), key=lambda item: item[1], default=(f"what {operation} was given", whole))


def _reply(operation: str, response: Response) -> CallReply | PwfError:
    failure = failure_of(response)
    if failure is not None:
        return failure
    wanted = OPERATIONS[operation].result
    try:
        result = msgspec.json.decode(EMPTY if response.result is None else response.result, type=wanted)
    except msgspec.MsgspecError as error:
        return ProtocolError(f"the daemon's answer to {operation} is not a {wanted.__name__}: {error}")
    return CallReply(result, response.outcome, response.revision, response.receipt)


def _decode(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(raw)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"an event's body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ProtocolError("an event's body is not an object")
    return body
