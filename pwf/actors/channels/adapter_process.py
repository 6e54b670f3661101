"""The process of a channel's adapter, as its supervisor sees it: started, told, heard, ended.

Promises: it ends when its scope does, and by itself when the daemon has died. What it says is data, and bounded.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
import trio

from pwf.actors.base.kept_process import KeptProcess, kept_process
from pwf.actors.base.socket_stream import SocketStream
from pwf.errors import ProtocolError, RunnerCrashed
from pwf.protocol.channel_port import LINE_BYTES_MAX, FromAdapter, ToAdapter, from_adapter, line_of
from pwf.protocol.frames import FrameSplitter

END_S = 2.0


class Adapter(Protocol):
    """What works for a channel."""

    async def say(self, said: ToAdapter) -> None:
        """Tell it. Raises `RunnerCrashed` when it is gone."""
        ...

    async def hear(self) -> FromAdapter:
        """What it says next. Raises `RunnerCrashed` when it is gone, or says what it may not."""
        ...


class AdapterProcess:
    """`pwf.channels.process`."""

    def __init__(self, stream: SocketStream, kept: KeptProcess) -> None:
        self._stream = stream
        self._kept = kept
        self._splitter = FrameSplitter(LINE_BYTES_MAX)
        self._said: list[FromAdapter] = []
        self._unsent: list[bytes] = []
        self._sending = False

    async def say(self, said: ToAdapter) -> None:
        """A verdict and a send are said by two tasks, and a stream has one: whoever sends takes the other's along."""
        self._unsent.append(line_of(said))
        if self._sending:
            return
        self._sending = True
        try:
            while self._unsent:
                await self._stream.send_all(self._unsent.pop(0))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._ended() from error
        finally:
            self._sending = False

    async def hear(self) -> FromAdapter:
        while not self._said:
            try:
                data = await self._stream.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise self._ended() from error
            if not data:
                raise self._ended()
            try:
                self._said += [from_adapter.decode(line) for line in self._splitter.feed(bytes(data))]
            except (msgspec.MsgspecError, ProtocolError) as error:
                raise RunnerCrashed(f"the adapter says what it may not: {error}") from error
        return self._said.pop(0)

    def _ended(self) -> RunnerCrashed:
        """With the last line that it printed, which most often says why."""
        return RunnerCrashed(self._kept.last_line() or "the adapter has ended")


@asynccontextmanager
async def open_adapter_process() -> AsyncIterator[AdapterProcess]:
    """Start it. Raises `RunnerCrashed` where it can't be started."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = SocketStream(ours)

        async def end(_: trio.Process) -> None:
            await stream.aclose()  # then it ends what it has started, and itself

        module, silent = ["pwf.channels.process"], subprocess.DEVNULL
        async with kept_process(
            "the adapter", module, end=end, end_s=END_S, stdin=theirs, stdout=silent
        ) as kept:
            theirs.close()
            yield AdapterProcess(stream, kept)
