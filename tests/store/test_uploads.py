"""What clients send before they name it: held for an hour for the daemon that serves, bounded, and dropped unused."""

import hashlib

import pytest

from pwf.errors import ClaimLost, ContentWanted, InvalidValue, StateFull, Unavailable, ValueTooLarge
from pwf.protocol.uploads import PutContent
from pwf.store import uploads
from pwf.store.uploads import PutUpload, drop_uploads, put_upload, uploaded_size
from pwf.store.values import UnusedValues, unused_values
from pwf.values import CHUNK_BYTES
from tests.store.test_recovery import take_over

DATA = b'"' + b"x" * (CHUNK_BYTES + 100) + b'"'
LIMIT = 4 * CHUNK_BYTES


@pytest.fixture
def served(world):
    """The world with a daemon that has its claim; its epoch."""
    take_over(world)
    return world


def piece(data, index, **more):
    part = data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
    facts = {"last": (index + 1) * CHUNK_BYTES >= len(data), "what": "input", "size": len(data)}
    return PutContent(digest=hashlib.sha256(data).hexdigest(), index=index, data=part, **(facts | more))


def put(world, data, index, *, size=None, **more):
    facts = {"epoch": world.epoch, "limit": LIMIT} | more
    sent = piece(data, index) if size is None else piece(data, index, size=size)
    return world.do(put_upload, PutUpload(piece=sent, **facts))


def send(world, data):
    for index in range(-(-len(data) // CHUNK_BYTES)):
        taken = put(world, data, index)
    return taken


def size(world, data):
    return world.read(uploaded_size, hashlib.sha256(data).hexdigest())


def test_a_value_is_there_when_its_last_piece_has_come(served):
    first = put(served, DATA, 0)
    assert (first.taken, first.whole) == (CHUNK_BYTES, False)
    with pytest.raises(ContentWanted):
        size(served, DATA)
    assert put(served, DATA, 1).whole
    assert size(served, DATA) == len(DATA)
    assert put(served, DATA, 0).whole  # sent again, it is there already
    assert served.read(unused_values, UnusedValues()).values == ()


def test_a_value_over_the_limit_is_refused_with_its_size_before_anything_is_kept(served):
    before = served.dump()
    with pytest.raises(ValueTooLarge, match=f"the input has {len(DATA):,} bytes; the limit is 1,000"):
        put(served, DATA, 0, limit=1_000)
    assert served.dump() == before


def test_what_is_not_of_its_digest_is_refused(served):
    wrong = put(served, DATA, 0)
    assert not wrong.whole
    other = PutContent(digest=wrong.digest, index=1, data=b"other", size=len(DATA), last=True)
    with pytest.raises(InvalidValue, match="have digest"):
        served.do(put_upload, PutUpload(piece=other, epoch=served.epoch, limit=LIMIT))


def test_the_next_daemon_has_nothing_of_what_was_sent_to_the_one_before(served):
    send(served, DATA)
    epoch = served.epoch
    take_over(served)
    with pytest.raises(ContentWanted):
        size(served, DATA)
    with pytest.raises(ClaimLost):
        put(served, DATA, 0, epoch=epoch)
    assert not put(served, DATA, 0).whole  # although its bytes are still there
    with pytest.raises(ContentWanted):
        size(served, DATA)
    assert put(served, DATA, 1).whole
    assert size(served, DATA) == len(DATA)


def test_nobody_gets_at_a_value_by_its_digest_alone(served):
    send(served, DATA)
    take_over(served)
    digest = hashlib.sha256(DATA).hexdigest()
    for index, junk in ((0, b"junk"), (0, DATA[: CHUNK_BYTES - 1] + b"?"), (1, DATA[CHUNK_BYTES:])):
        forged = PutContent(
            digest=digest, index=index, data=junk, size=len(DATA), last=len(junk) < CHUNK_BYTES
        )
        with pytest.raises((InvalidValue, ContentWanted)):
            served.do(put_upload, PutUpload(piece=forged, epoch=served.epoch, limit=LIMIT))
    with pytest.raises(ContentWanted):
        size(served, DATA)


def test_nothing_is_kept_of_a_value_that_does_not_begin_with_its_first_piece(served):
    before = served.dump()
    with pytest.raises(ContentWanted, match="piece 0 of the input comes first"):
        put(served, DATA, 1)
    with pytest.raises(InvalidValue, match="beyond the 10 bytes"):
        put(served, DATA, 0, size=10)
    assert served.dump() == before


def test_what_nobody_names_for_an_hour_is_dropped(served):
    send(served, DATA)
    served.clock.forward(uploads.HELD_MS)
    assert served.do(drop_uploads) == 0
    served.clock.forward(1)
    assert served.do(drop_uploads) == 1
    (unused,) = served.read(unused_values, UnusedValues()).values
    assert unused == (hashlib.sha256(DATA).hexdigest(), len(DATA))


def test_what_waits_to_be_named_is_bounded_in_bytes(served):
    for number in range(4):
        send(served, bytes([48 + number]) * LIMIT)
    with pytest.raises(Unavailable, match="4 values of 4,194,304 bytes") as caught:
        put(served, DATA, 0)
    assert "after an hour" in caught.value.hint
    served.clock.forward(uploads.HELD_MS + 1)
    assert not put(served, DATA, 0).whole


def test_what_waits_to_be_named_is_bounded_in_number(served, monkeypatch):
    monkeypatch.setattr(uploads, "WAITING_MAX", 2)
    for number in range(2):
        send(served, b"%d" % number)
    with pytest.raises(Unavailable):
        put(served, DATA, 0)


def test_what_a_request_has_named_does_not_count(served, monkeypatch):
    monkeypatch.setattr(uploads, "WAITING_MAX", 2)
    monkeypatch.setattr(uploads, "is_referenced", lambda tx, name: True)
    for number in range(5):
        send(served, b"%d" % number)
    assert served.read(uploaded_size, hashlib.sha256(b"0").hexdigest()) == 1  # the next may name it, too
    served.clock.forward(uploads.NAMED_MS + 1)
    send(served, b"5")
    with pytest.raises(ContentWanted):
        size(served, b"0")


def test_over_the_budget_of_the_state_nothing_is_taken(served):
    with pytest.raises(StateFull):
        put(served, DATA, 0, state_bytes_max=1)
