"""Recovery: settles what has no supervisor.

Owns the proofs that are under way. Promises: whatever stands in the store as a runner, and has no supervisor here, is
proved dead and settled; a run that is just being admitted is never taken for one; what fails in one pass is done by a
later one. It is a loop, not a pass at start. Must never signal on the word of a plain read: a daemon that was taken
over from would read the rows of its successor's runners. So rows are read under the fence, like a write.
In: time, a wake-up (a supervisor failed). Out: questions to the Scheduler and to the pool, commands to the store.
If it dies: the Scheduler ends, and with it the daemon; the next one recovers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import trio

from pwf import host
from pwf.actors.base.changes import Watch
from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.processes.custody import PROOF_TIMEOUT_S, Sought
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.runs.unreadable import past_unreadable
from pwf.errors import OutcomeUnknown, Unavailable
from pwf.host import Identity
from pwf.store.custody import Standing, Stretch, runners_gone, standing_stretch
from pwf.store.launch import LaunchTerms

# --- limits ---------------------------------------------------------------------------------------------------

REREAD_S = 5.0  # between two passes
UNAVAILABLE_S = 0.5  # pause after the store could not be read
LOOK_AGAIN_S = (
    1.0  # for a further proof of processes that could not be shown dead: they are looked at for ever
)

Key = tuple[int, int]  # an entity and its generation


class Supervised(msgspec.Struct, frozen=True, kw_only=True):
    """What the Scheduler answers: whose supervisors live, and whose have failed since it was asked before."""

    live: frozenset[Key]
    failed: frozenset[Key]


# --- the actor ------------------------------------------------------------------------------------------------


class Recovery:
    """The actor. `live` reads what the Scheduler publishes; `supervised` asks it, and waits for what is being admitted.

    `wake` is for any task, and may be lost or doubled.
    """

    def __init__(
        self,
        store: StoreHandle,
        pool: RunnerPool,
        terms: LaunchTerms,
        log: Log,
        *,
        live: Callable[[], frozenset[Key]],
        supervised: Callable[[], Awaitable[Supervised]],
    ) -> None:
        self._store = store
        self._pool = pool
        self._terms = terms
        self._log = log
        self._live = live
        self._supervised = supervised
        self._watch = Watch()
        self._under_way: set[Key] = set()
        self._failed: set[Key] = set()  # their supervisor failed: it counts as a crash
        self._unproved: set[Key] = set()
        self.wake = self._watch.wake

    async def run(self) -> None:
        """Recover, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    await self._pass(nursery)
                except OutcomeUnknown:
                    raise
                except Unavailable as error:
                    self._log.warning("recovery.unavailable", code=error.code)
                    await trio.sleep(UNAVAILABLE_S)
                    continue
                await self._watch.wait(REREAD_S)

    async def _pass(self, nursery: trio.Nursery) -> None:
        """Look at every row once, and settle what has no supervisor and is not being settled already."""
        present: set[Key] = set()
        after, more = 0, True
        while more:
            known = self._live() | self._under_way
            stretch = await self._read(after)
            now = await self._supervised()
            known |= now.live | self._under_way  # before and after: one may have ended while we read
            self._failed |= now.failed
            present |= now.failed
            present.update(map(_key, stretch.found))
            orphans = [found for found in stretch.found if _key(found) not in known]
            if orphans:
                self._under_way.update(map(_key, orphans))
                nursery.start_soon(self._settle, orphans)
            after, more = stretch.after, stretch.more
        self._failed &= present
        self._unproved &= present

    async def _read(self, after: int) -> Stretch:
        return await past_unreadable(
            self._store, self._log, lambda: self._store.write(standing_stretch, after)
        )

    async def _settle(self, batch: list[Standing]) -> None:
        """Prove a batch of runners dead, and settle their runs.

        Most have left nothing, which one look at all of them proves: they are settled at once, in one transaction. Only
        the others cost a proof, a task and a transaction each; one that can't be proved keeps nobody waiting.
        """
        try:
            sought = [self._sought(orphan) for orphan in batch]
            left_nothing = await self._pool.left_nothing(sought)
            async with trio.open_nursery() as nursery:
                for orphan, one, is_gone in zip(batch, sought, left_nothing, strict=True):
                    if not is_gone:
                        nursery.start_soon(self._end, [orphan], one)
                dead = [orphan for orphan, is_gone in zip(batch, left_nothing, strict=True) if is_gone]
                if dead:
                    nursery.start_soon(self._end, dead)
        except Unavailable as error:
            self._log.warning("recovery.unavailable", code=error.code)
        finally:
            self._under_way.difference_update(map(_key, batch))

    async def _end(self, orphans: list[Standing], sought: Sought | None = None) -> None:
        """Settle these. `sought`: the one that is to be proved dead before; the others are."""
        keys = set(map(_key, orphans))
        timeout_s = LOOK_AGAIN_S if keys & self._unproved else PROOF_TIMEOUT_S
        try:
            proved = sought is None or await self._pool.prove_dead(
                sought.runner, sought.marker, timeout_s=timeout_s
            )
            gone = (
                orphan.gone(proved=proved, stopped=_key(orphan) not in self._failed) for orphan in orphans
            )
            await self._store.write(runners_gone, tuple(gone))
        except OutcomeUnknown:
            raise
        except Unavailable as error:
            self._log.warning("recovery.unavailable", code=error.code)
            return
        self._failed -= keys
        self._unproved = self._unproved - keys if proved else self._unproved | keys
        self._log("recovery.settled", runs=len(orphans), unproved=0 if proved else len(orphans))

    def _sought(self, orphan: Standing) -> Sought:
        nobody = Identity(pid=-1, start_tick=0, boot_id=host.boot_id(), session=-1)
        return Sought(orphan.identity or nobody, self._terms.marker_of(orphan.name, orphan.generation))


def _key(found: Standing) -> Key:
    return found.entity_no, found.generation
