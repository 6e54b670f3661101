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
from pwf.store.entity_kinds import RunnerGone
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
        """Prove a batch of runners dead, together, and settle their runs in one transaction.

        Most have left nothing, which one look at all of them proves. Only the others cost a proof, and a task, each.
        """
        proved: dict[Key, bool] = {}

        async def prove(key: Key, one: Sought) -> None:
            timeout_s = LOOK_AGAIN_S if key in self._unproved else PROOF_TIMEOUT_S
            proved[key] = await self._pool.prove_dead(one.runner, one.marker, timeout_s=timeout_s)

        try:
            sought = [self._sought(orphan) for orphan in batch]
            left_nothing = await self._pool.left_nothing(sought)
            async with trio.open_nursery() as nursery:
                for orphan, one, is_gone in zip(batch, sought, left_nothing, strict=True):
                    proved[_key(orphan)] = is_gone
                    if not is_gone:
                        nursery.start_soon(prove, _key(orphan), one)
            gone = tuple(self._end(orphan, proved[_key(orphan)]) for orphan in batch)
            await self._store.write(runners_gone, gone)
            self._failed.difference_update(proved)
            self._unproved.difference_update(key for key, dead in proved.items() if dead)
            self._unproved.update(key for key, dead in proved.items() if not dead)
            self._log("recovery.settled", runs=len(batch), unproved=sum(not dead for dead in proved.values()))
        except OutcomeUnknown:
            raise
        except Unavailable as error:
            self._log.warning("recovery.unavailable", code=error.code)
        finally:
            self._under_way.difference_update(map(_key, batch))

    def _sought(self, orphan: Standing) -> Sought:
        nobody = Identity(pid=-1, start_tick=0, boot_id=host.boot_id(), session=-1)
        return Sought(orphan.identity or nobody, self._terms.marker_of(orphan.name, orphan.generation))

    def _end(self, orphan: Standing, proved: bool) -> RunnerGone:
        return orphan.gone(proved=proved, stopped=_key(orphan) not in self._failed)


def _key(found: Standing) -> Key:
    return found.entity_no, found.generation
