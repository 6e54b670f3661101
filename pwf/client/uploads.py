"""What does not fit into a request is sent before it in pieces, and named by its digest.

Holds no connection, like `asking`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from pwf.client.asking import Asking
from pwf.client.core import More
from pwf.protocol.uploads import ContentTaken, PutContent
from pwf.values import CHUNK_BYTES, digest

INLINE_BYTES_MAX = (
    512 * 1024
)  # of one value within a request: its frame has 1 MiB, for all that goes with it, too
SENT_MAX = 3  # times: a daemon that has started since has nothing of it
FORGETS = "the daemon was started anew, again and again, before it had all that was sent"


class Large(NamedTuple):
    """A payload without its large values: `values` by field, `contents` their digests."""

    payload: msgspec.Struct
    values: dict[str, bytes]
    contents: dict[str, str]

    def more(self, more: More, key: str) -> More:
        """What else the request says: under one key, however often the values must be sent."""
        return {**more, "key": more.get("key") or key, "contents": self.contents}


def large_values(payload: msgspec.Struct | None) -> Large | None:
    """What of a payload is to be sent before it; None where all of it fits."""
    if payload is None:
        return None
    given = {name: getattr(payload, name) for name in payload.__struct_fields__}
    values = {
        name: bytes(value)
        for name, value in given.items()
        if isinstance(value, msgspec.Raw) and len(bytes(value)) > INLINE_BYTES_MAX
    }
    if not values:
        return None
    without: dict[str, Any] = dict.fromkeys(values, msgspec.Raw(b"null"))
    contents = {name: digest(data) for name, data in values.items()}
    return Large(msgspec.structs.replace(payload, **without), values, contents)


def uploading(large: Large) -> Asking[None]:
    """Send each value, unless it is there already."""
    for name, data in large.values.items():
        last = (len(data) - 1) // CHUNK_BYTES
        for index in range(last + 1):
            piece = PutContent(
                digest=large.contents[name],
                index=index,
                data=data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES],
                size=len(data),
                last=index == last,
                what=name,
            )
            taken: ContentTaken = yield "content.put", piece, None
            if taken.whole:
                break
