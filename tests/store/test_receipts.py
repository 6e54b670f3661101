"""Receipts: a repeat gets the first answer."""

import pytest

from pwf.errors import Conflict, Rejected
from pwf.store.receipts import (
    KEPT_MS,
    ReceiptKey,
    drop_receipts,
    find_receipt,
    old_receipts,
    save_receipt,
)
from tests.store.support import do, insert_run, put, run

KEY = ReceiptKey(scope_key="user:1:k", operation="run.pause", payload_digest="d1")


def save(tx, key, run_id=None):
    save_receipt(tx, key, outcome="accepted", response=b"{}", run_id=run_id)


def find(writer, key=KEY):
    return do(writer, find_receipt, key)


def test_a_repeat_finds_the_first_answer(writer, clock):
    assert find(writer) is None
    do(writer, save, KEY)
    clock.forward(1000)
    receipt = find(writer)
    assert (receipt.outcome, receipt.response, receipt.run_id) == ("accepted", b"{}", None)
    assert receipt.created_wall_ms == clock.wall_ms - 1000


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"operation": "run.cancel"}, "used for run.pause before"),
        ({"payload_digest": "d2"}, "run.pause with another payload"),
    ],
)
def test_the_same_key_with_another_command_is_a_conflict(writer, other, message):
    do(writer, save, KEY)
    facts = {"scope_key": KEY.scope_key, "operation": KEY.operation, "payload_digest": KEY.payload_digest}
    with pytest.raises(Conflict, match=message):
        find(writer, ReceiptKey(**(facts | other)))


def test_a_command_that_fails_leaves_no_receipt(writer):
    def save_and_fail(tx, key):
        save(tx, key)
        raise Rejected("after all")

    run(writer, (put, "a"), (save_and_fail, KEY))
    assert find(writer) is None


def prune(tx, _):
    return drop_receipts(tx, old_receipts(tx, (-1, 0)).keys)


def test_receipts_are_kept_thirty_days(writer, clock):
    do(writer, save, KEY)
    clock.forward(KEPT_MS)
    assert do(writer, prune) == 0
    clock.forward(1)
    assert do(writer, prune) == 1
    assert find(writer) is None


def test_a_receipt_lives_as_long_as_the_run_that_it_names(writer, clock):
    do(writer, lambda tx, _: insert_run(tx, "r1"))
    do(writer, lambda tx, _: save(tx, KEY, "r1"))
    clock.forward(10 * KEPT_MS)
    assert do(writer, prune) == 0
    do(writer, lambda tx, _: tx.run("DELETE FROM runs WHERE run_id = 'r1'"))
    assert do(writer, prune) == 1
