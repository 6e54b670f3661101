"""Scheduler: one capacity for runs and reconciles, and one supervisor for each that is live.

Owns: the capacity and the supervisors; its nursery, with the tasks that admit (`admission`) and recover (`recovery`).
Promises: an admission is one transaction, and while there is a seat it is that of the run's start; whatever was
admitted is supervised, or left to the next daemon when this one ends; a stop reaches a run that is just being admitted;
it waits for nothing but its inbox, so nobody waits long for it.
Must never hold a run in memory only: what it knows stands in the store, too.
In: the messages below; wake-ups of supervisors, whose published state it then reads. Out: seats, supervisors, what it
publishes (`Snapshot`). If it dies: the daemon ends, and the next one recovers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import trio
from trio_util import AsyncValue

from pwf.actors.base.changes import Changes, Woken
from pwf.actors.base.logging import Log
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.code.agents import Agents
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.runs.admission import Admission
from pwf.actors.runs.capacity import Capacity, Seat, Snapshot
from pwf.actors.runs.deadlines import Deadlines
from pwf.actors.runs.errands import Errands
from pwf.actors.runs.launching import Launchables, Supervision
from pwf.actors.runs.offers import Offer, OfferClosed, Offers
from pwf.actors.runs.reconcilers import MakeReconciler, ReconcileHandle
from pwf.actors.runs.recovery import Key, Recovery, Supervised
from pwf.actors.runs.run_supervisor import RunSupervisor, SupervisorHandle
from pwf.config import Config
from pwf.errors import Unavailable
from pwf.protocol.operations import RunStarted
from pwf.store import queue
from pwf.store.explain import Load
from pwf.store.launch import LaunchTerms
from pwf.store.once import Done
from pwf.store.queue import StartAdmitted, start_admitted
from pwf.store.resource_queue import AdmittedReconcile
from pwf.store.runs import StartRun, start_run

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 256
TAKE_MAX = 64
SETTLE_S = 8.0  # after the drain: until every runner must be settled


# --- messages -------------------------------------------------------------------------------------------------


class StopRun(msgspec.Struct, frozen=True, kw_only=True):
    """A cancel, or a pause --now, is committed as this revision: end the process, if it was admitted before that.

    `name`: of the run, or the resource.
    """

    name: str
    revision: int


class WhoIsSupervised(Message[Supervised], frozen=True, kw_only=True, eq=False):
    """By recovery. Answered when the offers that are open now are closed: what they admit is known then."""


class Rebased(msgspec.Struct, frozen=True):
    """From now on it can be told what is due: admit."""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Admit nothing more, and let steps reach a boundary."""

    why: str


class StopAll(msgspec.Struct, frozen=True):
    """The time for that is over: end every runner."""


class Look(msgspec.Struct, frozen=True):
    """A wake-up: something that a supervisor publishes has changed. May be lost when there is other mail."""


Lease = tuple[int, int, str]  # an entity, its generation and the token
In = OfferClosed | StopRun | WhoIsSupervised | Rebased | Drain | StopAll | Look


# --- the handle -----------------------------------------------------------------------------------------------


class SchedulerHandle:
    """What others hold of it. `wake`: look at the queue; may be lost or doubled."""

    def __init__(
        self,
        store: StoreHandle,
        inbox: Mailbox[In],
        offers: Offers,
        snapshot: AsyncValue[Snapshot],
        leases: Mapping[Key, Lease],
        admission: Admission,
        capacity: int,
    ) -> None:
        self.capacity = capacity
        self.wake = admission.wake
        self._store = store
        self._inbox = inbox
        self._offers = offers
        self._snapshot = snapshot
        self._leases = leases

    @property
    def snapshot(self) -> Snapshot:
        """What is published just now."""
        value: Snapshot = self._snapshot.value
        return value

    @property
    def used(self) -> int:
        """Launches and live runners, those that are still being proved dead included."""
        return self.snapshot.used

    @property
    def admissions(self) -> int:
        """How many runs were admitted in this life of the daemon."""
        return self.snapshot.admissions

    @property
    def free(self) -> int:
        """How many runs may be admitted now."""
        return self._offers.free

    def load(self) -> Load:
        """What a run's reason depends on besides its rows."""
        return Load(used=self.used, capacity=self.capacity, stopped=self._offers.why_stopped)

    def live_leases(self) -> tuple[Lease, ...]:
        """Those of every run whose supervisor is alive."""
        return tuple(self._leases.values())

    async def start(self, command: StartRun) -> Done[RunStarted]:
        """Start a run: while there is a seat it is admitted, and even launched, in the same transaction.

        Cancelled before its turn, it leaves no trace; later, what was admitted is handed over first.
        """
        if not self._offers.free:
            return await self._store.write(start_run, command)
        offer = self._offers.take(1)
        admitted = None
        try:
            both = StartAdmitted(start=command, admit=offer.admit)
            done, admitted = await self._store.write(start_admitted, both)
        finally:
            await self._offers.close(offer, admitted)
        return done

    async def stop_run(self, run_id: str, revision: int) -> None:
        """End the runner of a run whose cancel, or pause --now, is committed as `revision`. Not lost by a cancel."""
        await self._inbox.put_surely(StopRun(name=run_id, revision=revision))

    async def stop_reconcile(self, uid: str, revision: int) -> None:
        """The same for the process of a resource that somebody has let go of."""
        await self._inbox.put_surely(StopRun(name=uid, revision=revision))

    async def drain(self, deadline_s: float, why: str = "the daemon is stopping") -> None:
        """Admit nothing more, let steps reach a boundary, then end what is left. Returns when all are settled."""
        await self._inbox.put(Drain(why=why))
        if not await self._settled(deadline_s):
            await self._inbox.put(StopAll())
            await self._settled(SETTLE_S)

    async def _settled(self, within_s: float) -> bool:
        with trio.move_on_after(within_s):
            await self._snapshot.wait_value(lambda snapshot: snapshot.is_settled)
        return self.snapshot.is_settled


# --- the actor ------------------------------------------------------------------------------------------------


class _Live:
    """A run or a reconcile that was admitted. `seat`: None once its process is proved dead."""

    def __init__(
        self,
        admission: queue.AdmittedRun | AdmittedReconcile,
        handle: SupervisorHandle | ReconcileHandle,
        seat: Seat,
        *,
        known: bool,
    ) -> None:
        self.admission = admission
        self.handle = handle
        self.seat: Seat | None = seat
        self.known = known  # what it was launched from
        self.is_reconcile = isinstance(admission, AdmittedReconcile)


class Scheduler:
    """The actor."""

    def __init__(
        self,
        *,
        store: StoreHandle,
        pool: RunnerPool,
        changes: Changes,
        config: Config,
        log: Log,
        epoch: int,
        home_id: str,
        make_reconciler: MakeReconciler,
        output: str = "",
        secrets_from: Path,
    ) -> None:
        agents = Agents(config, secrets_from)
        terms = LaunchTerms(home_id=home_id, output=output, limits=_limits(config), agents=agents.commands)
        self._inbox: Mailbox[In] = Mailbox(INBOX_MAX, "the scheduler")
        self._capacity, self._make_reconciler = Capacity(config.max_runners), make_reconciler
        self._launchables, self._managers = Launchables(), Launchables()  # of runs, and of reconciles
        self._published: AsyncValue[Snapshot] = AsyncValue(Snapshot())
        self._live: dict[Key, _Live] = {}
        self._leases: dict[Key, Lease] = {}  # of these
        self._used = self._reconciles = 0  # seats of these, and those of them that are reconciles'
        self._woken: Woken[Key] = Woken(lambda: self._inbox.put_now(Look()))
        self._failed: set[Key] = set()  # of supervisors, since recovery asked last
        self._turn: queue.Turn = "run"
        self._admissions = self._going_on = 0  # all, and those in a row that were no new start
        self._stopped: str | None = None
        self._stops: list[tuple[set[Seat], StopRun]] = []  # until the offers that were open then are closed
        self._asks: list[tuple[set[Seat], WhoIsSupervised]] = []
        self._world = Supervision(
            store=store,
            pool=pool,
            config=config,
            agents=agents,
            secrets_from=secrets_from,
            log=log,
            terms=terms,
            deadlines=Deadlines(),
            draining=lambda: self._published.value.stopped is not None,
            wake=self._woken.wake,
            stop_run=lambda name, revision: self._inbox.put_surely(StopRun(name=name, revision=revision)),
        )
        offers = Offers(
            store,
            pool.reserve,
            self._inbox.put_surely,
            self._capacity.offers,
            self._published,
            self._launchables.published,
            epoch=epoch,
            lease_ms=int(config.lease_s * 1000),
            terms=terms,
        )
        self.supervision = self._world  # which never changes
        self._admission = Admission(store, offers, changes, log)
        self._errands = Errands(self._world, changes, epoch=epoch, idle=lambda: self._inbox.put_now(Look()))
        self._recovery = Recovery(
            store,
            pool,
            terms,
            log,
            live=lambda: frozenset(self._live) | self._errands.live,
            supervised=lambda: ask(self._inbox, WhoIsSupervised()),
        )
        leases = MappingProxyType(self._leases)
        self.handle = SchedulerHandle(
            store, self._inbox, offers, self._published, leases, self._admission, config.max_runners
        )

    async def run(
        self,
        why_stopped: str | None = None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Recover, then admit, until cancelled. `why_stopped`: from the start, nothing is admitted or recovered."""
        self._stopped = why_stopped
        async with trio.open_nursery() as nursery:
            if why_stopped is None:
                nursery.start_soon(self._begin)
            nursery.start_soon(self._world.deadlines.run)
            self._publish()
            task_status.started()
            try:
                while True:
                    for message in await self._inbox.take(TAKE_MAX):
                        self._handle(nursery, message)
                    self._look()
                    self._publish()
            finally:
                self._end()  # first: whoever waits for room in the inbox would never end

    async def _begin(self) -> None:
        await self._admission.rebase()
        with contextlib.suppress(Unavailable):  # it has ended meanwhile
            await self._inbox.put(Rebased())

    def _end(self) -> None:
        """Whoever starts a run must not hand it over here any more: the daemon ends, and the next one recovers."""
        for message in self._inbox.close():
            if isinstance(message, OfferClosed):
                message.offer.close()
        self._capacity.close()
        self._live.clear()
        self._leases.clear()
        self._used = self._reconciles = 0
        self._publish()

    # --- handlers ---

    def _handle(self, nursery: trio.Nursery, message: In) -> None:
        match message:
            case OfferClosed():
                self._handle_offer_closed(nursery, message)
            case StopRun():
                self._handle_stop_run(message)
            case WhoIsSupervised():
                self._asks.append((self._capacity.offered(), message))
                self._answer()
            case Rebased():
                self._handle_rebased(nursery)
            case Drain():
                self._stopped = message.why
                self._capacity.close()
            case StopAll():
                self._errands.stop()
                for live in self._live.values():
                    live.handle.stop()

    def _handle_rebased(self, nursery: trio.Nursery) -> None:
        if self._stopped is None:
            self._capacity.open()
        nursery.start_soon(self._admission.run)
        nursery.start_soon(self._recovery.run)
        nursery.start_soon(self._errands.run)

    def _handle_offer_closed(self, nursery: trio.Nursery, message: OfferClosed) -> None:
        """Runs are ours from now on: their leases are renewed, and recovery leaves them alone."""
        offer, admitted = message.offer, message.admitted
        left = list(offer.seats)
        for admission in admitted.runs if admitted is not None else ():
            self._admissions += 1
            self._going_on = 0 if admission.is_new else self._going_on + 1
            seat = left.pop()
            self._capacity.occupy(seat)
            self._supervise(nursery, admission, offer, seat)
        for reconcile in admitted.reconciles if admitted is not None else ():
            seat = left.pop()
            self._capacity.occupy(seat)
            self._supervise_reconcile(nursery, reconcile, seat)
        if admitted is not None:
            self._turn = admitted.turn
        offer.close()
        if left:
            self._capacity.give_back(left)
            self._admission.wake()  # who came meanwhile has found no seat
        if self._stops or self._asks:
            for seats, _ in (*self._stops, *self._asks):
                seats.difference_update(offer.seats)
            self._stops = [(seats, stop) for seats, stop in self._stops if seats]
            self._answer()

    def _handle_stop_run(self, message: StopRun) -> None:
        """It may be committed with the run's admission, and come here before that is known."""
        for live in self._live.values():
            if _is_stopped(live.admission, [message]):
                live.handle.stop()
        offered = self._capacity.offered()
        if offered:
            self._stops.append((offered, message))

    def _answer(self) -> None:
        """Answer those who waited for offers that are closed by now."""
        waiting, self._asks = self._asks, []
        for seats, message in waiting:
            if seats:
                self._asks.append((seats, message))
                continue
            live = frozenset(self._live) | self._errands.live
            message.reply.give(Supervised(live=live, failed=frozenset(self._failed)))
            self._failed.clear()

    # --- supervisors ---

    def _supervise(
        self, nursery: trio.Nursery, admission: queue.AdmittedRun, offer: Offer, seat: Seat
    ) -> None:
        known = self._launchables.find(admission)
        supervisor = RunSupervisor(admission, self._world, offer.take(admission), known)
        if _is_stopped(admission, (stop for _, stop in self._stops)):
            supervisor.handle.stop()
        live = _Live(admission, supervisor.handle, seat, known=known is not None)
        key = admission.entity_no, admission.generation
        self._live[key], self._leases[key] = live, (*key, admission.token)
        self._used += 1
        nursery.start_soon(supervisor.run)

    def _supervise_reconcile(self, nursery: trio.Nursery, admission: AdmittedReconcile, seat: Seat) -> None:
        """Its supervisor renews its lease itself."""
        known = self._managers.find(admission)
        supervisor = self._make_reconciler(admission, self._world, known)
        if _is_stopped(admission, (stop for _, stop in self._stops)):
            supervisor.handle.stop()
        key = admission.entity_no, admission.generation
        self._live[key] = _Live(admission, supervisor.handle, seat, known=known is not None)
        self._used += 1
        self._reconciles += 1
        nursery.start_soon(supervisor.run)

    def _look(self) -> None:
        """Read what those supervisors publish that have said that it has changed."""
        for key in self._woken.take():
            live = self._live.get(key)
            if live is None:
                continue
            handle = live.handle
            if live.seat is not None and (handle.is_gone or handle.is_over):
                self._capacity.give_back([live.seat])
                live.seat = None
                self._used -= 1
                self._reconciles -= live.is_reconcile
                self._admission.wake()
            if not live.known and handle.launched_from is not None:
                live.known = True
                (self._managers if live.is_reconcile else self._launchables).learn(handle.launched_from)
            if handle.is_over:
                del self._live[key]
                self._leases.pop(key, None)
                if handle.has_failed:
                    self._failed.add(key)
                    self._recovery.wake()

    def _publish(self) -> None:
        self._published.value = Snapshot(
            used=self._used,
            reconciles=self._reconciles,
            turn=self._turn,
            admissions=self._admissions,
            going_on=self._going_on,
            stopped=self._stopped,
            is_settled=self._stopped is not None
            and not (self._live or self._errands.live)
            and self._capacity.is_back,
        )


def _is_stopped(admission: queue.AdmittedRun | AdmittedReconcile, stops: Iterable[StopRun]) -> bool:
    """Whether a stop was committed after this admission."""
    return any(stop.name == admission.name and stop.revision > admission.revision for stop in stops)


def _limits(config: Config) -> dict[str, int | None]:
    """What a runner is allowed, as `Launch` has it."""
    return {
        "value_bytes_max": config.max_value_bytes,
        "output_bytes_max": config.max_output_bytes,
        "memory_bytes_max": config.runner_memory_bytes,
        "runs_per_process": config.runs_per_process,
        "stop_grace_ms": int(config.stop_grace_s * 1000),
    }
