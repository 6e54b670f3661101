"""Which actor holds which handle: the one place where they are put together.

Requests go down a fixed rank, the store lowest; upward go only wake-ups, which carry nothing.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass

import pwf
from pwf import host
from pwf.actors.base.changes import Changes
from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.claim.server_claim import ServerClaim
from pwf.actors.code.definitions import Definitions
from pwf.actors.code.interpreters import Interpreters
from pwf.actors.code.newer_code import NewerCode
from pwf.actors.code.schemas import Schemas
from pwf.actors.door.listener import Listener
from pwf.actors.door.views import Views
from pwf.actors.operations.dispatch import Operations
from pwf.actors.operations.services import Life, Services
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.runs.clock_watch import ClockWatch
from pwf.actors.runs.scheduler import Scheduler
from pwf.actors.upkeep.pruner import Pruner
from pwf.clock import Clock
from pwf.config import Config
from pwf.places import Places
from pwf.protocol.frames import PROTOCOL, Hello


@dataclass(frozen=True)
class Actors:
    """What the daemon runs."""

    pool: RunnerPool
    scheduler: Scheduler
    listener: Listener
    clock_watch: ClockWatch
    pruner: Pruner
    services: Services


def wire(
    store: StoreHandle,
    claim: ServerClaim,
    *,
    at: Places,
    config: Config,
    clock: Clock,
    log: Log,
    stop: Callable[[int | None], None],
) -> Actors:
    """Make the actors of one daemon, none of which runs yet. `stop` begins the drain."""
    changes = Changes(store)
    pool = RunnerPool(
        log=log,
        templates_max=config.max_templates,
        idle_s=config.template_idle_s,
        zygote_idle_s=config.zygote_idle_s,
    )
    scheduler = Scheduler(
        store=store,
        pool=pool,
        changes=changes,
        config=config,
        log=log,
        epoch=claim.claim.epoch,
        home_id=claim.claim.home_id,
    )
    claim.live_leases = scheduler.live_leases
    definitions = Definitions(
        pool,
        store,
        config_folder=at.config.parent,
        interpreter=config.interpreter,
    )
    pruner = _pruner(store, definitions, scheduler, claim, at=at, config=config, clock=clock, log=log)
    listener: Listener
    services = Services(
        store=store,
        scheduler=scheduler,
        definitions=definitions,
        schemas=Schemas(),
        changes=changes,
        views=Views(changes, log),
        newer_code=NewerCode(store),
        claim=claim,
        places=at,
        config=config,
        clock=clock,
        log=log,
        life=Life(started_wall_ms=clock.now().wall_ms, stop=stop),
        clients=lambda: listener.clients,
        user=_user_name(),
        interpreters=Interpreters(),
        pruner=pruner,
    )
    listener = Listener(
        at.socket,
        handle=Operations(services).handle,
        hello=_hello(claim, at),
        peer_uid=host.peer_uid,
        log=log,
    )
    clock_watch = ClockWatch(clock, scheduler.wake, log)
    return Actors(pool, scheduler, listener, clock_watch, pruner, services)


def _pruner(
    store: StoreHandle,
    definitions: Definitions,
    scheduler: Scheduler,
    claim: ServerClaim,
    *,
    at: Places,
    config: Config,
    clock: Clock,
    log: Log,
) -> Pruner:
    return Pruner(
        store=store,
        definitions=definitions,
        is_idle=lambda: scheduler.used == 0,
        database=at.database,
        epoch=claim.claim.epoch,
        retention_days=config.retention_days,
        clock=clock,
        log=log,
    )


def _hello(claim: ServerClaim, at: Places) -> Callable[[], Hello]:
    hello = Hello(
        protocol=PROTOCOL,
        version=pwf.__version__,
        epoch=claim.claim.epoch,
        home=str(at.home),
        pid=os.getpid(),
    )
    return lambda: hello


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
