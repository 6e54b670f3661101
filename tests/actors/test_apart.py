"""Work that a client's bytes make long: short in the loop, long beside it, one at a time."""

from __future__ import annotations

import threading
import time

import pytest
import trio

from pwf.actors.base.apart import SMALL_BYTES, apart

pytestmark = pytest.mark.trio


async def test_a_small_value_is_worked_on_at_once_and_a_large_one_beside_the_loop() -> None:
    here = threading.get_ident()
    assert await apart(SMALL_BYTES, threading.get_ident) == here
    assert await apart(SMALL_BYTES + 1, threading.get_ident) != here


async def test_what_the_work_raises_comes_out_either_way() -> None:
    def fail() -> None:
        raise KeyError("x")

    for size in (1, SMALL_BYTES + 1):
        with pytest.raises(KeyError):
            await apart(size, fail)


async def test_large_values_wait_for_each_other() -> None:
    open_, most = 0, 0

    def work() -> None:
        nonlocal open_, most
        open_ += 1
        most = max(most, open_)
        time.sleep(0.002)
        open_ -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(apart, SMALL_BYTES + 1, work)
    assert most == 1
