"""Values that a view carries: inline, or by digest and then read in chunks and verified."""

from __future__ import annotations

from pwf.errors import ProtocolError
from pwf.protocol.operations import Content
from pwf.protocol.runner import Value
from pwf.values import digest


def inline_bytes(value: Value) -> bytes | None:
    """The JSON text when it stands in the view itself."""
    return None if value.json is None else bytes(value.json)


class ValueReader:
    """Collects the chunks of one large value. Raises `ProtocolError` when they are not what the digest
    says.
    """

    def __init__(self, value: Value) -> None:
        if value.digest is None:
            raise ProtocolError("the value has neither text nor digest")
        self.digest = value.digest
        self.done = False
        self._parts: list[bytes] = []
        self.offset = 0

    def add(self, chunk: Content) -> None:
        """Take the next chunk."""
        if chunk.digest != self.digest or chunk.offset != self.offset:
            raise ProtocolError("the daemon sent another chunk than was asked for")
        if not chunk.data and not chunk.last:
            raise ProtocolError("the daemon sent an empty chunk")
        self._parts.append(chunk.data)
        self.offset += len(chunk.data)
        self.done = chunk.last

    def data(self) -> bytes:
        """The whole value, verified."""
        data = b"".join(self._parts)
        if digest(data) != self.digest:
            raise ProtocolError(
                f"the value's bytes do not match its digest {self.digest}", hint="pwf state verify"
            )
        return data
