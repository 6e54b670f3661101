"""A run that can't be handled parks alone: whoever acts on many runs goes on with the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import apsw
import msgspec

from pwf.errors import PwfError, Unavailable
from pwf.store import place, request_clock
from pwf.store.queries import load_queries
from pwf.store.resource_wake import wake
from pwf.store.tx import Tx
from pwf.values import shortened

R = TypeVar("R")

Q = load_queries(__file__)

DETAIL_CHARACTERS_MAX = 2000

#: What a row raises whose content can't be: it does not decode, is of another type, names what is not there, or breaks
#: the schema's rules as soon as it is written again.
UNHANDLED = (
    PwfError,
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    LookupError,
    AssertionError,
    apsw.ConstraintError,
)


def isolated(tx: Tx, run_id: str, act: Callable[[], R]) -> R | None:
    """Act on one run of many: a row that can't be handled parks its own run, and stops nobody else's."""
    try:
        with tx.savepoint():
            return act()
    except Unavailable:  # not this run's fault
        raise
    except UNHANDLED as error:
        break_run(tx, run_id, str(error) or type(error).__name__)
        return None


def break_run(tx: Tx, run_id: str, detail: str) -> None:
    """Park a run that can't be handled, without loading it: its row may be what can't be read.

    An open attempt stays open. If the run is ever resumed, its next runner can't begin, and the end of that one
    settles the attempt with its effect, by the rules.
    """
    row = tx.one(Q.number_of, {"run_id": run_id})
    if row is not None:
        hold_broken(tx, int(row[0]), detail)


def hold_broken(tx: Tx, run_no: int, detail: str) -> None:
    """The same, by the run's number. Where not even that can be written to its rows, it is due no more."""
    try:
        with tx.savepoint():
            _hold(tx, run_no, shortened(detail, DETAIL_CHARACTERS_MAX))
    except UNHANDLED:
        tx.run(place.Q.dequeue, {"run_no": run_no})


def _hold(tx: Tx, run_no: int, detail: str) -> None:
    if not tx.run(Q.break_run, {"run_no": run_no, "detail": detail}):
        return  # it has ended
    tx.run(place.Q.dequeue, {"run_no": run_no})
    tx.release_lease(run_no)
    revision = tx.fence(run_no)
    tx.event(run_no, revision, "held", "daemon", 0, {"hold": "broken", "detail": detail})
    row = tx.one(Q.name_of, {"run_no": run_no})
    if row is not None:
        request_clock.stop(tx, str(row[0]))
        if row[1] is not None:
            wake(tx, int(row[1]), "child")
        tx.changed("run:" + str(row[0]))
        tx.changed("stand:" + str(row[0]))
