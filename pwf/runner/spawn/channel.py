"""Blocking frames on the socket between the daemon and a spawner (zygote, template, resolver, fresh runner).

A frame is read with exact lengths, so that the descriptors that came along are always this frame's own.
"""

from __future__ import annotations

import array
import os
import socket
import sys

import msgspec

from pwf.errors import FrameTooLarge, ProtocolError
from pwf.protocol.spawn import (
    FORKED_MAX,
    RUNNER_DESCRIPTORS,
    SPAWN_FRAME_BYTES_MAX,
    FromSpawner,
    ToSpawner,
    encoder,
    to_spawner,
)

DESCRIPTORS_MAX = FORKED_MAX * RUNNER_DESCRIPTORS  # with one frame
_HEAD = 4
_ROOM = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
# Without the flag a descriptor would be open in what another thread starts meanwhile; macOS has no such flag.
_FLAGS = socket.MSG_CMSG_CLOEXEC if sys.platform == "linux" else 0


class SpawnSocket:
    """One end of the control socket, by its descriptor, or as a socket that blocks."""

    def __init__(self, end: int | socket.socket) -> None:
        if isinstance(end, int):
            self._socket = stream_socket(end)
            self._socket.setblocking(True)
        else:
            self._socket = end

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: FromSpawner) -> None:
        """Send one frame. Another end that is gone raises `ConnectionError`."""
        data = encoder.encode(message)
        if len(data) > SPAWN_FRAME_BYTES_MAX:
            raise FrameTooLarge(f"the answer has {len(data):,} bytes; the limit is {SPAWN_FRAME_BYTES_MAX:,}")
        frame = len(data).to_bytes(_HEAD, "big") + data
        self._socket.sendall(frame)

    def receive(self) -> tuple[ToSpawner, list[int]] | None:
        """The next request with its descriptors (close-on-exec), or None when the daemon has closed its end."""
        try:
            head, ancillary, flags, _ = self._socket.recvmsg(_HEAD, _ROOM, _FLAGS)
        except ConnectionError:
            return None
        descriptors = _descriptors(ancillary)
        if flags & socket.MSG_CTRUNC:
            raise ProtocolError("more descriptors than a frame may carry")
        size_bytes = head + self._exactly(_HEAD - len(head)) if head else b""
        if len(size_bytes) < _HEAD:
            return None
        size = int.from_bytes(size_bytes, "big")
        if size > SPAWN_FRAME_BYTES_MAX:
            raise FrameTooLarge(f"a frame of {size:,} bytes; the limit is {SPAWN_FRAME_BYTES_MAX:,}")
        data = self._exactly(size)
        if len(data) < size:
            return None
        try:
            return to_spawner.decode(data), descriptors
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"a frame that is not in the protocol: {error}") from error

    def _exactly(self, size: int) -> bytes:
        """`size` bytes, or fewer when the stream ends first."""
        data = bytearray()
        while len(data) < size:
            try:
                piece = self._socket.recv(min(size - len(data), 1024 * 1024))
            except ConnectionError:
                break
            if not piece:
                break
            data += piece
        return bytes(data)


def stream_socket(descriptor: int) -> socket.socket:
    """The Unix stream socket with this descriptor. What kind it is need not be asked of the kernel."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    if not _FLAGS:
        for descriptor in found:
            os.set_inheritable(descriptor, False)
    return found.tolist()
