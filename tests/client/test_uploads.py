"""What does not fit into a request is sent before it in pieces, and again to a daemon that has not got it."""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.client.sync import SyncClient
from pwf.client.uploads import INLINE_BYTES_MAX, large_values, uploading
from pwf.errors import ContentWanted
from pwf.protocol.operations import Answered, AnswerPayload, WaitPayload
from pwf.protocol.uploads import ContentTaken
from pwf.values import CHUNK_BYTES, canonical
from tests.client.fake_daemon import FakeDaemon

SMALL, LARGE = "x" * 100, "x" * (INLINE_BYTES_MAX + CHUNK_BYTES)


def payload(answer: str) -> AnswerPayload:
    return AnswerPayload(request_id="q1", answer=msgspec.Raw(canonical(answer)))


def taken(piece: Any, *, whole: bool) -> ContentTaken:
    return ContentTaken(digest=piece.digest, taken=1, whole=whole)


def test_what_fits_stays_in_the_request() -> None:
    assert large_values(payload(SMALL)) is None
    assert large_values(WaitPayload()) is None
    assert large_values(None) is None


def test_a_large_value_goes_in_pieces_of_one_size_and_leaves_a_null() -> None:
    large = large_values(payload(LARGE))
    assert large is not None
    assert bytes(large.payload.answer) == b"null"  # type: ignore[attr-defined]
    asking = uploading(large)
    pieces = []
    question = next(asking)
    while True:
        pieces.append(question[1])
        try:
            question = asking.send(taken(question[1], whole=question[1].last))  # type: ignore[attr-defined]
        except StopIteration:
            break
    assert b"".join(one.data for one in pieces) == canonical(LARGE)  # type: ignore[attr-defined]
    assert [len(one.data) for one in pieces[:-1]] == [CHUNK_BYTES] * (len(pieces) - 1)  # type: ignore[attr-defined]
    assert {(one.size, one.what) for one in pieces} == {(len(canonical(LARGE)), "answer")}  # type: ignore[attr-defined]


def test_what_the_daemon_has_already_is_not_sent() -> None:
    large = large_values(payload(LARGE))
    assert large is not None
    asking = uploading(large)
    question = next(asking)
    ends = False
    try:
        asking.send(taken(question[1], whole=True))
    except StopIteration:
        ends = True
    assert ends


def test_a_daemon_that_was_started_since_gets_it_again_under_the_same_key(daemon: FakeDaemon) -> None:
    sent: list[Any] = []

    def answer(request: Any, said: Any) -> Any:
        sent.append(request)
        if len(sent) == 1:
            return ContentWanted("the value was not sent")
        return Answered(request_id="q1", run_id="k3", status="queued", revision=4)

    daemon.on("content.put", lambda request, piece: taken(piece, whole=piece.last))
    daemon.on("request.answer", answer)
    with SyncClient(daemon.places, autostart=False) as client:
        assert client.answer("q1", LARGE).run_id == "k3"
    first, second = sent
    assert first.contents == second.contents
    assert first.contents.keys() == {"answer"}
    assert first.idempotency_key == second.idempotency_key
