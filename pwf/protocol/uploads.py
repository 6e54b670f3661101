"""Values that a request does not hold: sent before it in pieces, and named in it by their digest.

`Request.contents` names fields of the payload whose values were sent like this; what stands in the field itself doesn't
count then. A value is held for an hour, until a request names it. A daemon that has not got it answers
`content_wanted`, and the client sends it again.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from pwf.protocol.bounds import Name

Digest = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
Contents = Annotated[dict[Name, Digest], msgspec.Meta(max_length=4)]


class PutContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of a value: 0, 1, 2 … of 256 KiB each, only the `last` may be shorter. `data` is base64 on the wire.

    `size`: of the whole, in bytes. `what`: what the value is, for messages.
    """

    digest: Digest
    index: int
    data: bytes
    size: int
    last: bool = False
    what: Name = "value"


class ContentTaken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many bytes are there by now. `whole`: all of them, and nothing more need be sent."""

    digest: str
    taken: int
    whole: bool


class ReadContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value of the frame's run, or of the resource whose uid stands there, by digest, from a byte offset."""

    digest: Name
    offset: int = 0


class Content(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`data` is base64 on the wire."""

    digest: str
    size: int
    offset: int
    data: bytes
    last: bool
