"""What a session records of its conversation about a run: in order, once, bounded, kept as long as the run."""

from __future__ import annotations

import pytest

from pwf.errors import ClaimLost, Conflict, NotFound, Rejected, ValueTooLarge
from pwf.protocol.transcripts import (
    ENTRY_BYTES_MAX,
    SEGMENTS_MAX,
    RecordedEntry,
    RecordPayload,
    TranscriptPayload,
)
from pwf.store import transcripts
from pwf.store.transcripts import ReadTranscript, Record, record, transcript
from pwf.values import canonical
from tests.store.session_world import ALONE, Session
from tests.store.test_home import serve
from tests.store.test_retention import pass_days, prune


@pytest.fixture
def session(world):
    return Session(world)


def keep(session, run_id, *data, at=0, fence=None, **more):
    """Record these data, as entries of the kind `said`."""
    entries = tuple(RecordedEntry(kind="said", data=canonical(one)) for one in data)
    said = RecordPayload(run_id=run_id, at=at, entries=entries, **more)
    return session.world.do(record, Record(fence=fence or session.fence, said=said))


def page(session, run_id, **asked):
    return session.world.read(transcript, ReadTranscript(run_id=run_id, asked=TranscriptPayload(**asked)))


def kept(session, run_id, **asked):
    return [bytes(entry.data).decode() for entry in page(session, run_id, **asked).entries]


def test_entries_are_kept_in_order_and_recorded_again_they_are_adopted(world, session):
    run_id = session.asked()
    assert keep(session, run_id, 1, 2).following == 2
    assert keep(session, run_id, 1, 2, 3).following == 3
    assert keep(session, run_id).following == 3
    serve(world)
    session.attach()
    assert keep(session, run_id, 2, 3, 4, at=1).following == 4

    found = page(session, run_id)
    assert (found.session_id, kept(session, run_id)) == ("chat", ["1", "2", "3", "4"])
    assert [(entry.segment, entry.number, entry.kind) for entry in found.entries][-1] == ("main", 3, "said")


def test_a_gap_and_another_entry_under_a_number_are_conflicts_that_change_nothing(session):
    run_id = session.asked()
    keep(session, run_id, "a")
    with pytest.raises(Conflict, match="the next entry of segment 'main' is 1, and this begins at 2"):
        keep(session, run_id, "c", at=2)
    with pytest.raises(Conflict, match="entry 0 of segment 'main' is recorded already"):
        keep(session, run_id, "b", "c")
    assert kept(session, run_id) == ['"a"']


def test_only_the_session_of_the_run_in_its_epoch_records(world, session):
    run_id, stale = session.asked(), session.fence
    with pytest.raises(NotFound, match="session 'other' has no run"):
        keep(Session(world, "other"), run_id, 1)
    session.attach()
    with pytest.raises(ClaimLost):
        keep(session, run_id, 1, fence=stale)
    assert kept(session, run_id) == []


def test_recording_goes_on_after_the_run_has_ended_and_what_was_recorded_goes_with_the_run(world, session):
    run_id = session.asked(ALONE)
    keep(session, run_id, "working")
    session.submit()
    assert world.view(run_id).summary.ended_ms is not None
    session.report(session.message.message_id, idle=True)
    keep(session, run_id, "done", at=1)
    assert kept(session, run_id) == ['"working"', '"done"']

    pass_days(world, 31)
    prune(world)
    counts = [world.sql(f"SELECT count(*) FROM {table}") for table in ("runs", "segments", "session_entries")]
    assert counts == [[(0,)]] * 3


def test_segments_are_counted_alone_and_shown_in_the_order_of_time_page_by_page(session):
    run_id = session.asked()
    for number in range(3):
        keep(session, run_id, f"m{number}", at=number)
        keep(session, run_id, f"s{number}", at=number, segment="side")
    assert kept(session, run_id) == ['"m0"', '"s0"', '"m1"', '"s1"', '"m2"', '"s2"']
    assert kept(session, run_id, segment="side") == ['"s0"', '"s1"', '"s2"']
    first = page(session, run_id, limit=4)
    assert kept(session, run_id, cursor=first.next_cursor) == ['"m2"', '"s2"']
    assert page(session, run_id, limit=6).next_cursor is None


def test_a_page_is_no_larger_than_a_frame_takes(session, monkeypatch):
    monkeypatch.setattr(transcripts, "PAGE_BYTES", 10)
    run_id = session.asked()
    keep(session, run_id, "x" * 20, "four", "more")
    first = page(session, run_id)
    assert len(first.entries) == 1
    second = page(session, run_id, cursor=first.next_cursor)
    assert [bytes(entry.data) for entry in second.entries] == [b'"four"']


def test_of_what_is_not_on_a_page_no_body_is_read(session, monkeypatch):
    monkeypatch.setattr(transcripts, "PAGE_BYTES", 250)
    run_id = session.asked()
    keep(session, run_id, *("x" * 98 for _ in range(50)))
    read = []

    class Counting:
        def __init__(self, tx):
            self.tx, self.one = tx, tx.one

        def all(self, sql, params):
            rows = self.tx.all(sql, params)
            read.extend(value for row in rows for value in row if isinstance(value, bytes))
            return rows

    query = ReadTranscript(run_id=run_id, asked=TranscriptPayload(limit=40))
    found = session.world.read(lambda tx, query: transcript(Counting(tx), query), query)
    assert [len(found.entries), sum(map(len, read))] == [2, 200]


@pytest.mark.parametrize(("bound", "value"), [("KEPT_MAX", 3), ("KEPT_BYTES_MAX", 9)])
def test_a_full_segment_loses_its_oldest_entries(session, monkeypatch, bound, value):
    monkeypatch.setattr(transcripts, bound, value)
    monkeypatch.setattr(transcripts, "OLD_PAGE", 2)
    run_id = session.asked()
    found = keep(session, run_id, *"abcdef")
    assert (found.first, found.following) == (3, 6)
    assert kept(session, run_id) == ['"d"', '"e"', '"f"']
    assert keep(session, run_id, *"abcdefg").first == 4, "what is gone is not compared"


def test_entries_and_segments_are_bounded(session):
    run_id = session.asked()
    with pytest.raises(ValueTooLarge, match="entry 0 has"):
        keep(session, run_id, "x" * ENTRY_BYTES_MAX)
    for number in range(SEGMENTS_MAX):
        keep(session, run_id, 1, segment=f"s{number}")
    with pytest.raises(Rejected, match="16 segments"):
        keep(session, run_id, 1, segment="more")
    keep(session, run_id, 2, at=1, segment="s0")
