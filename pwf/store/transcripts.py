"""What a session records of its conversation about a run: in order, without gaps, once, and bounded.

The run's session records, also after the run has ended and for as long as it is kept. The session numbers the entries
itself, so a repeat changes nothing. A segment that is full loses its oldest entries.
"""

from __future__ import annotations

import zlib

import msgspec

from pwf.errors import Conflict, NotFound, Rejected, ValueTooLarge
from pwf.protocol.transcripts import (
    ENTRY_BYTES_MAX,
    KEPT_BYTES_MAX,
    KEPT_MAX,
    SEGMENTS_MAX,
    EntryView,
    Recorded,
    RecordPayload,
    Transcript,
    TranscriptPayload,
)
from pwf.store.queries import load_queries
from pwf.store.sessions import SessionFence, hold
from pwf.store.tx import Tx
from pwf.values import CHUNK_BYTES

Q = load_queries(__file__)

PAGE_MAX = 1_000
PAGE_BYTES = 512 * 1024  # so that a page fits a frame
OLD_PAGE = 200


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The data of `said` is canonical JSON."""

    fence: SessionFence
    said: RecordPayload


class _Segment(msgspec.Struct, kw_only=True):
    first: int = 0
    following: int = 0
    size: int = 0


def record(tx: Tx, command: Record) -> Recorded:
    """Keep what is new of it. `Conflict` where entries are missing before it, or where one of a number is another."""
    fence, said = command.fence, command.said
    hold(tx, fence)
    row = tx.one(Q.own_run, {"run_id": said.run_id, "session_no": fence.session_no})
    if row is None:
        raise NotFound(f"session {fence.session_id!r} has no run {said.run_id!r}")
    which = {"run_no": row[0], "segment": said.segment}
    segment = _segment(tx, which, said)
    if sum(len(bytes(entry.data)) for entry in said.entries) > CHUNK_BYTES:
        tx.lengthy()
    for number, entry in enumerate(said.entries, said.at):
        body = bytes(entry.data)
        if len(body) > ENTRY_BYTES_MAX:
            raise ValueTooLarge(
                f"an entry has at most {ENTRY_BYTES_MAX:,} bytes, and entry {number} has {len(body):,}"
            )
        if number < segment.following:
            known = tx.one(Q.entry, {**which, "number": number})
            if known not in (None, (entry.kind, body)):
                raise Conflict(f"entry {number} of segment {said.segment!r} is recorded already, as another")
            continue
        written = {"kind": entry.kind, "body": body, "body_crc32": zlib.crc32(body), "now": tx.now.wall_ms}
        tx.run(Q.add_entry, {**which, "number": number, **written})
        segment.following += 1
        segment.size += len(body)
    _make_place(tx, which, segment)
    if said.entries:
        counts = {"first": segment.first, "following": segment.following, "size": segment.size}
        tx.run(Q.put_segment, {**which, **counts})
    return Recorded(
        run_id=said.run_id, segment=said.segment, first=segment.first, following=segment.following
    )


def _segment(tx: Tx, which: dict[str, object], said: RecordPayload) -> _Segment:
    row = tx.one(Q.segment, which)
    if row is None:
        count = tx.one(Q.count_segments, which)
        if count is not None and count[0] >= SEGMENTS_MAX:
            raise Rejected(
                f"run {said.run_id} has {SEGMENTS_MAX} segments already", hint="go on with one of them"
            )
    found = _Segment() if row is None else _Segment(first=row[0], following=row[1], size=row[2])
    if said.at > found.following:
        raise Conflict(
            f"the next entry of segment {said.segment!r} is {found.following}, and this begins at {said.at}",
            hint=f"record from {found.following} on",
        )
    return found


def _make_place(tx: Tx, which: dict[str, object], segment: _Segment) -> None:
    """Drop the oldest entries until the rest fits."""
    while segment.following - segment.first > KEPT_MAX or segment.size > KEPT_BYTES_MAX:
        for number, size in tx.all(Q.oldest, {**which, "limit": OLD_PAGE}):
            segment.first, segment.size = number + 1, segment.size - size
            if segment.following - segment.first <= KEPT_MAX and segment.size <= KEPT_BYTES_MAX:
                break
        tx.run(Q.drop_before, {**which, "first": segment.first})


class ReadTranscript(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    asked: TranscriptPayload


def transcript(tx: Tx, query: ReadTranscript) -> Transcript:
    """A page of what was recorded about a run. No body is read that is not on it."""
    asked, run_id = query.asked, query.run_id
    limit = max(1, min(asked.limit, PAGE_MAX))
    after = asked.cursor or 0
    facts = {"run_id": run_id, "segment": asked.segment, "after": after}
    sizes = tx.all(Q.sizes, {**facts, "limit": limit + 1})
    last, count, left = after, 0, PAGE_BYTES
    for entry_no, size in sizes[:limit]:
        left -= size
        if count and left < 0:
            break
        last, count = entry_no, count + 1
    session = tx.one(Q.session_of, {"run_id": run_id})
    return Transcript(
        run_id=run_id,
        session_id=None if session is None else str(session[0]),
        entries=tuple(
            EntryView(segment=segment, number=number, kind=kind, data=msgspec.Raw(body), at_ms=at)
            for segment, number, kind, body, at in tx.all(Q.entries, {**facts, "last": last})
        ),
        next_cursor=last if len(sizes) > count else None,
    )
