"""One life of the simulated daemon: the real actors, wired as `pwf.actors.daemon` does it, on simulated ground.

Real: store, scheduler, supervisors, claim, changes, operations. Simulated: the kernel's lock, processes, sockets,
files, clocks. A crash ends everything at once, and what the dying tasks still do has no effect outside.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import apsw
import trio

from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreActor
from pwf.actors.claim.server_claim import Claim
from pwf.actors.code.whereabouts import Where
from pwf.actors.operations.caller import Caller, Handler
from pwf.actors.operations.people import Relative
from pwf.actors.runs.scheduler import SchedulerHandle
from pwf.actors.wiring import Ports, live, wire
from pwf.clock import Now
from pwf.config import Config
from pwf.discovery import Found
from pwf.errors import NotFound
from pwf.host.identity import Identity
from pwf.ids import Ids
from pwf.places import Places
from pwf.protocol.frames import Request, Response
from pwf.protocol.lock_record import LockRecord
from pwf.store.ballast import Ballast
from pwf.store.batch import Batch, HeldClaim, Job
from pwf.store.daemon import ClaimEpoch
from pwf.store.database import FileGuard
from pwf.store.executor import StoreSpec
from pwf.store.home import ClaimHome, claim_home
from pwf.store.loop_share import PROBE_S_MAX, LoopShare
from tests.sim.deaths import Wounds
from tests.sim.pool import SimPool
from tests.sim.reached import commands, move
from tests.sim.spoilers import Spoiler, may_run
from tests.sim.virtual_time import sleep
from tests.store import arrows
from tests.store.inline_executor import InlineExecutor

BALLAST_BYTES = 64 * 1024
INODE = 7
STALL_LOOK_S = 1.0


class Crash(Exception):
    """The daemon's process is gone."""


class SimLog(Log):
    """Keeps nothing; what must never be said is a violation."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def __call__(self, event: str, *, level: str = "info", **fields: object) -> None:
        if not self._life.dead:
            self._life.world.note("log." + event, **fields)
            self._life.world.auditor.logged(self._life, event, fields)


class WatchedClock:
    """The machine's clocks as the store reads them; the auditor is told."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def now(self) -> Now:
        now: Now = self._world.machine.now()
        self._world.auditor.waits.read(now)
        return now


class SimExecutor(InlineExecutor):
    """The inline store, whose process may die at each of its points; SQLite's lock keeps two daemons apart."""

    def __init__(self, spec: StoreSpec, life: Life) -> None:
        super().__init__(spec, self._pause_at, loop_share(life))
        self._life = life
        self._spoiler = Spoiler(life.world, life, life.world.stream(f"spoiler:{life.number}"))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        arrows.record(self._writer.tx)
        return self

    async def run(self, jobs: Sequence[Job]) -> Batch:
        with trio.CancelScope(shield=True):
            async with self._life.world.write_turn:
                try:
                    batch = self._spoiler.heal(await super().run(self._spoiler.spoil(jobs)))
                except Crash:
                    self._writer.close()
                    if not self._life.world.power_fails:  # commands that ran one by one have been committed
                        self._life.world.auditor.look(self._life)
                    raise
                self._life.wounds.batch()
                self._spoiler.judge(jobs, batch)
                self._note(jobs, batch)
                return batch

    async def _pause_at(self, point: str) -> None:
        if point == "executed" and not self._writer.is_open and not self._life.dead:
            self._life.world.auditor.look(self._life)  # what ran one by one is committed, and may be read
        await self._life.pause(point)
        if self._life.world.gremlin.locks:  # what follows finds it so
            self._life.wounds.hit("locked")

    def _note(self, jobs: Sequence[Job], batch: Batch) -> None:
        """What was done and which moves runs made; docs/states.md draws each of them."""
        reached = self._life.world.reached
        reached.commands.update(commands(jobs, batch.answers))
        taken = arrows.take(self._writer.tx)
        new = taken - arrows.drawn()
        self._life.world.auditor.check(not new, f"docs/states.md draws every move: {new}")
        reached.moves.update(map(move, taken))

    async def __aexit__(self, *error: Any) -> None:
        self._life.world.auditor.detach()
        await super().__aexit__(*error)


def loop_share(life: Life) -> LoopShare | None:
    """What the loop's thread does itself, by the seed; None: nothing. Now and then a look at the clock takes longer."""
    slow = life.world.mix.slow_commits
    chance = life.world.stream(f"pace:{life.number}")
    if slow is None:
        return None
    looked_s = 0.0

    def clock() -> float:
        nonlocal looked_s
        looked_s += 1.25 * PROBE_S_MAX if chance.random() < slow else chance.random() * PROBE_S_MAX / 4
        return trio.current_time() + looked_s

    share = LoopShare(clock=clock, may_run=may_run)
    share.pace.in_loop = chance.random() < 0.5
    return share


class FlakyChanges:
    """A source of wake-ups that loses, doubles and delays them. `run` passes them on."""

    def __init__(self, store: Any, world: Any, chance: random.Random) -> None:
        self._store = store
        self._world = world
        self._chance = chance
        self._pending: set[str] = set()
        self._some = trio.Event()
        self._listener: Callable[[frozenset[str]], None] = lambda keys: None

    def on_change(self, listener: Callable[[frozenset[str]], None]) -> None:
        self._listener = listener
        self._store.on_change(self._hear)

    def _hear(self, keys: frozenset[str]) -> None:
        self._pending |= keys
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self._some = trio.Event()
            keys, self._pending = frozenset(self._pending), set()
            if self._chance.random() < self._world.rate("wake_late"):
                await sleep(self._chance.random() * 4.0)
            doubled = self._chance.random() < self._world.rate("wake_doubled")
            if self._chance.random() >= self._world.rate("wake_lost"):
                self._listener(keys)
            if doubled:
                await trio.lowlevel.checkpoint()
                self._listener(keys)


class SimWhereabouts:
    """The seed's workflows, in place of folders. What stands in their files is `world.code`'s."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def find(self, workflow: str, origin: Any, asked_ns: int | None = None, sort: str = "workflows") -> Where:
        if sort == "resources":
            path = Path(self._world.managers.path)
            return self.chosen(Found(name=path.stem, path=path, scope="path", root=Path("/")), origin)
        if workflow not in self._world.models:
            raise NotFound(f"there is no workflow {workflow!r}")
        path = Path(self._world.models[workflow].path)
        return self.chosen(Found(name=workflow, path=path, scope="path", root=Path("/")), origin)

    def chosen(self, found: Found, origin: Any) -> Where:
        return Where(found, sys.executable)


class SimLock:
    """The lock file's text; that the lock is held is the world's affair."""

    def write(self, record: LockRecord) -> None:
        return None


class SimDoor:
    """No sockets: clients come by `Life.begin`, one task each."""

    clients = 0

    def __init__(self, life: Life, handle: Handler) -> None:
        self.handle = self
        self._life = life
        self._serve_request = handle
        self._tasks: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._tasks = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._tasks = None

    async def say_goodbye(self) -> None:
        return None

    def begin(self, request: Request, answers: list[Response]) -> tuple[trio.Event, trio.CancelScope]:
        """Handle a request on a connection of its own; its answer goes into `answers`, if it comes.

        The event: there is an answer, or the connection has ended with its daemon. When the daemon is just ending,
        nobody hears the request.
        """
        scope, heard = trio.CancelScope(), self._until_over()

        async def serve() -> None:
            with scope:
                response = await self._serve_request(request, Caller(1, _no_events, peer=PERSON))
                self._life.perhaps_crash("before answer")
                answers.append(response)
                self._tell(heard)
                self._life.perhaps_crash("after answer")

        if self._tasks is not None:
            self._tasks.start_soon(serve)
        return heard, scope

    @contextmanager
    def connection(self, caller: Caller) -> Iterator[trio.CancelScope | None]:
        """What a session needs of a connection: its tasks end with it. None when the daemon is just ending."""
        tasks, scope = self._tasks, trio.CancelScope()
        if tasks is None:
            yield None
            return

        async def live(work: Callable[[], Awaitable[None]]) -> None:
            with scope:
                await work()

        caller.begin = lambda work: tasks.start_soon(live, work)
        try:
            yield scope
        finally:
            scope.cancel()
            caller.end()

    async def serve(self, request: Request, caller: Caller) -> Response | None:
        """The same for a caller that hears events; None when the daemon is over before it has answered."""
        answers: list[Response] = []

        async def answer() -> None:
            answers.append(await self._serve_request(request, caller))
            self._tell(heard)

        heard = self._until_over()
        if self._tasks is None:
            return None
        self._tasks.start_soon(answer)
        await heard.wait()
        return answers[0] if answers else None

    def _until_over(self) -> trio.Event:
        """An event that is set at the end of the daemon at the latest."""
        heard = trio.Event()
        self._life.connections.add(heard)
        if self._life.over.is_set():
            heard.set()
        return heard

    def _tell(self, heard: trio.Event) -> None:
        heard.set()
        self._life.connections.discard(heard)


def lose_wake_ups(scheduler: SchedulerHandle, world: Any, chance: random.Random) -> SchedulerHandle:
    """The scheduler's handle as operations have it: a wake-up may be lost."""
    flaky = copy.copy(scheduler)

    def wake() -> None:
        if chance.random() >= world.rate("wake_lost"):
            scheduler.wake()

    flaky.wake = wake
    return flaky


class Life:
    """From the claim to the end."""

    def __init__(self, world: Any, number: int) -> None:
        self.world = world
        self.number = number
        self.dead = False
        self.serving = False
        self.died_by_itself = False
        self.over = trio.Event()
        self.connections: set[trio.Event] = set()  # that wait for an answer
        self.epoch = 0
        self.scheduler: SchedulerHandle | None = None
        self.wounds = Wounds()
        self.snapshots: set[apsw.Connection] = set()  # that a reader holds
        self.mount = world.disk.mount(fails=world.mix.disk_fails)
        self.mount.fail = partial(world.gremlin.touch_disk, self.wounds)
        self._chance = world.stream(f"life:{number}")
        self._scope = trio.CancelScope()
        self._stopping = trio.Event()
        self.stalled_until = 0.0
        self.pool = SimPool(world, self)
        self.log = SimLog(self)

    # --- ending -------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The process is gone from this instant on."""
        if not self.dead:
            self.dead = self.mount.dead = True
            self.serving = False
            self._scope.cancel()
            self.pool.close_all()

    def perhaps_crash(self, where: str) -> None:
        """A point at which the process may die."""
        if self._chance.random() < self.world.rate("crash_at_send"):
            self.world.fault("crash", life=self.number, at=where)
            self.crash()
        if self.dead:
            raise Crash

    def happens(self, fault: str) -> bool:
        """Whether a fault happens at this point."""
        return bool(self._chance.random() < self.world.rate(fault))

    def stop(self, drain_ms: int | None = None) -> None:
        """Begin an ordered stop."""
        self._stopping.set()

    @property
    def draining(self) -> bool:
        """Whether an ordered stop is under way."""
        return self._stopping.is_set()

    async def pause(self, point: str) -> None:
        """Virtual time at the store's points; the process may die in it."""
        self.world.auditor.time_passes()
        if point == "committed" and not self.dead:  # else the power has failed within the commit
            self.world.auditor.look(self)
        await sleep(self._chance.random() * self.world.mix.pause_s)
        while not self.dead and trio.current_time() < self.stalled_until:
            await sleep(STALL_LOOK_S)
        if self.serving and self._chance.random() < self.world.rate("crash_at_point"):
            self.world.fault("crash", life=self.number, at=point)
            self.crash()
        if self.dead:
            raise Crash

    # --- living -------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Live; how it ended: stopped, crashed, or the cause of its death."""
        try:
            with self._scope:
                await self._serve()
        except BaseExceptionGroup as group:
            if group.subgroup(trio.Cancelled) is not None:
                raise
            self.cause = group
            outcome = "crashed" if self.dead else "died"
        except Exception as error:  # noqa: BLE001 - how the daemon died is the auditor's to judge
            self.cause = ExceptionGroup("one", [error])
            outcome = "crashed" if self.dead else "died"
        else:
            outcome = "crashed" if self.dead else "stopped"
        finally:
            self.dead = self.mount.dead = True
            self.serving = False
            self.pool.close_all()
            for snapshot in self.snapshots:
                snapshot.close()
            self.over.set()
            for heard in self.connections:  # the kernel closes them
                heard.set()
            self.mount.close_all()
            self.mount.unregister()
        return outcome

    def _spec(self) -> StoreSpec:
        return StoreSpec(
            path=self.world.database,
            clock=WatchedClock(self.world),
            ids=Ids(self.world.stream(f"ids:{self.number}").getrandbits),
            ballast=Ballast(self.world.folder / "ballast", BALLAST_BYTES),
            warn=self.log.warning,
            vfs=self.mount.mount_name,
        )

    async def _serve(self) -> None:
        config = self.world.config
        async with trio.open_nursery() as nursery:
            store = await nursery.start(StoreActor(SimExecutor(self._spec(), self)).run)
            claim = await self._claim(store, config)
            flaky = FlakyChanges(store, self.world, self._chance)
            nursery.start_soon(flaky.run)
            actors = wire(
                store,
                claim,
                self._ports(flaky),
                at=Places(self.world.folder, self.world.folder / "config.toml", Path("/socket")),
                config=config,
                clock=self.world.machine,
                log=self.log,
                stop=self.stop,
            )
            self.scheduler = actors.scheduler.handle
            actors.services.scheduler = lose_wake_ups(self.scheduler, self.world, self._chance)
            try:
                await live(
                    actors,
                    self.log,
                    stopping=self._stopping,
                    drain_s=lambda: config.drain_s,
                    served=self._begin_serving,
                )
            finally:
                self.serving = False
            nursery.cancel_scope.cancel()

    def _begin_serving(self) -> None:
        self.serving = True

    def _ports(self, flaky: FlakyChanges) -> Ports:
        return Ports(
            files=FileGuard(self.world.database),
            lock=SimLock(),
            record=LockRecord(pid=1, boot_id=self.world.machine.boot_id),
            pool=self.pool,
            whereabouts=SimWhereabouts(self.world),
            open_door=self._open_door,
            open_clock_steps=lambda: None,
            lineage=_of_a_person,
            user="sim",
            changes=lambda store: flaky,
            open_adapter=self.world.channels.open,
        )

    def _open_door(self, handle: Handler) -> SimDoor:
        self.door = SimDoor(self, handle)
        return self.door

    async def _claim(self, store: Any, config: Config) -> Claim:
        token = f"token-{self.number}"
        alone, died = len(self.world.alive) == 1, self.world.take_death()
        if alone:
            self.world.auditor.blame.about_to_claim()
        command = ClaimHome(
            claim=ClaimEpoch(
                token=token, lease_ms=int(config.lease_s * 1_000), pid=self.number, version="sim"
            ),
            device=1,
            inode=INODE,
            died=died,
        )
        claimed = await store.write(claim_home, command, before_claim=True)
        await store.hold_claim(HeldClaim(claimed.epoch, token))
        self.epoch = claimed.epoch
        self.world.auditor.claimed(self, claimed.epoch)
        self.world.auditor.blame.claimed(
            died=died, boot_id=self.world.machine.boot_id, alone=alone and len(self.world.alive) == 1
        )
        return Claim(token=token, epoch=claimed.epoch, home_id=claimed.home_id)


PERSON = Identity(pid=2, start_tick=1, boot_id="sim", session=2)


async def _of_a_person(peer: Identity) -> list[Relative]:
    return [Relative(peer, None)]


async def _no_events(event: Any) -> None:
    return None
