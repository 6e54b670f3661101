"""Work whose length a client decides by what it sends: much of it is done beside the loop, which serves the others.

Promises: no more than `AT_ONCE` at the same time, so that large values wait for each other and not the daemon for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

R = TypeVar("R")

SMALL_BYTES = (
    32 * 1024
)  # the slowest text of that length (empty objects) takes 7 ms; the loop may be held up for 50
AT_ONCE = 1

_limit: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("work beside the loop")


async def apart(size: int, work: Callable[[], R]) -> R:
    """`work()`, which takes as long as `size` bytes make it; in a thread when they are many. Whatever it raises."""
    if size <= SMALL_BYTES:
        return work()
    try:
        limiter = _limit.get()
    except LookupError:
        limiter = trio.CapacityLimiter(AT_ONCE)
        _limit.set(limiter)
    return await trio.to_thread.run_sync(work, limiter=limiter)
