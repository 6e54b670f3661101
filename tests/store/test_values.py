"""Values: inline or content-addressed, uploaded in chunks, read back verified, pruned when nobody needs them."""

import re

import apsw
import pytest

from pwf.errors import ClaimLost, DiskFull, InvalidValue, NotFound, ValueDamaged, ValueTooLarge
from pwf.store import values
from pwf.store.batch import Job
from pwf.store.reading import Reading
from pwf.store.values import (
    PutValueChunk,
    ReadValueChunk,
    UnusedValues,
    ValueChunk,
    claim_value,
    drop_values,
    load_content,
    load_value,
    put_chunk,
    read_chunk,
    store_content,
    store_value,
    unused_values,
    value_of,
)
from pwf.values import CHUNK_BYTES, INLINE_BYTES_MAX, digest
from tests.store.support import do, insert_run

LARGE = b'"' + b"0123456789abcdef" * (CHUNK_BYTES // 8) + b'"'  # two whole chunks and a bit
R1 = 1  # the number of the only run in these stores
SMALL = b'{"a":1}'


def load(writer, pair):
    return do(writer, lambda tx, _: load_value(tx, *pair))


def count(writer, table):
    return do(writer, lambda tx, _: tx.one(f"SELECT count(*) FROM {table}"))[0]


@pytest.mark.parametrize("size", [1, INLINE_BYTES_MAX])
def test_a_small_value_stands_in_its_row(writer, size):
    data = b"x" * size
    assert do(writer, store_value, data) == (data, None)
    assert load(writer, (data, None)) == data
    assert count(writer, "contents") == 0


@pytest.mark.parametrize("size", [INLINE_BYTES_MAX + 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_a_larger_value_comes_back_whole(writer, size):
    data = bytes(i % 251 for i in range(size))
    pair = do(writer, store_value, data)
    assert pair == (None, digest(data))
    assert load(writer, pair) == data
    assert count(writer, "content_chunks") == -(-size // CHUNK_BYTES)


def test_empty_content_is_whole_and_is_read_like_any_other(writer):
    name = do(writer, store_content, b"")

    assert do(writer, load_content, name) == b""
    assert do(writer, read_chunk, ReadValueChunk(digest=name, index=0)) == ValueChunk(data=b"", last=True)


def test_equal_values_are_kept_once(writer):
    do(writer, store_value, LARGE)
    do(writer, store_value, LARGE)
    assert count(writer, "contents") == 1
    assert count(writer, "content_chunks") == 3


def test_the_wire_form_says_size_and_where_the_value_is():
    assert bytes(value_of(SMALL, None, None).json) == SMALL
    assert value_of(SMALL, None, None).size == len(SMALL)
    large = value_of(None, "d" * 64, 9000)
    assert (large.json, large.digest, large.size) == (None, "d" * 64, 9000)
    assert bytes(value_of(None, None, None).json) == b"null"


def test_a_value_that_is_not_there_is_not_found(writer):
    with pytest.raises(NotFound):
        load(writer, (None, "0" * 64))


def test_a_value_is_read_back_in_chunks(writer):
    name = do(writer, store_value, LARGE)[1]
    parts, index = [], 0
    while True:
        part = do(writer, read_chunk, ReadValueChunk(digest=name, index=index))
        parts.append(part.data)
        index += 1
        if part.last:
            break
    assert b"".join(parts) == LARGE
    assert [len(part) for part in parts] == [CHUNK_BYTES, CHUNK_BYTES, 2]
    assert do(writer, read_chunk, ReadValueChunk(digest=name, index=index)).missing


@pytest.mark.parametrize("how", ["read_chunk", "load_value"])
def test_damage_is_noticed_when_a_value_is_read(writer, spec, how):
    name = do(writer, store_value, LARGE)[1]
    damage = "UPDATE content_chunks SET data = zeroblob(length(data)) WHERE chunk = 1"
    do(writer, lambda tx, _: tx.run(damage))
    reader = spec.reader()
    with pytest.raises(ValueDamaged, match="damaged"):
        if how == "read_chunk":
            reader.run(read_chunk, ReadValueChunk(digest=name, index=1), Reading())
        else:
            reader.run(lambda tx, _: load_value(tx, None, name), None, Reading())
    reader.close()


def test_a_damaged_value_is_its_callers_to_bear_and_stops_nobody_else(writer):
    name = do(writer, store_value, LARGE)[1]
    do(writer, lambda tx, _: tx.run("UPDATE content_chunks SET data = zeroblob(length(data))"))
    batch = writer.run([Job(lambda tx, _: load_value(tx, None, name), None), Job(lambda tx, _: 7, None)])
    assert batch.broken is None
    assert isinstance(batch.answers[0].error, ValueDamaged)
    assert batch.answers[1].value == 7


# --- uploads ------------------------------------------------------------------------------------------------


@pytest.fixture
def owned(writer):
    """Run r1 has generation 1 under a live lease."""

    def make(tx, _):
        insert_run(tx, "r1")
        tx.take_lease(R1, token="t", owner="daemon:1", until_awake_ms=tx.now.awake_ms + 30_000)

    do(writer, make)
    return writer


def release(writer):
    do(writer, lambda tx, _: tx.release_lease(R1))


def chunk(data, index, name=None, generation=1, **more):
    piece = data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
    last = (index + 1) * CHUNK_BYTES >= len(data)
    return PutValueChunk(
        entity_no=R1,
        generation=generation,
        digest=name or digest(data),
        index=index,
        data=piece,
        last=last,
        **more,
    )


def upload(writer, data, **more):
    for index in range(-(-len(data) // CHUNK_BYTES)):
        size = do(writer, put_chunk, chunk(data, index, **more))
    return size


def claim(writer, name, entity_no=R1, generation=1):
    return do(writer, lambda tx, _: claim_value(tx, name, entity_no, generation))


def test_an_upload_can_be_named_by_its_run_and_generation_once_it_is_whole(owned):
    do(owned, put_chunk, chunk(LARGE, 0))
    with pytest.raises(InvalidValue, match="was not uploaded"):
        claim(owned, digest(LARGE))
    assert upload(owned, LARGE) == len(LARGE)
    assert claim(owned, digest(LARGE)) == len(LARGE)
    assert load(owned, (None, digest(LARGE))) == LARGE


@pytest.mark.parametrize(("entity_no", "generation"), [(R1 + 1, 1), (R1, 2)])
def test_nobody_else_can_name_it(owned, entity_no, generation):
    upload(owned, LARGE)
    with pytest.raises(InvalidValue):
        claim(owned, digest(LARGE), entity_no, generation)


def test_a_value_that_is_here_already_must_still_be_uploaded_to_be_named(owned):
    do(owned, store_value, LARGE)
    with pytest.raises(InvalidValue):
        claim(owned, digest(LARGE))
    upload(owned, LARGE)
    assert claim(owned, digest(LARGE)) == len(LARGE)


def test_an_upload_may_be_repeated_from_any_chunk(owned):
    do(owned, put_chunk, chunk(LARGE, 0))
    do(owned, put_chunk, chunk(LARGE, 1))
    upload(owned, LARGE)
    do(owned, put_chunk, chunk(LARGE, 2))
    assert load(owned, (None, digest(LARGE))) == LARGE
    assert count(owned, "content_chunks") == 3


def test_bytes_that_do_not_have_the_digest_are_refused(owned):
    wrong = digest(b"other")
    do(owned, put_chunk, chunk(LARGE, 0, wrong))
    do(owned, put_chunk, chunk(LARGE, 1, wrong))
    with pytest.raises(InvalidValue, match="the uploaded bytes have digest"):
        do(owned, put_chunk, chunk(LARGE, 2, wrong))
    with pytest.raises(InvalidValue):
        claim(owned, wrong)


def test_a_missing_chunk_is_named(owned):
    do(owned, put_chunk, chunk(LARGE, 0))
    with pytest.raises(InvalidValue, match=r"chunk 1 of value .* is missing"):
        do(owned, put_chunk, chunk(LARGE, 2))


def test_a_value_above_the_limit_is_refused_with_both_numbers(owned):
    with pytest.raises(ValueTooLarge, match=r"at least 524,288 bytes; the limit is 300,000"):
        do(owned, put_chunk, chunk(LARGE, 1, limit=300_000))


@pytest.mark.parametrize("size", [CHUNK_BYTES - 1, CHUNK_BYTES + 1])
def test_a_chunk_of_another_size_is_refused(owned, size):
    command = PutValueChunk(entity_no=R1, generation=1, digest="0" * 64, index=0, data=b"x" * size)
    with pytest.raises(InvalidValue):
        do(owned, put_chunk, command)


def test_a_stale_generation_uploads_nothing(owned):
    with pytest.raises(ClaimLost):
        do(owned, put_chunk, chunk(LARGE, 0, generation=0))
    release(owned)
    with pytest.raises(ClaimLost):
        do(owned, put_chunk, chunk(LARGE, 0))
    assert count(owned, "contents") == 0


def test_no_upload_is_taken_while_the_disk_is_full(owned):
    owned.tx.disk_full = True
    with pytest.raises(DiskFull):
        do(owned, put_chunk, chunk(LARGE, 0))
    with pytest.raises(DiskFull):
        do(owned, store_value, LARGE)
    assert do(owned, store_value, SMALL) == (SMALL, None)


# --- pruning --------------------------------------------------------------------------------------------------


def prune(writer, limit=100):
    """Look page by page, and drop what is unused; how many went."""
    after, removed = "", 0
    while after is not None:
        page = do(writer, unused_values, UnusedValues(after=after, limit=limit))
        removed += do(writer, drop_values, tuple(name for name, _ in page.values))
        after = page.after
    return removed


def test_a_value_that_nothing_refers_to_is_pruned_with_its_chunks(writer):
    do(writer, store_value, LARGE)
    assert prune(writer) == 1
    assert count(writer, "content_chunks") == 0


def test_an_upload_is_kept_as_long_as_its_generation_has_its_lease(owned):
    upload(owned, LARGE)
    do(owned, put_chunk, chunk(b"y" * len(LARGE), 0))
    assert prune(owned) == 0
    release(owned)
    assert prune(owned) == 2
    assert count(owned, "content_holds") == 0


def test_a_referenced_value_is_kept(writer):
    name = do(writer, store_value, LARGE)[1]
    do(writer, lambda tx, _: insert_run(tx, "r1", output_digest=name))
    assert prune(writer) == 0
    do(writer, lambda tx, _: tx.run("UPDATE runs SET output_digest = NULL"))
    assert prune(writer) == 1


def test_pruning_goes_page_by_page_to_the_end(writer):
    for number in range(5):
        do(writer, store_value, f"{number}".encode() * 5000)
    assert prune(writer, limit=2) == 5


def test_a_value_that_is_referred_to_since_it_was_looked_at_is_kept(writer):
    name = do(writer, store_value, LARGE)[1]
    page = do(writer, unused_values, UnusedValues())
    assert page.values == ((name, len(LARGE)),)
    do(writer, lambda tx, _: insert_run(tx, "r1", output_digest=name))
    assert do(writer, drop_values, (name,)) == 0


def test_pruning_looks_at_every_column_that_refers_to_a_value(spec, writer):
    connection = apsw.Connection(str(spec.path))
    found = set()
    for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        for key in connection.execute("SELECT * FROM pragma_foreign_key_list(?)", (table,)).fetchall():
            if key[2] == "contents":
                found.add((table, key[3]))
    connection.close()
    asked = set(re.findall(r"FROM (\w+) WHERE (\w+) = :digest", values.Q.is_referenced))
    assert asked == found - {("content_chunks", "digest"), ("content_holds", "digest")}
