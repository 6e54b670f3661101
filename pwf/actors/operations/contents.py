"""Values that come with a request, or were sent before it: `content.put`, and reading what a payload names.

Holds no state. Promises: a value is read and checked beside the event loop, and one that was sent before has the same
bounds and the same messages as one that stands in the request.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.actors.base.apart import apart
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.errors import InvalidArgument, NotFound
from pwf.protocol.frames import Request
from pwf.protocol.uploads import PutContent
from pwf.store.uploads import PutUpload, put_upload, uploaded_size
from pwf.store.values import ReadValueChunk, read_chunk
from pwf.values import parse_canonical


async def put(services: Services, asked: Asked[PutContent]) -> Answer:
    """`content.put`."""
    command = PutUpload(
        piece=asked.payload,
        epoch=services.claim.claim.epoch,
        limit=services.config.max_value_bytes,
        state_bytes_max=services.config.max_state_size,
    )
    return Answer(await services.store.write(put_upload, command))


def check_contents(request: Request, payload: msgspec.Struct) -> None:
    """Only fields that hold any JSON may have been sent before."""
    for name in request.contents:
        is_field = name in payload.__struct_fields__
        if not is_field or not isinstance(getattr(payload, name), msgspec.Raw | None):
            raise InvalidArgument(f"{request.operation} has no value {name!r} that could be sent before it")


async def value_of(services: Services, asked: Asked[Any], name: str, what: str | None = None) -> bytes:
    """The value of a field of the payload as canonical JSON. Raises as `parse_canonical` does, and `ContentWanted`."""
    digest = asked.request.contents.get(name)
    if digest is None:
        text = bytes(getattr(asked.payload, name))
    else:
        await services.store.read(uploaded_size, digest)
        text = await read_whole(services.store, digest)
    limit = services.config.max_value_bytes
    return await apart(len(text), lambda: parse_canonical(text, limit=limit, what=what or name))


async def read_whole(store: StoreHandle, digest: str) -> bytes:
    """A stored value, chunk by chunk, so that no read holds up the others."""
    pieces: list[bytes] = []
    while True:
        chunk = await store.read(read_chunk, ReadValueChunk(digest=digest, index=len(pieces)))
        if chunk.missing:
            raise NotFound(f"there is no value {digest}", hint="pwf state verify")
        pieces.append(chunk.data)
        if chunk.last:
            return b"".join(pieces)


HANDLERS: dict[str, OperationHandler] = {"content.put": put}
