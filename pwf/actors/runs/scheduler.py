"""Scheduler: admits runs while there is capacity, and settles what has no supervisor.

Owns: the capacity, one RunSupervisor per live run, the nearest due time. Promises: an admission is one transaction
whose cost does not grow with the backlog, and while there is capacity it is that of the run's start; a full batch is
followed at once by another; recovery is a loop, not a pass at start: whatever stands in the store as a runner and has
no supervisor here is proved dead and settled.
Must never hold a run in memory only: what it knows, it reads from the store again at every wake-up.
In: wake-ups (the store's key "queue", `wake`), `start`, `stop_run`, `drain`. Out: supervisors, commands to the store.
If it dies: the daemon ends, and the next one recovers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from pwf import host
from pwf.actors.base.changes import Changes
from pwf.actors.base.logging import Log
from pwf.actors.processes.custody import PROOF_TIMEOUT_S
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.runs.offers import Offer, Offers
from pwf.actors.runs.run_supervisor import RunSupervisor, Supervision
from pwf.config import Config
from pwf.errors import OutcomeUnknown, Unavailable
from pwf.host import Identity
from pwf.protocol.operations import RunStarted
from pwf.store.daemon import Ask, RunnersGone, Standing, runners_gone, standing_runners
from pwf.store.definitions import DefinitionRef, LaunchFacts, launch_facts
from pwf.store.explain import Load
from pwf.store.launch import LaunchTerms
from pwf.store.once import Done
from pwf.store.queue import Admitted, Due, Rebase, StartAdmitted, admit, look, rebase, start_admitted
from pwf.store.runner_end import RunnerGone
from pwf.store.runs import EnvironmentOf, RunEnvironment, StartRun, environment_of, start_run

# --- limits ---------------------------------------------------------------------------------------------------

REREAD_S = 5.0  # a lost wake-up costs at most this (design, section 3)
LOOK_S = 0.05  # from a wake-up that finds every runner in use to the look at what is due
UNAVAILABLE_S = 0.5  # pause after the store could not take an admission
RECOVERY_BATCH = 200  # ends settled in one transaction
FACTS_MAX = 256
LOOK_AGAIN_S = (
    1.0  # for a further proof of processes that could not be shown dead: they are looked at for ever
)
SETTLE_S = 8.0  # after the drain: until every runner must be settled


class Scheduler:
    """The actor and its handle in one. `stopped` says why nothing is admitted, while it is set."""

    def __init__(
        self,
        *,
        store: Any,  # StoreHandle
        pool: RunnerPool,
        changes: Changes,
        config: Config,
        log: Log,
        epoch: int,
        home_id: str,
    ) -> None:
        self.capacity = config.max_runners
        self.admissions = 0
        self.stopped: str | None = None
        self._store = store
        self._changes = changes
        self._config = config
        self._log = log
        self._pool = pool
        self._live: dict[tuple[str, int], RunSupervisor] = {}
        self._recovering: set[tuple[str, int]] = set()
        self._failed: set[tuple[str, int]] = set()  # their supervisor failed: it counts as a crash
        self._unproved: set[tuple[str, int]] = set()
        self._event = trio.Event()
        self._emptied = trio.Event()
        self._facts: dict[str, LaunchFacts] = {}
        self._environments: dict[str, RunEnvironment] = {}
        self._next_due = float("inf")  # trio's clock
        self._recover_at = 0.0
        self._nursery: trio.Nursery | None = None  # of the supervisors, while this runs
        self._backlog = True  # more may be ready than was admitted
        terms = LaunchTerms(home_id=home_id, limits=_limits(config))
        self._offers = Offers(pool, epoch, int(config.lease_s * 1000), terms)
        self._world = Supervision(
            store=store,
            pool=pool,
            config=config,
            log=log,
            terms=terms,
            draining=lambda: self.stopped is not None,
            freed=self.wake,
        )

    # --- the handle: any task ---

    @property
    def used(self) -> int:
        """Launches and live runners, those that are still being proved dead included."""
        return sum(not supervisor.runner_is_gone for supervisor in self._live.values())

    @property
    def free(self) -> int:
        """How many runs may be admitted now."""
        if self._why_stopped() is not None or self._nursery is None:
            return 0
        return max(0, self.capacity - self.used - self._offers.promised)

    def load(self) -> Load:
        """What a run's reason depends on besides its rows."""
        return Load(used=self.used, capacity=self.capacity, stopped=self._why_stopped())

    def _why_stopped(self) -> str | None:
        if self.stopped is None and self._store.disk_full:
            return "the disk is full"
        return self.stopped

    def wake(self) -> None:
        """Look at the queue. May be lost or doubled."""
        self._event.set()

    async def start(self, command: StartRun) -> Done[RunStarted]:
        """Start a run: while there is capacity it is admitted, and even launched, in the same transaction."""
        if not self.free:
            self._backlog = True
            return await self._store.write(start_run, command)  # type: ignore[no-any-return]
        used = 0
        try:
            with self._offers.open(1) as offer:
                both = StartAdmitted(start=command, admit=offer.admit)
                done, admitted = await self._store.write(start_admitted, both)
                used = len(admitted.runs)
                self._accept(admitted, offer)
        finally:
            if not used:
                self.wake()  # who came meanwhile has found no capacity
        return done  # type: ignore[no-any-return]

    def live_leases(self) -> list[tuple[str, int, str]]:
        """(run, generation, token) of every run whose supervisor is alive."""
        return [(s.fence.run_id, s.fence.generation, s.fence.token) for s in self._live.values()]

    def stop_run(self, run_id: str, generation: int | None = None) -> None:
        """End the runner of a run whose cancel, or pause --now, is committed."""
        for (live_id, live_generation), supervisor in self._live.items():
            if live_id == run_id and generation in (None, live_generation):
                supervisor.stop()
        self._offers.stop(run_id, generation)
        self.wake()

    async def drain(self, deadline_s: float, why: str = "the daemon is stopping") -> None:
        """Admit nothing more, let steps reach a boundary, then end what is left. Returns when all are settled."""
        self.stopped = why
        self.wake()
        with trio.move_on_after(deadline_s):
            await self._wait_empty()
        for supervisor in self._live.values():
            supervisor.stop(with_daemon=True)
        with trio.move_on_after(SETTLE_S):
            await self._wait_empty()

    async def _wait_empty(self) -> None:
        await self._offers.all_closed()  # what they admit is to be settled, too
        while self._live:
            self._emptied = trio.Event()
            await self._emptied.wait()

    # --- the actor ---

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Recover, then admit, until cancelled."""
        rebased = False
        async with trio.open_nursery() as nursery:
            with self._changes.calling("queue", self.wake), self._closed_at_the_end():
                task_status.started()
                while True:
                    woken = self._event.is_set()
                    self._event = trio.Event()
                    try:
                        if not rebased:
                            await self._store.write(rebase, Rebase())
                            rebased = True
                            self._nursery = nursery  # from now on what is due can be told
                        if trio.current_time() >= self._recover_at:
                            await self._recover(nursery)
                        more = await self._admit(woken=woken)
                    except OutcomeUnknown:
                        raise
                    except Unavailable as error:
                        self._log.warning("scheduler.unavailable", code=error.code)
                        await trio.sleep(UNAVAILABLE_S)
                        continue
                    if not more:
                        await self._wait()

    @contextmanager
    def _closed_at_the_end(self) -> Iterator[None]:
        """Whoever starts a run must not open a supervisor here any more."""
        try:
            yield
        finally:
            self._nursery = None

    async def _wait(self) -> None:
        """Until a wake-up, the nearest due time, or the bound."""
        with trio.move_on_at(min(self._next_due, trio.current_time() + REREAD_S)):
            await self._event.wait()

    # --- admission ---

    async def _admit(self, *, woken: bool) -> bool:
        """Admit what fits. Whether there is more to do at once."""
        free = self.free
        now = trio.current_time()
        if woken and not free and self._why_stopped() is None and now < self._next_due:
            # Nothing can be admitted. Whether an earlier time has come to be due is looked up once for many wake-ups.
            self._next_due = min(self._next_due, now + LOOK_S)
            self._backlog = True
            return False
        if not (woken and free and self._backlog):  # then there is work, mostly; everything else looks first
            answer = await self._store.glance(look, Due())
            self._note_due(answer.next_in_ms)
            if answer.next_in_ms != 0 and not (answer.due_now and free):
                return False
        with self._offers.open(self.free) as offer:
            admitted = await self._store.write(admit, offer.admit)
            self._accept(admitted, offer)
        self._backlog = len(admitted.runs) >= offer.admit.limit
        return bool(admitted.more)

    def _accept(self, admitted: Admitted, offer: Offer) -> None:
        """Runs are ours from now on. Registered at once: their leases are renewed, and recovery leaves them alone."""
        if self._nursery is None:
            return  # the daemon ends, and the next one recovers
        self._offers.count(admitted.runs)
        for admission in admitted.runs:
            self.admissions += 1
            supervisor = RunSupervisor(admission, self._world, offer.take(admission))
            if offer.is_stopped(admission):
                supervisor.stop()
            key = (admission.run_id, admission.generation)
            self._live[key] = supervisor
            self._nursery.start_soon(self._supervise, key, supervisor)
        self._note_due(admitted.next_in_ms)

    def _note_due(self, next_in_ms: int | None) -> None:
        self._next_due = float("inf") if next_in_ms is None else trio.current_time() + next_in_ms / 1000

    async def _supervise(self, key: tuple[str, int], supervisor: RunSupervisor) -> None:
        """Run one supervisor. One that fails ends alone: its lease is an orphan, which recovery settles."""
        try:
            admission = supervisor.admission
            environment = await self._environment(admission.environment_id)
            facts = await self._launch_facts(admission.definition_id)
            self._offers.learn(admission, facts, environment)
            await supervisor.run(environment, facts)
        except OutcomeUnknown:
            raise
        except (
            Unavailable
        ) as error:  # a read failed: not this run's fault, and recovery comes at its own pace
            self._log.warning("supervisor.unavailable", run_id=key[0], code=error.code)
        except Exception as error:  # noqa: BLE001 - supervision: the run's failure must stay its own
            self._log.error("supervisor.failed", run_id=key[0], generation=key[1], error=repr(error))
            self._failed.add(key)
            self._recover_at = 0.0
        finally:
            supervisor.close()
            del self._live[key]
            self._emptied.set()
            self.wake()

    async def _launch_facts(self, definition_id: str) -> LaunchFacts:
        found = self._facts.get(definition_id)
        if found is None:
            found = await self._store.read(launch_facts, DefinitionRef(definition_id=definition_id))
            _remember(self._facts, definition_id, found)
        return found

    async def _environment(self, environment_id: str) -> RunEnvironment:
        found = self._environments.get(environment_id)
        if found is None:
            found = await self._store.read(environment_of, EnvironmentOf(environment_id=environment_id))
            _remember(self._environments, environment_id, found)
        return found

    # --- recovery ---

    async def _recover(self, nursery: trio.Nursery) -> None:
        """Start to settle every runner that has no supervisor."""
        self._recover_at = trio.current_time() + REREAD_S
        known = self._live.keys() | self._recovering
        try:
            standing: tuple[Standing, ...] = await self._store.read(standing_runners, Ask())
        except Unavailable:
            self._recover_at = 0.0  # what could not be read is read again soon
            raise
        await self._offers.all_closed()  # which may have committed what we have read, and not said so yet
        known |= self._live.keys() | self._recovering  # before and after: one may have ended while we read
        present = {(found.run_id, found.generation) for found in standing}
        self._failed &= present
        self._unproved &= present
        orphans = [orphan for orphan in standing if (orphan.run_id, orphan.generation) not in known]
        for start in range(0, len(orphans), RECOVERY_BATCH):
            batch = orphans[start : start + RECOVERY_BATCH]
            self._recovering.update((orphan.run_id, orphan.generation) for orphan in batch)
            nursery.start_soon(self._settle, batch)

    async def _settle(self, batch: list[Standing]) -> None:
        """Prove a batch of runners dead, together, and settle their runs in one transaction."""
        proved: dict[tuple[str, int], bool] = {}

        async def prove(orphan: Standing) -> None:
            identity = orphan.identity or Identity(pid=-1, start_tick=0, boot_id=host.boot_id(), session=-1)
            marker = self._world.terms.marker_of(orphan.run_id, orphan.generation)
            key = (orphan.run_id, orphan.generation)
            timeout_s = LOOK_AGAIN_S if key in self._unproved else PROOF_TIMEOUT_S
            proved[key] = await self._pool.custody.prove_dead(identity, marker, timeout_s=timeout_s)

        try:
            async with trio.open_nursery() as nursery:
                for orphan in batch:
                    nursery.start_soon(prove, orphan)
            gone = tuple(
                RunnerGone(
                    run_id=o.run_id,
                    generation=o.generation,
                    proved=proved[o.run_id, o.generation],
                    stopped=(o.run_id, o.generation) not in self._failed,
                )
                for o in batch
            )
            await self._store.write(runners_gone, RunnersGone(gone=gone))
            self._failed.difference_update(proved)
            self._unproved.difference_update(key for key, dead in proved.items() if dead)
            self._unproved.update(key for key, dead in proved.items() if not dead)
            self._log("recovery.settled", runs=len(batch), unproved=sum(not dead for dead in proved.values()))
        except Unavailable as error:
            if isinstance(error, OutcomeUnknown):
                raise
            self._log.warning("recovery.unavailable", code=error.code)
        finally:
            self._recovering.difference_update((orphan.run_id, orphan.generation) for orphan in batch)


def _limits(config: Config) -> dict[str, int | None]:
    """What a runner is allowed, as `Launch` has it."""
    return {
        "value_bytes_max": config.max_value_bytes,
        "output_bytes_max": config.max_output_bytes,
        "memory_bytes_max": config.runner_memory_bytes,
        "stop_grace_ms": int(config.stop_grace_s * 1000),
    }


def _remember(cache: dict[str, Any], key: str, value: object) -> None:
    if len(cache) >= FACTS_MAX:
        cache.pop(next(iter(cache)))
    cache[key] = value
