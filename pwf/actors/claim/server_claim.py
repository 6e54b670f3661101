"""The claim to serve a home: the kernel's lock decides, the epoch in the store fences late writes.

Owns the held lock file, the epoch and the renewal of leases. Promises: one transaction renews the daemon's
lease and those of the runs whose supervisor is alive, and no other; a lease that ran out while this process
was stopped is renewed again as long as nobody else has taken it (we still hold the lock). Must never renew
for a run on memory of its own: it asks the scheduler each time. In: time. Out: renewals to the store, the
lease's end to the lock file. If it dies (`ClaimLost`), the daemon ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import trio

from pwf.actors.base.logging import Log
from pwf.actors.claim.lock_file import LockFile, LockRecord
from pwf.clock import Clock
from pwf.errors import Unavailable
from pwf.store.daemon import Renew, renew

RETRY_S = 1.0  # after a renewal that the store could not take
RELEASE_S_MAX = 2.0

LiveLeases = Callable[[], list[tuple[str, int, str]]]


class Store(Protocol):
    """The part of the store's handle that this actor needs."""

    async def write(self, handler: Callable[[Any, Any], Any], command: Any) -> Any:
        """Run one command; its result after the commit."""


@dataclass(frozen=True)
class Claim:
    """What was claimed: the proof that this daemon writes with."""

    token: str
    epoch: int
    home_id: str


class ServerClaim:
    """The actor and its handle in one. `live_leases` is set once the scheduler runs."""

    def __init__(
        self,
        store: Store,
        lock: LockFile,
        record: LockRecord,
        claim: Claim,
        *,
        clock: Clock,
        lease_s: float,
        renew_s: float,
        log: Log,
    ) -> None:
        self._store = store
        self._lock = lock
        self._record = record
        self.claim = claim
        self._clock = clock
        self._lease_ms = int(lease_s * 1_000)
        self._renew_s = renew_s
        self._log = log
        self.live_leases: LiveLeases = list
        self.renewed_wall_ms = 0
        self._until_awake_ms = 0
        self._note_renewal()

    @property
    def lease_left_ms(self) -> int:
        """How long the lease still lasts; negative when it is over and to be renewed."""
        return self._until_awake_ms - self._clock.now().awake_ms

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew until cancelled. `ClaimLost` when another daemon has taken over."""
        task_status.started()
        failed = False
        while True:
            await trio.sleep(RETRY_S if failed else self._renew_s)
            try:
                await self.renew()
            except Unavailable as error:
                if not failed:
                    self._log.warning("claim.renewal_failed", code=error.code, left_ms=self.lease_left_ms)
                failed = True
            else:
                failed = False

    async def renew(self) -> None:
        """Renew now, for the daemon and for every run that is supervised at this moment."""
        await self._store.write(
            renew,
            Renew(
                token=self.claim.token,
                epoch=self.claim.epoch,
                lease_ms=self._lease_ms,
                live=self.live_leases(),
            ),
        )
        self._note_renewal()

    def _note_renewal(self) -> None:
        now = self._clock.now()
        self.renewed_wall_ms = now.wall_ms
        self._until_awake_ms = now.awake_ms + self._lease_ms
        self._lock.write(
            msgspec.structs.replace(
                self._record,
                home_id=self.claim.home_id,
                epoch=self.claim.epoch,
                lease_until_awake_ms=self._until_awake_ms,
            )
        )

    async def release(self, give_up: Callable[[], Awaitable[object]]) -> None:
        """At the end of an ordered stop: `give_up` clears the lease in the store, then the file names nobody.

        Bounded: a store that can not write any more loses nothing, since the freed lock proves our end.
        """
        with trio.move_on_after(RELEASE_S_MAX, shield=True):
            try:
                await give_up()
            except Unavailable as error:
                self._log.warning("claim.release_failed", code=error.code)
        last = LockRecord(socket=self._record.socket, home_id=self.claim.home_id, epoch=self.claim.epoch)
        self._lock.write(last)
