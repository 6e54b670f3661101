"""A stream over a Unix socket with few steps between a caller and the kernel: every message of a run passes here.

Owns the socket. Promises what `trio.abc.Stream` does, for one sender and one receiver at a time, but for one thing:
neither call is a checkpoint when it need not wait. Callers answer to the store between two messages, which is one;
for an end that says without pause what nobody answers, each `AT_ONCE_MAX`th receive is one, too.
"""

from __future__ import annotations

import array
import socket
from collections.abc import Sequence

import trio

RECEIVE_BYTES = 64 * 1024
AT_ONCE_MAX = 16  # receives in a row without a checkpoint


class Interrupted(Exception):
    """Somebody has interrupted the wait for more."""


class SocketStream(trio.abc.Stream):
    """Takes over a connected stream socket. `patient`: the other end mostly says more only once it is answered."""

    def __init__(self, connection: socket.socket, *, patient: bool = False) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._at_once = 0
        self._patient = patient
        self._interrupted = False
        self._emptied = False  # by the last receive, as far as it could see

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What has arrived, at least one byte; empty at the end of the stream.

        Raises `trio.BrokenResourceError` (the connection failed), `trio.ClosedResourceError` or `Interrupted`.
        """
        if self._patient and self._emptied:
            await self._wait_readable()
        self._at_once += 1
        if self._at_once >= AT_ONCE_MAX:
            self._at_once = 0
            await trio.lowlevel.checkpoint()
        most = max_bytes or RECEIVE_BYTES
        while True:
            try:
                data = self.socket.recv(most)
            except BlockingIOError:
                await self._wait_readable()
            except OSError as error:
                raise self._fault() from error
            else:
                self._emptied = len(data) < most
                return data

    async def _wait_readable(self) -> None:
        self._at_once = 0
        if self._interrupted:
            self._interrupted = False
            raise Interrupted
        try:
            await trio.lowlevel.wait_readable(self.socket)
        except trio.ClosedResourceError:
            if not self._interrupted:  # else there may be something to receive all the same
                raise
        except (OSError, ValueError) as error:  # ValueError: it has no descriptor any more
            raise self._fault() from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything. Cancelled: some of it may have been sent. Raises as `receive_some`."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.socket.send(rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self.socket)
            except OSError as error:
                raise self._fault() from error

    async def send_within(self, data: bytes, seconds: float) -> bool:
        """As `send_all`. False: that would have taken longer. Mostly it takes no time, and costs no scope for it."""
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise self._fault() from error
        if sent < len(data):
            with trio.move_on_after(seconds):
                await self.send_all(memoryview(data)[sent:])
                return True
            return False
        return True

    async def send_with(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Send everything, the descriptors with its first byte. Raises as `receive_some`."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        while True:
            try:
                sent = self.socket.sendmsg([data], rights)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self.socket)
            except OSError as error:
                raise self._fault() from error
            else:
                await self.send_all(memoryview(data)[sent:])
                return

    async def wait_send_all_might_not_block(self) -> None:
        """Until there is room."""
        await trio.lowlevel.wait_writable(self.socket)

    def interrupt(self) -> None:
        """Whoever waits for more, now or next, gets `Interrupted`. A wait for room fails as if it were closed."""
        self._interrupted = True
        if self.socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self.socket)

    async def aclose(self) -> None:
        """Close; whoever waits on it gets `trio.ClosedResourceError`. Does not wait, but is a checkpoint."""
        self.close()
        await trio.lowlevel.checkpoint()

    @property
    def is_closed(self) -> bool:
        """Whether this end is."""
        return self.socket.fileno() < 0

    def close(self) -> None:
        """The same, at once."""
        if not self.is_closed:
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()

    def _fault(self) -> trio.BrokenResourceError | trio.ClosedResourceError:
        return trio.ClosedResourceError() if self.is_closed else trio.BrokenResourceError()


async def acquire(lock: trio.Lock | trio.Semaphore) -> None:
    """Take a lock or a semaphore. A checkpoint only when it must wait, which it mostly need not."""
    try:
        lock.acquire_nowait()
    except trio.WouldBlock:
        await lock.acquire()
