"""A runner's message stream in memory, with what a supervisor needs of `SocketStream` besides a stream."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import memory_stream_pair

from pwf.actors.base.socket_stream import Interrupted


class RunnerStream:
    """The daemon's end, over one end of a pair of memory streams."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._interrupted = False
        self._waiting: trio.CancelScope | None = None

    async def send_all(self, data: bytes) -> None:
        """As the stream."""
        await self._stream.send_all(data)

    async def send_within(self, data: bytes, seconds: float) -> bool:
        """As `SocketStream.send_within`."""
        with trio.move_on_after(seconds):
            await self.send_all(data)
            return True
        return False

    async def receive_some(self, most: int | None = None) -> bytes:
        """As the stream, but for the interruption."""
        with trio.CancelScope() as self._waiting:
            if self._interrupted:
                self._waiting.cancel()  # what is there is received all the same
            return bytes(await self._stream.receive_some(most))
        self._interrupted = False
        raise Interrupted

    def interrupt(self) -> None:
        """As `SocketStream.interrupt`."""
        self._interrupted = True
        if self._waiting is not None:
            self._waiting.cancel()

    def close(self) -> None:
        """Both directions."""
        self._stream.send_stream.close()
        self._stream.receive_stream.close()


def runner_streams() -> tuple[RunnerStream, Any]:
    """The daemon's end and the runner's."""
    ours, theirs = memory_stream_pair()
    return RunnerStream(ours), theirs
