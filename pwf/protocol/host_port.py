"""What the adapter of a channel `mcp` and a process of `pwf mcp serve` say to each other: a JSON object a line, over a
Unix socket beside the daemon's.

The process says `Hello` first, with the channel's token. What it is offered it puts before the person at its host; an
`Answer` is answered by one `Heard`, after the answer's commit. The token of a decision stays with the adapter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from pwf.places import Places
from pwf.protocol.decision_spec import ChoiceSpec

NAME_CHARS_MAX = 200


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="say"):
    pass


class Hello(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hello"):
    """First. `host`: as the MCP host names itself."""

    token: Annotated[str, msgspec.Meta(max_length=4_096)]
    host: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]


class Answer(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="answer"):
    """What the person chose."""

    request_id: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    choice: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    text: str | None = None


class Offer(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="offer"):
    """A decision is open: ask the person. One of the same request takes the place of an earlier one.

    `again`: what was wrong with the answer before, where a process asks once more.
    """

    request_id: str
    text: str
    again: str | None = None
    choices: tuple[ChoiceSpec, ...]


class Withdraw(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="withdraw"):
    """It is settled: ask no more."""

    request_id: str


class Heard(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="heard"):
    """What became of an answer. `again`: what the person is to be told, and asked once more."""

    request_id: str
    again: str | None = None


FromHost = Hello | Answer
ToHost = Offer | Withdraw | Heard

from_host = msgspec.json.Decoder(FromHost)
to_host = msgspec.json.Decoder(ToHost)


def socket_of(at: Places, channel: str) -> Path:
    """Where the adapter of a channel listens: beside the daemon's own socket."""
    return at.socket.with_name(f"{at.socket.stem}-{channel}.sock")
