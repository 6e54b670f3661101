"""ServerClaim: holds the claim to serve a home. The kernel's lock decides, the epoch in the store fences late writes.

Owns the held lock file, the epoch and the renewal of leases. Promises: one transaction renews the daemon's
lease and those of the runs whose supervisor is alive, and no other; a lease that ran out while this process
was stopped is renewed again as long as nobody else has taken it (we still hold the lock). Must never renew
for a run on memory of its own: it asks the scheduler each time. And never go on where the database's files are others
by now: at each renewal it looks.
In: time; `give_up` at the end of an ordered stop. Out: renewals to the store, the lease's end to the lock file; what
was renewed last is published. If it dies (`ClaimLost`, `StoreBroken`), the daemon ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import trio
from trio_util import AsyncValue

from pwf.actors.base.logging import Log
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.base.store_actor import StoreHandle
from pwf.clock import Clock
from pwf.errors import StoreBroken, Unavailable
from pwf.protocol.lock_record import LockRecord
from pwf.store.daemon import Release, Renew, release, renew

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 4
RETRY_S = 1.0  # after a renewal that the store could not take
GIVE_UP_S_MAX = 2.0
RESCUE_S_MAX = 60.0

LiveLeases = Callable[[], tuple[tuple[int, int, str], ...]]


class Files(Protocol):
    """The database's files."""

    def check(self) -> None:
        """Raise `StoreBroken` where they are not those any more that were opened."""

    def rescue_to(self, epoch: int) -> Path:
        """Where to put what was committed, when they are gone."""


class Lock(Protocol):
    """The part of the lock file that this actor needs."""

    def write(self, record: LockRecord) -> None:
        """Say who holds the lock."""


@dataclass(frozen=True)
class Claim:
    """What was claimed: the proof that this daemon writes with."""

    token: str
    epoch: int
    home_id: str


# --- messages -------------------------------------------------------------------------------------------------


class GiveUp(Message[None], frozen=True, kw_only=True, eq=False):
    """The daemon stops in order: nobody serves from now on."""


# --- the handle -----------------------------------------------------------------------------------------------


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The last renewal: when it was, and until when the lease lasts, by the clock that stands still in sleep."""

    wall_ms: int
    until_awake_ms: int


class ClaimHandle:
    """What others hold of it. `claim` never changes; `renewed` is published."""

    def __init__(self, inbox: Mailbox[GiveUp], claim: Claim, renewed: AsyncValue) -> None:
        self._inbox = inbox
        self._renewed = renewed
        self.claim = claim

    @property
    def renewed(self) -> Renewed:
        """The last renewal, as of now."""
        value: Renewed = self._renewed.value
        return value

    async def give_up(self) -> None:
        """Clear the lease in the store and name nobody in the lock file; the actor ends. Bounded."""
        await ask(self._inbox, GiveUp())


# --- the actor ------------------------------------------------------------------------------------------------


class ServerClaim:
    """The actor. `live_leases` says which runs are supervised at that moment."""

    def __init__(
        self,
        store: StoreHandle,
        lock: Lock,
        record: LockRecord,
        claim: Claim,
        *,
        live_leases: LiveLeases,
        files: Files,
        clock: Clock,
        lease_s: float,
        renew_s: float,
        log: Log,
    ) -> None:
        self._store = store
        self._lock = lock
        self._record = msgspec.structs.replace(record, home_id=claim.home_id, epoch=claim.epoch)
        self._claim = claim
        self._live_leases = live_leases
        self._files = files
        self._clock = clock
        self._lease_ms = int(lease_s * 1_000)
        self._renew_s = renew_s
        self._log = log
        self._failed = False
        self._inbox: Mailbox[GiveUp] = Mailbox(INBOX_MAX, "the claim")
        self._renewed = AsyncValue(self._note_renewal())
        self.handle = ClaimHandle(self._inbox, claim, self._renewed)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew until the claim is given up. `ClaimLost` when another daemon has taken over."""
        task_status.started()
        with self._inbox.open():
            while True:
                pause_s = RETRY_S if self._failed else self._renew_s
                message = await self._inbox.take_one(trio.current_time() + pause_s)
                if message is not None:
                    await self._inbox.answer(message, self._handle_give_up)
                    return
                await self._renew()

    # --- handlers ---

    async def _handle_give_up(self, message: GiveUp) -> None:
        """A store that can not write any more loses nothing, since the freed lock proves our end."""
        await self._look_at_files()
        with trio.move_on_after(GIVE_UP_S_MAX, shield=True):
            try:
                await self._store.write(release, Release(token=self._claim.token, epoch=self._claim.epoch))
            except Unavailable as error:
                self._log.warning("claim.release_failed", code=error.code)
        record = self._record
        self._lock.write(LockRecord(socket=record.socket, home_id=record.home_id, epoch=record.epoch))

    # --- renewal ---

    async def _renew(self) -> None:
        """Renew now, for the daemon and for every run that is supervised at this moment."""
        await self._look_at_files()
        command = Renew(
            token=self._claim.token,
            epoch=self._claim.epoch,
            lease_ms=self._lease_ms,
            live=self._live_leases(),
        )
        try:
            await self._store.write(renew, command)
        except Unavailable as error:
            if not self._failed:
                left_ms = self._renewed.value.until_awake_ms - self._clock.now().awake_ms
                self._log.warning("claim.renewal_failed", code=error.code, left_ms=left_ms)
            self._failed = True
        else:
            self._failed = False
            self._renewed.value = self._note_renewal()

    async def _look_at_files(self) -> None:
        """Raise `StoreBroken` where what we write is not what stands under the database's name any more.

        The files that we have open still hold all that was acknowledged: it is written to a new one first.
        """
        try:
            self._files.check()
        except StoreBroken as error:
            target = self._files.rescue_to(self._claim.epoch)
            with trio.move_on_after(RESCUE_S_MAX, shield=True):
                if await self._store.rescue(target):
                    error.hint = f"what it had was rescued: pwf state restore {target}"
            self._log.error("claim.database_gone", message=error.message, hint=error.hint)
            raise

    def _note_renewal(self) -> Renewed:
        now = self._clock.now()
        until_ms = now.awake_ms + self._lease_ms
        self._lock.write(msgspec.structs.replace(self._record, lease_until_awake_ms=until_ms))
        return Renewed(wall_ms=now.wall_ms, until_awake_ms=until_ms)
