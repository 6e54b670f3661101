"""The daemon: reads the configuration, takes the claim, wires the actors in one nursery, and stops them in order.

Owns the order of things. Start: configuration, home, kernel lock, store, claim (the previous daemon is
fenced in that transaction), socket, scheduler (whose recovery goes on behind the open socket). Stop: admit
nothing, let steps reach a boundary within the drain time, end what is left, close the sockets, release the
claim, close the store, free the lock. Promises: no client is answered before lock and epoch are held; an
actor that fails ends the daemon with its traceback in the log, and a restart recovers from the store; a
second signal ends at once, which loses nothing either.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pwd
import signal
import sys
from collections.abc import AsyncIterator

import msgspec
import trio

import pwf
from pwf import host
from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreActor, StoreHandle
from pwf.actors.base.supervise import Deaths, cause_of, described, leaves, log_last_words
from pwf.actors.claim.lock_file import LockFile, LockTaker, serving
from pwf.actors.claim.server_claim import Claim
from pwf.actors.code.whereabouts import Whereabouts
from pwf.actors.door.listener import Listener
from pwf.actors.operations.people import lineage_by
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.upkeep.output_files import prepare_output
from pwf.actors.wiring import Ports, live, wire
from pwf.clock import Clock, SystemClock
from pwf.config import Config, load_config
from pwf.errors import PwfError, StoreBroken, StoreRefused
from pwf.host import Identity
from pwf.host.clock_steps import open_clock_steps
from pwf.host.home import prepare_home
from pwf.ids import Ids
from pwf.places import Places, identity_of, places
from pwf.protocol.frames import PROTOCOL, Hello
from pwf.protocol.lock_record import LockRecord, read_record
from pwf.protocol.signalled import take_signalled
from pwf.store.ballast import Ballast
from pwf.store.batch import HeldClaim
from pwf.store.daemon import ClaimEpoch
from pwf.store.database import FileGuard
from pwf.store.executor import StoreSpec, ThreadExecutor
from pwf.store.home import ClaimHome, HomeFolder, claim_home, last_owner

EXIT_OK = 0
EXIT_FAILED = 70  # an actor failed: pwf logs shows where
EXIT_SIGNAL = 128  # plus the signal's number: ended at once by a second signal


def main(background: bool = False) -> int:
    """Serve until stopped; the exit code. Raises `PwfError` when this home can not be served from the start."""
    if background:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal that started it may close
    faulthandler.enable()
    host.raise_open_files()
    at = places()
    log = Log(SystemClock(boot_id=""), at.log if background else None)
    try:
        clock = SystemClock(host.boot_id())
        config = load_config(at.config)
        prepare_home(at.home)
    except PwfError as error:
        _say_refused(log, error)
        raise
    daemon = Daemon(at, config, clock, log, background=background)
    code = trio.run(daemon.run, restrict_keyboard_interrupt_to_checkpoints=True)
    if daemon.refused is not None:
        raise daemon.refused
    return code


def _say_refused(log: Log, error: PwfError) -> None:
    """Whoever has started this process finds the reason by its pid (`pwf.client.starting`)."""
    log.error("daemon.refused", pid=os.getpid(), code=error.code, message=error.message, hint=error.hint)


class Daemon:
    """One life of the daemon."""

    def __init__(self, at: Places, config: Config, clock: Clock, log: Log, *, background: bool) -> None:
        self._at = at
        self._config = config
        self._clock = clock
        self._log = log
        self._background = background
        self._ids = Ids()
        self._deaths = Deaths(at.home, clock)
        self._stopping = trio.Event()
        self._drain_s = config.drain_s
        self._crashed = False  # the earlier daemon, as its last words say
        self._suspected = False  # some run, of its death
        self._held = False  # the lock; before that there is nothing to stop in order
        self._serving = False
        self.refused: PwfError | None = None  # why this home was not served at all

    async def run(self) -> int:
        """From the lock to the end; the exit code."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._signals)
            code = await self._live_and_die()
            nursery.cancel_scope.cancel()
        return code

    async def _live_and_die(self) -> int:
        try:
            async with self._locked() as lock:
                await self._serve(lock)
        except Exception as error:  # noqa: BLE001 - the supervisor
            return self._died(error)
        self._deaths.forget()
        self._log("daemon.stopped", pid=os.getpid())
        return EXIT_OK

    def _died(self, error: Exception) -> int:
        first = leaves(error)[0]
        if isinstance(first, PwfError) and not self._serving:
            _say_refused(self._log, first)
            self.refused = first
            return EXIT_FAILED
        self._deaths.note(error)
        more: dict[str, object] = {"cause": cause_of(error), "traceback": described(error)}
        if isinstance(first, StoreBroken):
            hint = (
                first.hint
                or f"pwf state verify {self._at.database} says what is damaged; pwf state restore FILE"
            )
            more = {"code": first.code, "message": first.message, "hint": hint, **more}
        self._log.error("daemon.failed", pid=os.getpid(), **more)
        return EXIT_FAILED

    # --- signals and stopping -----------------------------------------------------------------------------

    async def _signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        wanted = [signal.SIGTERM, signal.SIGINT]
        if not self._background:
            wanted.append(signal.SIGHUP)
        with trio.open_signal_receiver(*wanted) as received:
            task_status.started()
            async for number in received:
                if self._stopping.is_set() or not self._held:
                    self._log.warning("daemon.ended_at_once", signal=number)
                    # Consistent at every instant: the store's commits are whole, the lock is freed by the
                    # kernel, and runners end themselves when their sockets close.
                    os._exit(EXIT_SIGNAL + number)
                self._stop(None)

    def _stop(self, drain_ms: int | None) -> None:
        if drain_ms is not None:
            self._drain_s = max(0, drain_ms) / 1_000
        self._stopping.set()

    # --- the lock and the store ---------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[LockFile]:
        taker = LockTaker(self._at.lock, clock=self._clock, processes=host, log=self._log)
        lock = await taker.take()
        self._held = True
        if self._background:
            self._crashed = log_last_words(self._at.last_words, self._log)
        try:
            yield lock
        finally:
            lock.close()

    async def _serve(self, lock: LockFile) -> None:
        seen = read_record(self._at.lock) or LockRecord()
        record = self._record()
        # What was served here last is kept until this daemon has its own epoch.
        lock.write(msgspec.structs.replace(record, home_id=seen.home_id, epoch=seen.epoch))
        executor = ThreadExecutor(
            StoreSpec(
                path=self._at.database,
                clock=self._clock,
                ids=self._ids,
                ballast=Ballast(self._at.ballast),
                warn=self._log.warning,
                create=not (seen.epoch or seen.home_id),
            )
        )
        async with trio.open_nursery() as nursery:
            store: StoreHandle = await nursery.start(StoreActor(executor).run)
            guard = FileGuard(self._at.database)
            claim = await self._claim(store, seen)
            await trio.to_thread.run_sync(prepare_output, self._at.output, claim.home_id)
            actors = wire(
                store,
                claim,
                self._ports(lock, record, claim, guard),
                at=self._at,
                config=self._config,
                clock=self._clock,
                log=self._log,
                stop=self._stop,
            )
            actors.services.life.why_degraded = self._deaths.why_degraded(suspected=self._suspected)
            if actors.services.life.why_degraded is None:
                nursery.start_soon(self._deaths.outlive)
            await live(
                actors,
                self._log,
                stopping=self._stopping,
                drain_s=lambda: self._drain_s,
                served=self._begin_serving,
            )
            nursery.cancel_scope.cancel()

    def _begin_serving(self) -> None:
        self._serving = True
        gc.freeze()  # what is loaded by now stays: full collections need not look at it

    def _ports(self, lock: LockFile, record: LockRecord, claim: Claim, guard: FileGuard) -> Ports:
        config, at = self._config, self._at
        pool = RunnerPool(
            log=self._log,
            runners_max=config.max_runners,
            templates_max=config.max_templates,
            idle_s=config.template_idle_s,
            zygote_idle_s=config.zygote_idle_s,
        )
        hello = Hello(
            protocol=PROTOCOL,
            version=pwf.__version__,
            epoch=claim.epoch,
            home=str(at.home),
            home_identity=identity_of(at.home),
            pid=os.getpid(),
        )
        return Ports(
            lock=lock,
            record=record,
            pool=pool,
            whereabouts=Whereabouts(at.config, config.interpreter),
            open_door=lambda handle: Listener(
                at.socket,
                handle=handle,
                hello=lambda: msgspec.structs.replace(hello, stopping=self._stopping.is_set()),
                peer_uid=host.peer_uid,
                peer_process=host.peer_process,
                log=self._log,
            ),
            lineage=lineage_by(host),
            open_clock_steps=open_clock_steps,
            user=_user_name(),
            files=guard,
        )

    def _record(self) -> LockRecord:
        own = host.own_identity()
        return LockRecord(
            pid=own.pid,
            start_tick=own.start_tick,
            boot_id=own.boot_id,
            session=own.session,
            socket=str(self._at.socket),
            version=pwf.__version__,
            # Until the claim this is a promise to be quick: who is frozen before it may be succeeded.
            lease_until_awake_ms=self._clock.now().awake_ms + int(self._config.lease_s * 1_000),
        )

    async def _claim(self, store: StoreHandle, seen: LockRecord) -> Claim:
        token = self._ids.token()
        folder = self._at.home.stat()
        own = host.own_identity()
        place = HomeFolder(device=folder.st_dev, inode=folder.st_ino)
        owner = await store.write(last_owner, place, before_claim=True)
        if owner is not None and host.is_alive(owner) and not owner.is_same(own):
            # The lock was free, since somebody had removed its file. Who serves all the same is not to be fenced.
            raise serving(
                LockRecord(pid=owner.pid, socket=str(self._at.socket)), "; its lock file was removed"
            )
        command = ClaimHome(
            claim=ClaimEpoch(
                token=token,
                lease_ms=int(self._config.lease_s * 1_000),
                pid=own.pid,
                start_tick=own.start_tick,
                version=pwf.__version__,
            ),
            device=folder.st_dev,
            inode=folder.st_ino,
            seen_home_id=seen.home_id,
            seen_epoch=seen.epoch,
            died=self._died_by_itself(owner),
        )
        try:
            claimed = await store.write(claim_home, command, before_claim=True)
        except (ValueError, TypeError, LookupError) as error:  # of rows that stand for no run
            raise StoreRefused(
                f"{self._at.database} is damaged: who has served it can not be read: {error}",
                hint=f"pwf state verify {self._at.database} says more; pwf state restore FILE restores a backup",
            ) from error
        self._suspected = claimed.suspects > 0
        await store.hold_claim(HeldClaim(claimed.epoch, token))
        self._log("daemon.claimed", epoch=claimed.epoch, pid=os.getpid())
        return Claim(token=token, epoch=claimed.epoch, home_id=claimed.home_id)

    def _died_by_itself(self, owner: Identity | None) -> bool:
        """Whether the earlier daemon died of an error, of its interpreter, or of a step. Looks once.

        A signal of others leaves no trace, and counts against no run; nor does an ordered end, which leaves no owner.
        """
        signalled = take_signalled(self._at.signalled)
        return owner is not None and (self._crashed or signalled == owner.pid or self._deaths.has(owner.pid))


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


if __name__ == "__main__":
    sys.exit(main())
