"""A run that can't be handled parks alone: whoever acts on many runs goes on with the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from pwf.errors import PwfError, Unavailable
from pwf.store import place
from pwf.store.queries import load_queries
from pwf.store.tx import Tx
from pwf.values import shortened

R = TypeVar("R")

Q = load_queries(__file__)

DETAIL_CHARACTERS_MAX = 2000


def alone(tx: Tx, run_id: str, act: Callable[[], R]) -> R | None:
    """Act on one run of many: a row that can't be handled parks its own run, and stops nobody else's."""
    try:
        with tx.savepoint():
            return act()
    except Unavailable:  # not this run's fault
        raise
    except (PwfError, msgspec.MsgspecError) as error:
        break_run(tx, run_id, str(error))
        return None


def break_run(tx: Tx, run_id: str, detail: str) -> None:
    """Park a run that can't be handled, without loading it: its row may be what can't be read.

    An open attempt stays open. If the run is ever resumed, its next runner can't begin, and the end of that one
    settles the attempt with its effect, by the rules.
    """
    detail = shortened(detail, DETAIL_CHARACTERS_MAX)
    row = tx.one(Q.break_run, {"run_id": run_id, "detail": detail})
    if row is None:
        return  # it has ended
    run_no = int(row[0])
    tx.run(place.Q.dequeue, {"run_no": run_no})
    tx.release_lease(run_no)
    revision = tx.fence(run_no)
    tx.event(run_no, revision, "held", "daemon", 0, {"hold": "broken", "detail": detail})
    tx.changed("run:" + run_id)
    tx.changed("stand:" + run_id)
