"""Admission: has runs and reconciles admitted that are due, while there are seats.

Owns the nearest due time. Promises: an admission is one transaction whose cost does not grow with the backlog; a full
batch is followed at once by another; while no seat is free, many wake-ups cost one look at what is due; a reconcile
that has waited for five seconds while runs held every seat gets one beyond the capacity. Holds no run in
memory: at each wake-up it reads the store again.
In: wake-ups (the store's key "queue", seats that came back, operations, steps of the clock). Out: offers, closed.
If it dies: the Scheduler ends, and with it the daemon.
"""

from __future__ import annotations

import trio

from pwf.actors.base.changes import Changes, Watch
from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.runs.offers import Offer, Offers
from pwf.actors.runs.unreadable import past_unreadable
from pwf.errors import OutcomeUnknown, Unavailable
from pwf.store.queue import admit, look, rebase

# --- limits ---------------------------------------------------------------------------------------------------

REREAD_S = 5.0  # a lost wake-up costs at most this
LOOK_S = 0.05  # from a wake-up that finds every seat taken to the look at what is due
BEYOND_MS = 5_000  # a reconcile waits so long while runs hold all the capacity
UNAVAILABLE_S = 0.5  # pause after the store could not take an admission


# --- the actor ------------------------------------------------------------------------------------------------


class Admission:
    """The actor. `wake` is for any task, and may be lost or doubled."""

    def __init__(self, store: StoreHandle, offers: Offers, changes: Changes, log: Log) -> None:
        self._store = store
        self._offers = offers
        self._changes = changes
        self._log = log
        self._watch = Watch()
        self._next_due = float("inf")  # trio's clock
        self._backlog = True  # more may be ready than was admitted
        self.wake = self._watch.wake

    async def rebase(self) -> None:
        """Before all else, once: relative times of an earlier boot go by the wall clock."""
        while True:
            try:
                await self._store.write(rebase, None)
            except Unavailable as error:
                await self._pause(error)
            else:
                return

    async def run(self) -> None:
        """Admit, until cancelled."""
        woken = False
        with self._changes.calling("queue", self.wake):
            while True:
                try:
                    more = await self._admit(woken=woken)
                except Unavailable as error:
                    await self._pause(error)
                    more = True
                due_s = min(self._next_due - trio.current_time(), REREAD_S)
                woken = await self._watch.wait(0 if more else max(0, due_s))

    async def _pause(self, error: Unavailable) -> None:
        if isinstance(error, OutcomeUnknown):
            raise error
        self._log.warning("scheduler.unavailable", code=error.code)
        await trio.sleep(UNAVAILABLE_S)

    async def _admit(self, *, woken: bool) -> bool:
        """Admit what fits. Whether there is more to do at once."""
        free = self._offers.free
        now = trio.current_time()
        if woken and not free and self._offers.why_stopped is None and now < self._next_due:
            # Nothing can be admitted. Whether an earlier time has come to be due is looked up once for many wake-ups.
            self._next_due = min(self._next_due, now + LOOK_S)
            self._backlog = True
            return False
        if not (woken and free and self._backlog):  # then there is work, mostly; everything else looks first
            answer = await past_unreadable(self._store, self._log, lambda: self._store.glance(look, None))
            self._note_due(answer.next_in_ms)
            if self._goes_beyond(answer.reconcile_waiting_ms):
                return await self._take(self._offers.take_beyond())
            if answer.next_in_ms != 0 and not (answer.due_now and free):
                return False
        return await self._take(self._offers.take())

    def _goes_beyond(self, waiting_ms: int | None) -> bool:
        """Whether a reconcile has waited long enough for runs that hold every seat; else it is looked at then."""
        if waiting_ms is None or not self._offers.runs_hold_all:
            return False
        left_ms = BEYOND_MS - waiting_ms
        if left_ms > 0:
            self._next_due = min(self._next_due, trio.current_time() + left_ms / 1000)
        return left_ms <= 0

    async def _take(self, offer: Offer) -> bool:
        """Admit what an offer has room for. Whether there is more to do at once."""
        admitted = None
        try:
            admitted = await past_unreadable(
                self._store, self._log, lambda: self._store.write(admit, offer.admit)
            )
        finally:
            await self._offers.close(offer, admitted)
        self._note_due(admitted.next_in_ms)
        self._backlog = len(admitted.runs) + len(admitted.reconciles) >= offer.admit.limit
        return admitted.more

    def _note_due(self, next_in_ms: int | None) -> None:
        self._next_due = float("inf") if next_in_ms is None else trio.current_time() + next_in_ms / 1000
