"""Reads: one snapshot, bounded in time, interruptible."""

import threading
import time

import apsw
import pytest

from pwf.errors import NotFound, Unavailable, ValueDamaged
from pwf.store.reading import Reading
from tests.store.support import do, keys, put

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
def reader(writer, spec):
    opened = spec.reader()
    yield opened
    opened.close()


def test_a_read_sees_what_is_committed(writer, reader):
    do(writer, put, "a")
    assert reader.run(keys, None, Reading()) == ["a"]


def test_all_statements_of_a_read_see_one_snapshot(writer, reader):
    do(writer, put, "a")

    def twice(tx, _):
        first = keys(tx)
        do(writer, put, "b")
        return first, keys(tx)

    assert reader.run(twice, None, Reading()) == (["a"], ["a"])
    assert reader.run(keys, None, Reading()) == ["a", "b"]


def test_a_read_that_met_what_is_no_text_leaves_no_snapshot_for_the_next(writer, reader):
    do(writer, lambda tx, _: tx.run("INSERT INTO meta VALUES ('a', CAST(x'ff' AS TEXT))"))
    with pytest.raises(ValueDamaged, match="can not be read") as caught:
        reader.run(lambda tx, _: tx.all("SELECT value FROM meta"), None, Reading())
    assert "pwf state verify" in caught.value.hint
    do(writer, lambda tx, _: tx.run("UPDATE meta SET value = 'v'"))
    assert reader.run(lambda tx, _: tx.all("SELECT value FROM meta WHERE key = 'a'"), None, Reading()) == [
        ("v",)
    ]


def test_a_statement_that_takes_too_long_is_interrupted(reader):
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"longer than 0\.1 s"):
        reader.run(lambda tx, _: tx.one(ENDLESS), None, Reading(limit_s=0.1))
    assert time.monotonic() - started < 5
    assert reader.run(keys, None, Reading()) == []


def test_many_short_statements_that_take_too_long_are_ended_too(reader):
    def endless(tx, _):
        while True:
            tx.one("SELECT 1")

    with pytest.raises(Unavailable, match=r"longer than 0\.1 s"):
        reader.run(endless, None, Reading(limit_s=0.1))


def test_a_read_is_stopped_from_another_thread(reader):
    reading = Reading()
    timer = threading.Timer(0.1, reading.stop)
    timer.start()
    with pytest.raises(Unavailable, match="given up"):
        reader.run(lambda tx, _: tx.one(ENDLESS), None, reading)
    timer.join()


def test_what_the_handler_raises_reaches_the_caller_and_the_next_read_works(reader):
    def missing(tx, _):
        keys(tx)
        raise NotFound("nothing here")

    with pytest.raises(NotFound, match="nothing here"):
        reader.run(missing, None, Reading())
    assert reader.run(keys, None, Reading()) == []


def test_a_read_that_comes_when_the_store_has_closed_is_told_so(reader):
    reader.close()
    with pytest.raises(Unavailable, match="the store is closed"):
        reader.run(lambda tx, _: tx.one("SELECT 1"), None, Reading())


def test_a_read_that_writes_is_a_mistake(reader):
    with pytest.raises(apsw.ReadOnlyError):
        reader.run(put, "a", Reading())
