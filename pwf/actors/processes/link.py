"""The daemon's end of a control socket: requests out with descriptors, answers in, and who exited.

Owns the socket. `run` is the task that reads it; when it ends, every open call fails with `LinkClosed`. Exits are
keyed by pid and start tick, so that a report can not meet a later process of the same pid.

One lock, between the pool's own tasks: it gives the writer's turn for a frame that does not fit the socket at once. A
task with an inbox in its place costs 7 µs of CPU more per frame, as measured for connections, on the way of each fork.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
import trio

from pwf.actors.base.reply import Reply
from pwf.actors.base.socket_stream import SocketStream, acquire
from pwf.errors import ProtocolError, PwfError
from pwf.host import Identity
from pwf.protocol.spawn import (
    SPAWN_FRAME_BYTES_MAX,
    Exited,
    Forked,
    FromSpawner,
    Loaded,
    Resolved,
    ToSpawner,
    ZygoteHello,
    encoder,
    from_spawner,
)
from pwf.protocol.survivors import Survivor

RECEIVE_BYTES = 64 * 1024
_HEAD = 4

A = TypeVar("A", Forked, Loaded, Resolved)
R = TypeVar("R")


class LinkClosed(PwfError):
    """The process at the other end is gone."""

    code = "unavailable"


class Exits:
    """Who ended how, by the word of those who reaped. Each process is kept until somebody forgets it."""

    def __init__(self) -> None:
        self._expected: dict[tuple[int, int], ExitReport] = {}

    def expect(self, identity: Identity) -> ExitReport:
        """Keep the report on this process when it comes."""
        return self._expected.setdefault((identity.pid, identity.start_tick), ExitReport())

    def report(self, exited: Exited) -> None:
        """A process was reaped."""
        report = self._expected.get((exited.pid, exited.start_tick))
        if report is not None:
            report.status, report.clean, report.survivors = exited.status, exited.clean, exited.survivors
            report.arrived.set()

    def forget(self, identity: Identity) -> None:
        """Nobody waits for this one any more."""
        self._expected.pop((identity.pid, identity.start_tick), None)


class ExitReport:
    """`status` as `os.waitstatus_to_exitcode`. `clean`: nothing that the process started is left.

    `survivors`: what was still there then, and was ended.
    """

    def __init__(self) -> None:
        self.arrived = trio.Event()
        self.status: int | None = None
        self.clean = False
        self.survivors: tuple[Survivor, ...] = ()


class SpawnLink:
    """One connection to a zygote, template, resolver or fresh runner."""

    def __init__(self, exits: Exits, ours: socket.socket, theirs: socket.socket) -> None:
        self.theirs = theirs  # for the process at the other end
        self._stream = SocketStream(ours)
        self._received = bytearray()
        self._exits = exits
        self._calls: dict[int, Reply[FromSpawner]] = {}
        self._last_call = 0
        self._sending = trio.Lock()
        self._hello: Reply[FromSpawner] = Reply()
        self._on_close: Callable[[], None] | None = None
        self.closed = trio.Event()

    def next_call(self) -> int:
        """A number for the next request."""
        self._last_call += 1
        return self._last_call

    async def hello(self) -> ZygoteHello:
        """The zygote's first frame. Raises `LinkClosed`."""
        answer = await self._hello.wait()
        assert isinstance(answer, ZygoteHello)
        return answer

    async def call(self, request: ToSpawner, answer_type: type[A], descriptors: Sequence[int] = ()) -> A:
        """Send a request and wait for its answer. Raises `LinkClosed` when the other end dies first.

        A call that is cancelled may still have been done.
        """
        if self.closed.is_set():
            raise LinkClosed()
        call: Reply[FromSpawner] = Reply()
        self._calls[request.call] = call
        try:
            await self._send(encoder.encode(request), descriptors)
            answer = await call.wait()
        finally:
            self._calls.pop(request.call, None)
        if not isinstance(answer, answer_type):
            raise ProtocolError(f"{type(answer).__name__} answers {type(request).__name__}")
        return answer

    async def run(self) -> None:
        """Read until the other end closes. `ProtocolError` ends the link alone."""
        try:
            while (message := await self._receive()) is not None:
                self._take(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError):
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Close our end: the process at the other end ends itself. Open calls fail."""
        self._stream.close()
        self.theirs.close()
        self.closed.set()
        for call in (*self._calls.values(), self._hello):
            if not call.settled:
                call.fail(LinkClosed())
        if self._on_close is not None:
            self._on_close()

    def when_closed(self, then: Callable[[], None]) -> None:
        """Call `then`, perhaps more than once, when the link is closed, whoever closed it."""
        self._on_close = then

    async def serve(self, work: Callable[[], Awaitable[R]], beside: Callable[[], Awaitable[None]]) -> R:
        """Do `work` while a task reads the link and another one does what is `beside` it; then close the link.

        Raises what the work raises.
        """
        failure: PwfError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run)
            nursery.start_soon(beside)
            try:
                result = await work()
            except PwfError as error:
                failure = error
            finally:
                self.close()
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return result

    def _take(self, message: FromSpawner) -> None:
        if isinstance(message, Exited):
            self._exits.report(message)
        elif isinstance(message, ZygoteHello):
            if not self._hello.settled:
                self._hello.give(message)
        else:
            if isinstance(message, Forked):
                for identity in message.identities:
                    self._exits.expect(identity)  # before its exit can be read
            call = self._calls.get(message.call)
            if call is not None and not call.settled:
                call.give(message)

    async def _send(self, data: bytes, descriptors: Sequence[int]) -> None:
        frame = len(data).to_bytes(_HEAD, "big") + data
        # A frame that is begun is sent whole, or the stream would be worth nothing any more.
        await acquire(self._sending)
        try:
            if descriptors:
                await self._stream.send_with(frame, descriptors)
            else:
                await self._stream.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LinkClosed() from error
        except trio.Cancelled:
            self.close()
            raise
        finally:
            self._sending.release()

    async def _receive(self) -> FromSpawner | None:
        while (data := self._next_frame()) is None:
            piece = await self._stream.receive_some(RECEIVE_BYTES)
            if not piece:
                return None
            self._received += piece
        try:
            return from_spawner.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ProtocolError(f"a frame that is not in the protocol: {error}") from error

    def _next_frame(self) -> bytes | None:
        """What is between a head and the next; None when it has not arrived whole."""
        if len(self._received) < _HEAD:
            return None
        size = int.from_bytes(self._received[:_HEAD], "big")
        if size > SPAWN_FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {size:,} bytes; the limit is {SPAWN_FRAME_BYTES_MAX:,}")
        end = _HEAD + size
        if len(self._received) < end:
            return None
        data = bytes(self._received[_HEAD:end])
        del self._received[:end]
        return data
