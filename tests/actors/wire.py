"""Raw frames over a real socket, for tests that must say exactly which bytes go over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import trio

from pwf.protocol.frames import FrameSplitter

HELLO = b'{"type":"hello","protocol":"pwf.client.v1","version":"test","client_id":"c"}\n'


class Wire:
    """One client connection. `receive` gives decoded frames, None at the end of the stream."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._splitter = FrameSplitter()
        self._frames: list[dict[str, Any]] = []

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def receive(self) -> dict[str, Any] | None:
        while not self._frames:
            try:
                data = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._frames += [msgspec.json.decode(line) for line in self._splitter.feed(bytes(data))]
        return self._frames.pop(0)


class Dialer:
    """Opens connections and closes them all at the end of the test."""

    def __init__(self) -> None:
        self._open: list[Wire] = []

    async def __call__(self, path: Path, *, hello: bool = True) -> Wire:
        wire = Wire(await trio.open_unix_socket(path))
        self._open.append(wire)
        if hello:
            await wire.send(HELLO)
            greeting = await wire.receive()
            assert greeting is not None
            assert greeting["type"] == "hello"
        return wire

    async def aclose(self) -> None:
        for wire in self._open:
            await trio.aclose_forcefully(wire.stream)


def request(number: int | str, operation: str = "echo", payload: str = "{}") -> bytes:
    return (
        f'{{"type":"request","request_id":"{number}","client_id":"c","operation":"{operation}",'
        f'"payload":{payload}}}\n'
    ).encode()
