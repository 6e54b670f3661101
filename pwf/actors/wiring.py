"""Wires the daemon's actors: which of them hold which handles, and in what order they begin and end.

Owns nothing; the one place where they are put together, for the daemon and for the simulation, so that neither has
an actor that the other lacks. Where the two differ there is a port.

Requests go down a fixed rank, the store lowest; upward go only wake-ups, which carry nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from pwf.actors.base.changes import Changes, ChangeSource
from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.channels.adapter_process import open_adapter_process
from pwf.actors.channels.channel_supervisor import OpenAdapter
from pwf.actors.channels.channels import Channels, settings_of
from pwf.actors.claim.server_claim import Claim, Files, Lock, ServerClaim
from pwf.actors.code.definitions import Definitions, Lookup
from pwf.actors.code.newer_code import NewerCode
from pwf.actors.code.schemas import Schemas
from pwf.actors.decisions.decision_timeout import DecisionTimeout
from pwf.actors.door.views import Views
from pwf.actors.operations.caller import Handler
from pwf.actors.operations.dispatch import Operations
from pwf.actors.operations.people import Lineage, People
from pwf.actors.operations.services import Life, Services
from pwf.actors.pages.pages import OpenServer, Pages, PagesHandle
from pwf.actors.pages.server_process import open_server_process
from pwf.actors.resources.file_watch import FileWatch, OpenWatcher
from pwf.actors.resources.questions import Questions
from pwf.actors.resources.resource_manager_supervisor import make_reconciler
from pwf.actors.resources.watcher_process import open_watcher_process
from pwf.actors.runs.clock_watch import ClockWatch
from pwf.actors.runs.scheduler import Scheduler, SchedulerHandle
from pwf.actors.runs.settings_changes import SettingsChanges
from pwf.actors.sessions.session_coordinator import Attached
from pwf.actors.upkeep.backup import Backups
from pwf.actors.upkeep.pruner import Pruner
from pwf.clock import Clock
from pwf.config import Config
from pwf.errors import Unavailable
from pwf.host.clock_steps import ClockSteps
from pwf.places import Places
from pwf.protocol.lock_record import LockRecord
from pwf.store.space import disk_bytes

SENDING_S = 5.0  # at a stop, for what channels are sending


class Pool(Protocol):
    """The actor that makes processes, which is its own handle."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""


class DoorHandle(Protocol):
    """What others hold of the actor that lets clients in."""

    @property
    def clients(self) -> int:
        """Connections that are open now."""

    async def say_goodbye(self) -> None:
        """Let nobody more in, and tell who is left why it ends."""


class Door(Protocol):
    """The actor that lets clients in."""

    @property
    def handle(self) -> DoorHandle:
        """For others."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""


@dataclass(frozen=True)
class Ports:
    """Where the daemon and the simulation differ: what stands between the actors and the machine."""

    lock: Lock
    record: LockRecord  # what the lock file says of us
    pool: Any  # `Pool`, with what Scheduler, RunSupervisor and Definitions need of it
    whereabouts: Lookup
    open_door: Callable[[Handler], Door]
    open_clock_steps: Callable[[], ClockSteps | None]
    lineage: Lineage  # of the process at the other end of a connection
    user: str
    files: Files  # of the database
    changes: Callable[[StoreHandle], ChangeSource] = lambda store: store
    open_watcher: OpenWatcher = open_watcher_process
    open_server: OpenServer = open_server_process
    open_adapter: OpenAdapter = open_adapter_process


@dataclass(frozen=True)
class Actors:
    """What a daemon runs; of the store, which was there before, only the handle."""

    claim: ServerClaim
    pool: Pool
    definitions: Definitions
    newer_code: NewerCode
    views: Views
    scheduler: Scheduler
    clock_watch: ClockWatch
    decision_timeout: DecisionTimeout
    file_watch: FileWatch
    channels: Channels
    pruner: Pruner
    backups: Backups
    pages: Pages
    door: Door
    services: Services


def wire(
    store: StoreHandle,
    claim: Claim,
    ports: Ports,
    *,
    at: Places,
    config: Config,
    clock: Clock,
    log: Log,
    stop: Callable[[int | None], None],
) -> Actors:
    """Make the actors of one daemon, none of which runs yet. `stop` begins the drain."""
    changes = Changes(ports.changes(store))
    definitions = Definitions(ports.pool, ports.whereabouts)
    settings = SettingsChanges(schemas := Schemas(), claim.epoch)
    questions = Questions(definitions.handle, schemas, settings)
    scheduler = _scheduler(store, claim, ports, changes, questions, at, config, log)
    server_claim = _server_claim(store, claim, ports, scheduler.handle, config, clock, log)
    pruner = _pruner(store, scheduler.handle, claim.epoch, config, clock, log, at)
    views = Views(changes, log)
    pages = Pages(ports.open_server, config.web, log)
    people = _people(ports, attached := Attached(), pages.handle, config)
    channels = _channels(store, changes, ports, scheduler.handle, people, at, config, log)
    door: Door
    services = Services(
        store=store,
        scheduler=scheduler.handle,
        definitions=definitions.handle,
        schemas=schemas,
        changes=changes,
        views=views.handle,
        newer_code=(newer_code := NewerCode(store)).handle,
        claim=server_claim.handle,
        places=at,
        config=config,
        agents=scheduler.supervision.agents,
        clock=clock,
        log=log,
        life=Life(started_wall_ms=clock.now().wall_ms, stop=stop),
        clients=lambda: door.handle.clients,
        runners=ports.pool.runners,
        kept=ports.pool.kept,
        user=ports.user,
        people=people,
        attached=attached,
        change_settings=functools.partial(settings.make, scheduler.supervision),
        pruner=pruner.handle,
        backups=(backups := Backups(at.database, claim.epoch, clock, log)).handle,
        pages=pages.handle,
        channels=channels.handle,
    )
    door = ports.open_door(Operations(services).handle)
    timeouts = DecisionTimeout(store, changes, log)
    return Actors(
        claim=server_claim,
        pool=ports.pool,
        definitions=definitions,
        newer_code=newer_code,
        views=views,
        scheduler=scheduler,
        clock_watch=ClockWatch(clock, (scheduler.handle.wake, timeouts.wake), log, ports.open_clock_steps),
        decision_timeout=timeouts,
        file_watch=FileWatch(store, changes, ports.open_watcher, scheduler.handle.wake, log),
        channels=channels,
        pruner=pruner,
        backups=backups,
        pages=pages,
        door=door,
        services=services,
    )


def _people(ports: Ports, attached: Attached, pages: PagesHandle, config: Config) -> People:
    return People(
        ports.lineage,
        ports.pool.runners,
        attached.processes,
        pages.processes,
        steps_may_answer=config.people.steps_may_answer,
    )


def _scheduler(
    store: StoreHandle,
    claim: Claim,
    ports: Ports,
    changes: Changes,
    questions: Questions,
    at: Places,
    config: Config,
    log: Log,
) -> Scheduler:
    return Scheduler(
        store=store,
        pool=ports.pool,
        changes=changes,
        config=config,
        log=log,
        epoch=claim.epoch,
        home_id=claim.home_id,
        make_reconciler=functools.partial(make_reconciler, questions),
        output=str(at.output),
        secrets_from=at.config,
    )


def _channels(
    store: StoreHandle,
    changes: Changes,
    ports: Ports,
    scheduler: SchedulerHandle,
    people: People,
    at: Places,
    config: Config,
    log: Log,
) -> Channels:
    return Channels(
        store,
        changes,
        settings_of(config),
        open_adapter=ports.open_adapter,
        config=str(at.config),
        wake_scheduler=scheduler.wake,
        check_host=people.check_host,
        log=log,
    )


def _server_claim(
    store: StoreHandle,
    claim: Claim,
    ports: Ports,
    scheduler: SchedulerHandle,
    config: Config,
    clock: Clock,
    log: Log,
) -> ServerClaim:
    return ServerClaim(
        store,
        ports.lock,
        ports.record,
        claim,
        live_leases=scheduler.live_leases,
        files=ports.files,
        clock=clock,
        lease_s=config.lease_s,
        renew_s=config.lease_renew_s,
        log=log,
    )


def _pruner(
    store: StoreHandle,
    scheduler: SchedulerHandle,
    epoch: int,
    config: Config,
    clock: Clock,
    log: Log,
    at: Places,
) -> Pruner:
    return Pruner(
        store=store,
        is_idle=lambda: scheduler.used == 0,
        disk_bytes=lambda: disk_bytes(at.database),
        epoch=epoch,
        retention_days=config.retention_days,
        clock=clock,
        log=log,
        output=at.output,
    )


async def live(
    actors: Actors,
    log: Log,
    *,
    stopping: trio.Event,
    drain_s: Callable[[], float],
    served: Callable[[], None],
) -> None:
    """Run every actor until `stopping`; returns when the runners are settled and the sockets closed.

    `served` is called once clients can be answered. What the store holds is recovered behind the open socket. A daemon
    that came up degraded (`life.why_degraded`) admits nothing, and prunes and times out nothing by itself. The claim
    outlives the others, and is given up last.
    """
    life, scheduler = actors.services.life, actors.scheduler.handle
    async with trio.open_nursery() as outer:
        await outer.start(actors.claim.run)
        async with trio.open_nursery() as nursery:
            await nursery.start(actors.pool.run)
            await nursery.start(actors.door.run)
            nursery.start_soon(actors.clock_watch.run)
            nursery.start_soon(actors.backups.run)
            nursery.start_soon(actors.definitions.run)
            nursery.start_soon(actors.newer_code.run)
            nursery.start_soon(actors.views.run)
            nursery.start_soon(functools.partial(actors.pruner.run, by_age=life.why_degraded is None))
            served()
            await nursery.start(actors.scheduler.run, life.why_degraded)
            if life.why_degraded is None:
                nursery.start_soon(actors.decision_timeout.run)
                nursery.start_soon(actors.file_watch.run)
                nursery.start_soon(actors.pages.run)
                nursery.start_soon(actors.channels.run)
                life.state = "serving"
            else:
                life.state = "degraded"
                log.error("daemon.degraded", why=life.why_degraded)
            log(
                "daemon.serving",
                epoch=actors.claim.handle.claim.epoch,
                socket=str(actors.services.places.socket),
            )
            await stopping.wait()
            life.state = "draining"
            log("daemon.draining", runners=scheduler.used, drain_s=drain_s())
            await scheduler.drain(drain_s())
            if life.why_degraded is None:
                await actors.channels.handle.drain(SENDING_S)
            await actors.door.handle.say_goodbye()
            nursery.cancel_scope.cancel()
        # A claim that is lost just now ends the daemon by its own error.
        with contextlib.suppress(Unavailable):
            await actors.claim.handle.give_up()
