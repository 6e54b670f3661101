"""Reads and commands of many runs, gone on with where a row of one can't be read.

Owns nothing. Must never hide a fault of our own: what is raised again goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreHandle
from pwf.store.unreadable import park_unreadable
from pwf.store.values import UNREADABLE

R = TypeVar("R")


async def past_unreadable(store: StoreHandle, log: Log, ask: Callable[[], Awaitable[R]]) -> R:
    """Ask; where a row can't be read its run is parked as `broken`, and it is asked again."""
    try:
        return await ask()
    except UNREADABLE as error:
        parked = await store.write(park_unreadable, None)
        log.error("store.unreadable", parked=parked, error=type(error).__name__)
    return await ask()  # parked by now, if only by another task; else it raises what it raised
