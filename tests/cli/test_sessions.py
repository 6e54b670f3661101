"""`pwf sessions`: what a session has recorded about a run is printed, and what there is to say where nothing was."""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.protocol.transcripts import EntryView, Transcript, TranscriptPayload
from tests.cli.conftest import Pwf
from tests.client.fake_daemon import FakeDaemon


def recorded(*data: Any, session: str | None = "chat", following: int | None = None) -> Transcript:
    entries = tuple(
        EntryView(
            segment="main", number=number, kind="said", data=msgspec.Raw(msgspec.json.encode(one)), at_ms=1
        )
        for number, one in enumerate(data)
    )
    return Transcript(run_id="k3", session_id=session, entries=entries, next_cursor=following)


def test_a_transcript_is_printed_in_order_and_says_where_it_goes_on(pwf: Pwf, daemon: FakeDaemon) -> None:
    asked: list[Any] = []

    def answer(request: Any, payload: Any) -> Transcript:
        asked.append((request.run_id, payload))
        return recorded("hello", {"n": 1}, following=7)

    daemon.on("session.transcript", answer)
    shown = pwf("sessions", "--transcript", "k3", "--segment", "main", "--limit", "2")
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines] == ["main:0", "main:1"]
    assert [line.split()[-1] for line in lines] == ['"hello"', '{"n":1}']
    assert "--cursor 7" in shown.err
    assert asked == [("k3", TranscriptPayload(segment="main", limit=2))]


def test_where_nothing_was_recorded_the_session_of_the_run_is_named(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("session.transcript", lambda request, payload: recorded())
    assert "run k3 is of session chat" in pwf("sessions", "--transcript", "k3").err
    daemon.on("session.transcript", lambda request, payload: recorded(session=None))
    assert "run k3 has no session" in pwf("sessions", "--transcript", "k3").err


def test_a_segment_without_a_transcript_is_a_usage_error(pwf: Pwf, daemon: FakeDaemon) -> None:
    shown = pwf("sessions", "--segment", "main")
    assert shown.code == 2
    assert "pwf sessions --transcript RUN --segment NAME" in shown.err
