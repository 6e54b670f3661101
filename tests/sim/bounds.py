"""Bounds of the product that a seed may draw: so small that everything waits for room and goes on page by page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any

import pwf.actors.base.store_actor
import pwf.actors.operations.daemon
import pwf.actors.runs.scheduler
import pwf.store.batch
import pwf.store.custody
import pwf.store.database
import pwf.store.migrate
import pwf.store.queue
import pwf.store.receipts
import pwf.store.retention
import pwf.store.values
import pwf.values
import pwf.watch
from pwf.actors.code.newer_code import NewerCode
from tests.sim.code import Code
from tests.sim.mix import Mix

CHUNK_BYTES = 2_048
PROOF_TIMEOUT_S = 5.0
#: Where a bound stands. A seed's own bound takes the place of each.
SMALL: tuple[tuple[ModuleType, str], ...] = (
    (pwf.actors.base.store_actor, "INBOX_MAX"),
    (pwf.actors.base.store_actor, "BATCH_MAX"),
    (pwf.actors.runs.scheduler, "INBOX_MAX"),
    (pwf.actors.runs.scheduler, "TAKE_MAX"),
    (pwf.store.custody, "STRETCH_MAX"),
    (pwf.store.queue, "ADMIT_BATCH"),
    (pwf.store.queue, "DUE_BATCH"),
    (pwf.store.retention, "LOOK_MAX"),
    (pwf.store.retention, "PLAN_MAX"),
    (pwf.store.retention, "UNUSED_MAX"),
    (pwf.store.receipts, "LOOK_PAGE"),
)
CHUNKS = (pwf.values, pwf.store.values, pwf.actors.operations.daemon)


async def _never_newer(_actor: NewerCode, _message: object) -> bool:
    """A thread would read the files, in no virtual time; what `show` says of newer code decides nothing."""
    return False


def _never_waits(_wait: object, _tries: int) -> bool:
    """A lock is waited for in real time, of which there is none here."""
    return False


#: The schema is the same at each of a thousand starts.
_normal = cache(pwf.store.migrate._normal)


@contextmanager
def drawn(mix: Mix, code: Code) -> Iterator[None]:
    """The product has the bounds of this seed."""
    wanted: list[tuple[Any, str, Any]] = [
        (NewerCode, "_handle_look", _never_newer),
        (pwf.watch, "mark_of", partial(code.mark_of, pwf.watch.mark_of)),
        (pwf.store.database.BusyWait, "__call__", _never_waits),
        (pwf.store.migrate, "_normal", _normal),
        (pwf.store.batch, "WAL_IDLE_BYTES", mix.checkpoint_bytes),
        (pwf.store.batch, "WAL_BUSY_BYTES", mix.checkpoint_bytes * 4),
        (pwf.store.batch, "WAL_PAUSE_BYTES", mix.checkpoint_bytes * 8),
        *((module, "CHUNK_BYTES", CHUNK_BYTES) for module in CHUNKS),
    ]
    if mix.bounds is not None:
        wanted += [(module, name, mix.bounds) for module, name in SMALL]
    kept = [(module, name, getattr(module, name)) for module, name, _ in wanted]
    try:
        for module, name, value in wanted:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
