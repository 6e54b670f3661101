"""What a session keeps of its conversation about a run, for replay: parts (*segments*), each with entries in order.

The session numbers the entries of a segment from 0. So to record the same again is harmless, and none is left out.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from pwf.protocol.bounds import Name

ENTRY_BYTES_MAX = 64 * 1024
ENTRIES_MAX = 100  # that are recorded at once
SEGMENTS_MAX = 16  # of a run
KEPT_MAX = 5_000  # entries of a segment; the oldest make place
KEPT_BYTES_MAX = 4 * 1024 * 1024  # of a segment
TRANSCRIPT_PAGE = 100
SEGMENT = "main"


class RecordedEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the conversation, or an event of it: `kind` and `data` are the agent's own."""

    kind: Name
    data: msgspec.Raw


class RecordPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`at`: the number of the first of the entries. Those that are there already are adopted."""

    run_id: Name
    segment: Name = SEGMENT
    at: Annotated[int, msgspec.Meta(ge=0)] = 0
    entries: Annotated[tuple[RecordedEntry, ...], msgspec.Meta(max_length=ENTRIES_MAX)] = ()


class Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`first`: the oldest entry that is kept; `following`: the number of the next one."""

    run_id: str
    segment: str
    first: int
    following: int


class TranscriptPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a run. `segment`: only this. `cursor`: where the page begins."""

    segment: Name | None = None
    limit: int = TRANSCRIPT_PAGE
    cursor: int | None = None


class EntryView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`number`: in its segment."""

    segment: str
    number: int
    kind: str
    data: msgspec.Raw
    at_ms: int


class Transcript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In the order in which they were recorded. `next_cursor`: where the next page begins."""

    run_id: str
    session_id: str | None
    entries: tuple[EntryView, ...]
    next_cursor: int | None = None
