"""A managed resource that can't be handled is kept back alone: whoever acts on many goes on with the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pwf.errors import Unavailable
from pwf.store.broken import DETAIL_CHARACTERS_MAX, UNHANDLED
from pwf.store.queries import load_queries
from pwf.store.resource_wake import take_from_queue
from pwf.store.tx import Tx
from pwf.values import shortened

R = TypeVar("R")

Q = load_queries(__file__)


def isolated_resource(tx: Tx, resource_no: int, act: Callable[[], R]) -> R | None:
    """Act on one of many: a row that can't be handled keeps back its own resource, and stops nobody else's."""
    try:
        with tx.savepoint():
            return act()
    except Unavailable:  # not this resource's fault
        raise
    except UNHANDLED as error:
        _break(tx, resource_no, shortened(str(error) or type(error).__name__, DETAIL_CHARACTERS_MAX))
        return None


def _break(tx: Tx, resource_no: int, detail: str) -> None:
    """Without loading it: its row may be what can't be read."""
    take_from_queue(tx, resource_no)
    tx.release_lease(resource_no)
    if tx.run(Q.break_resource, {"resource_no": resource_no, "detail": detail}):
        revision = tx.fence(resource_no)
        tx.event(resource_no, revision, "held", "daemon", 0, {"hold": "broken", "detail": detail})
        tx.changed("resources")
