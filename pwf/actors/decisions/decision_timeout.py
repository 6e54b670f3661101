"""DecisionTimeout: settles every request whose time is over, by its default or as timed out, and every step that a
model of a session has worked on for as long as it may.

Owns when it looks next. Promises: one request at a time, each in one transaction; at start, at each due time and at
each step of the clock; an error is logged and tried again; nothing is held in memory, so what fell due while no daemon
ran is settled at the next start. While nothing is due it costs one look at two indexes in five seconds.
In: wake-ups (the store's key "requests", steps of the clock). Out: transactions; the scheduler hears of what they queue
by the store. If it dies: the daemon ends.
"""

from __future__ import annotations

import trio

from pwf.actors.base.changes import REREAD_S, Changes, Watch
from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.runs.unreadable import past_unreadable
from pwf.errors import OutcomeUnknown, Unavailable
from pwf.store.deadlines import next_deadline, time_out
from pwf.store.request_clock import rebase_deadlines

# --- limits ---------------------------------------------------------------------------------------------------

UNAVAILABLE_S = 0.5  # pause after the store could not take it


# --- the actor ------------------------------------------------------------------------------------------------


class DecisionTimeout:
    """The actor. `wake` is for any task, and may be lost or doubled."""

    def __init__(self, store: StoreHandle, changes: Changes, log: Log) -> None:
        self._store = store
        self._changes = changes
        self._log = log
        self._watch = Watch()
        self.wake = self._watch.wake

    async def run(self) -> None:
        """Settle what is due, until cancelled."""
        with self._changes.calling("requests", self.wake):
            rebased = False
            while True:
                try:
                    if not rebased:  # before all else: deadlines of an earlier boot go by the wall clock
                        await self._store.write(rebase_deadlines, None)
                        rebased = True
                    due_s = await self._settle()
                except Unavailable as error:
                    if isinstance(error, OutcomeUnknown):
                        raise
                    self._log.warning("deadlines.unavailable", code=error.code)
                    due_s = UNAVAILABLE_S
                    await trio.sleep(UNAVAILABLE_S)
                await self._watch.wait(min(due_s, REREAD_S))

    async def _settle(self) -> float:
        """Settle what is due; how long until something is, in seconds."""
        last: str | None = None
        while True:
            found = await past_unreadable(
                self._store, self._log, lambda: self._store.glance(next_deadline, None)
            )
            if found.in_ms is None:
                return REREAD_S
            if found.in_ms > 0:
                return found.in_ms / 1000
            settled = await past_unreadable(self._store, self._log, lambda: self._store.write(time_out, None))
            if settled is not None:
                self._log("deadlines.over", request_id=settled)
                if settled == last:  # it is due again: a fault, which must not take the daemon's time
                    return REREAD_S
                last = settled
