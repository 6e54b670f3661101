"""One client connection: frames in, requests started in order, answers and events out.

Owns the stream and the tasks of its requests. Promises: the first frame of each side is its hello; requests
start in the order they came and are answered by id; at most `OPEN_REQUESTS_MAX` are open, then reading
stops; a frame that is not in the protocol gets one error frame, then this connection (and no other) is
closed. A slow reader holds up only itself: every sender waits for its turn to write, and what waits is bounded in
bytes (`unread`), so nothing is queued without bound. A request that waits keeps no text that it does not need.
In: bytes; events of its subscriptions; `refuse`. Out: calls of `handle`, the end of its caller. If it dies, its
requests are cancelled; what they committed stays committed.

Two locks, both between its own tasks: `_sending` gives the writer's turn, and `_slots` bounds the open requests. A
task with an inbox that writes for all was measured in place of the first: 29 µs of CPU for an answer of 600 bytes
instead of 23, on the way of each start and step.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from typing import NamedTuple

import trio

from pwf.actors.base.apart import apart
from pwf.actors.base.logging import Log
from pwf.actors.base.reply import Reply
from pwf.actors.base.socket_stream import acquire
from pwf.actors.door.unread import Unread
from pwf.actors.operations.caller import Caller, Handler
from pwf.errors import FrameTooLarge, InvalidArgument, ProtocolError, PwfError
from pwf.host.identity import Identity
from pwf.protocol.frames import (
    OPEN_REQUESTS_MAX,
    PROTOCOL,
    ClientFrame,
    ErrorBody,
    ErrorFrame,
    Event,
    FrameSplitter,
    Hello,
    Misfit,
    Request,
    Response,
    compact,
    decode_client_frame,
    encode,
    error_body,
)
from pwf.values import shortened

IDLE_TASKS_MAX = 4  # that wait for the next request: to start a task for each costs more
KEPT_BYTES_MAX = 4 * 1024  # of a line, for as long as its request is open
RECEIVE_BYTES = 64 * 1024
HELLO_S_MAX = 10.0  # a client that says nothing is not kept
EOF_GRACE_S = 5.0  # a client that has closed its writing half still gets the answers that come soon
ERROR_SEND_S_MAX = 2.0


class _Work(NamedTuple):
    """A request, and what is given once the one before, and this one, have started."""

    request: Request
    before: Reply[None] | None
    started: Reply[None]


class Connection:
    """Serves one stream until it ends."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        handle: Handler,
        hello: Hello,
        log: Log,
        number: int,
        peer: Identity | None,
        unread: Unread,
    ) -> None:
        self._stream = stream
        self._handle = handle
        self._hello = hello
        self._log = log
        self._sending = trio.Semaphore(1, max_value=1)  # in turn, at less cost than a lock
        self._slots = trio.Semaphore(OPEN_REQUESTS_MAX)
        self._open: set[str] = set()
        self._idle: list[Reply[_Work]] = []  # of tasks that have answered a request
        self._before: Reply[None] | None = None  # given once the request before has started
        self._scope = trio.CancelScope()
        self._share = unread.share(self._drop)
        self.caller = Caller(number, self._send_event, peer=peer)

    async def run(self) -> None:
        """Until the client goes, breaks the protocol, reads too little, or the daemon stops."""
        async with self._stream:
            try:
                with self._share, self._scope:
                    async with trio.open_nursery() as nursery:
                        self.caller.begin = nursery.start_soon
                        await self._serve(nursery)
                        nursery.cancel_scope.cancel()
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client went away in the middle: nobody is left to tell
            finally:
                self.caller.end()

    async def _serve(self, nursery: trio.Nursery) -> None:
        await self._send(encode(self._hello))
        splitter = FrameSplitter()
        try:
            with trio.move_on_after(HELLO_S_MAX) as waiting:
                lines = await self._greeting(splitter)
            if waiting.cancelled_caught:
                raise ProtocolError(f"no hello came within {HELLO_S_MAX:g} s")
            while True:
                while lines:
                    await self._begin(lines.pop(0), nursery)  # nobody keeps its text
                data = await self._receive()
                if not data:
                    break
                lines = splitter.feed(data)
                self._share.begun(splitter.pending)
        except ProtocolError as error:
            self._log.warning("connection.refused", connection=self.caller.number, code=error.code)
            await self.refuse(error)
            return
        await self._let_end()

    async def refuse(self, error: PwfError) -> None:
        """Send the one error frame after which a connection ends; a client that is gone is not missed."""
        with trio.move_on_after(ERROR_SEND_S_MAX):
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._send(encode(ErrorFrame(error=error_body(error))))

    async def _greeting(self, splitter: FrameSplitter) -> list[bytes]:
        """Read the client's hello; the lines that came with it."""
        while True:
            data = await self._receive()
            if not data:
                return []
            lines = splitter.feed(data)
            self._share.begun(splitter.pending)
            if not lines:
                continue
            frame = await self._decoded(lines[0])
            if not isinstance(frame, Hello):
                raise ProtocolError("the first frame must be a hello")
            if frame.protocol != PROTOCOL:
                raise ProtocolError(
                    f"this daemon speaks {PROTOCOL}, not {frame.protocol}",
                    hint="use the pwf that belongs to this daemon, or stop it: pwf stop",
                )
            self.caller.client_id = frame.client_id
            return lines[1:]

    async def _receive(self) -> bytes:
        data = bytes(await self._stream.receive_some(RECEIVE_BYTES))
        self.caller.received_ns = time.monotonic_ns()
        return data

    async def _begin(self, line: bytes, nursery: trio.Nursery) -> None:
        frame = await self._decoded(line)
        del line  # it may be padded, and the request may be open for long
        if isinstance(frame, Hello):
            raise ProtocolError("a second hello")
        if frame.request_id in self._open:
            raise ProtocolError(
                f"request_id {shortened(frame.request_id, 80)!r} is already open on this connection"
            )
        if isinstance(frame, Misfit):
            wrong = error_body(InvalidArgument(f"the request is wrong: {frame.why}"))
            await self._send(encode(Response(request_id=frame.request_id, outcome="rejected", error=wrong)))
            return
        await self._share.wait_until_free()
        await acquire(self._slots)
        self._open.add(frame.request_id)
        started: Reply[None] = Reply()
        work = _Work(frame, self._before, started)
        self._before = started
        if self._idle:
            self._idle.pop().give(work)
        else:
            nursery.start_soon(self._answer_requests, work)

    async def _decoded(self, line: bytes) -> ClientFrame | Misfit:
        """A frame, a large one without the white space of its payload."""
        if len(line) <= KEPT_BYTES_MAX:
            return decode_client_frame(line)
        return await apart(len(line), lambda: compact(decode_client_frame(line)))

    async def _answer_requests(self, work: _Work | None) -> None:
        """The task of a request, and of later ones."""
        while work is not None:
            await self._answer(*work)
            work = None  # nothing of it is kept meanwhile
            if len(self._idle) < IDLE_TASKS_MAX:
                place: Reply[_Work] = Reply()
                self._idle.append(place)
                work = await place.wait()
                del place

    async def _answer(self, request: Request, before: Reply[None] | None, started: Reply[None]) -> None:
        text = memoryview(request.payload).nbytes
        self._share.text(text)
        try:
            if before is not None:
                await before.wait()
            await self._share.wait_until_read()
            # Wakes the next request's task only in the scheduler's next round: this handler's first command
            # is in the store's inbox by then.
            started.give(None)
            await self._send(_fitting(await self._guarded(request)))  # nobody keeps it beside its frame
        finally:
            if not started.settled:
                started.give(None)
            self._open.discard(request.request_id)
            self._slots.release()
            self._share.text(-text)

    async def _guarded(self, request: Request) -> Response:
        try:
            return await self._handle(request, self.caller)
        except Exception as error:  # noqa: BLE001 - the connection handler
            # A bug in one handler must not end the other clients' daemon; the client may send it again.
            self._log.error(
                "request.failed",
                operation=request.operation,
                connection=self.caller.number,
                error=type(error).__name__,
                traceback="".join(traceback.format_exception(error)),
            )
            return Response(
                request_id=request.request_id,
                outcome="unavailable",
                error=ErrorBody(
                    code="error",
                    message=f"{request.operation} failed inside the daemon ({type(error).__name__})",
                    hint="pwf logs shows where",
                ),
            )

    async def _send_event(self, event: Event) -> None:
        await self._send(encode(event))

    async def _send(self, data: bytes) -> None:
        self._share.answer(len(data))
        try:
            await acquire(self._sending)
            # Half a frame would spoil all that follows, so once begun it is sent whole or the stream is closed.
            try:
                await self._stream.send_all(data)
            except trio.Cancelled:
                await trio.aclose_forcefully(self._stream)
                raise
            finally:
                self._sending.release()
        finally:
            self._share.answer(-len(data))

    def _drop(self, held: int) -> None:
        """This client reads too little of what it asks for."""
        self._log.error("connection.unread", connection=self.caller.number, bytes=held)
        self._scope.cancel()

    async def _let_end(self) -> None:
        """The client sends no more: answer what is open and comes soon."""
        with trio.move_on_after(EOF_GRACE_S):
            for _ in range(OPEN_REQUESTS_MAX):
                await self._slots.acquire()


def _fitting(response: Response) -> bytes:
    try:
        return encode(response)
    except FrameTooLarge as error:
        told = FrameTooLarge(f"the answer is too large: {error.message}", hint="ask for a smaller page")
        return encode(Response(request_id=response.request_id, outcome="rejected", error=error_body(told)))
