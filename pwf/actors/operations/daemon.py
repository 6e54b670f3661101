"""Operations on the daemon itself: status, stop, contents. Holds no state."""

from __future__ import annotations

import os

import msgspec
import trio

import pwf
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.actors.operations.state import wal_bytes
from pwf.errors import InvalidArgument, NotFound
from pwf.host import Identity
from pwf.host.holders import files_of, holders, pinned_by
from pwf.host.usage import memory_of, own_usage
from pwf.protocol.operations import (
    Content,
    DaemonStatus,
    LiveRunner,
    Nothing,
    ReadContent,
    StopPayload,
    StopResult,
)
from pwf.store.batch import WAL_OWED_BYTES
from pwf.store.channel_troubles import channel_problems
from pwf.store.daemon import applying, daemon_counts
from pwf.store.read_resources import OfResource, resource_counts, resource_refers
from pwf.store.read_runs import Refers, refers
from pwf.store.resource_words import resource_named
from pwf.store.runs import resolve_ref
from pwf.store.space import budget_problem
from pwf.store.tx import Tx
from pwf.store.values import ReadValueChunk, read_chunk, value_size
from pwf.store.verify import cheap_violations
from pwf.values import CHUNK_BYTES, shortened

PAGES_DOWN = "the answer pages are not there"

# --- the daemon -------------------------------------------------------------------------------------------


async def status(services: Services, asked: Asked[Nothing]) -> Answer:
    """`daemon.status`."""
    counts = await services.store.read(daemon_counts, None)
    managed = await services.store.read(resource_counts, None)
    channels = await services.store.read(channel_problems, None)
    violations = await services.store.read(cheap_violations, services.claim.claim.epoch)
    memory_bytes, descriptors, live = await trio.to_thread.run_sync(_usage, services.runners())
    pinned = await _pinned(services)
    life, claim, scheduler = services.life, services.claim, services.scheduler
    now = services.clock.now()
    oldest = counts.request_oldest_ms
    return Answer(
        DaemonStatus(
            state=life.state,
            version=pwf.__version__,
            pid=os.getpid(),
            epoch=claim.claim.epoch,
            home=str(services.places.home),
            socket=str(services.places.socket),
            started_ms=life.started_wall_ms,
            renewed_ms=claim.renewed.wall_ms,
            lease_left_ms=claim.renewed.until_awake_ms - now.awake_ms,
            clients=services.clients(),
            sessions=services.attached.count,
            runs=counts.runs,
            held=counts.held,
            requests_open=counts.requests_open,
            request_oldest_ms=None if oldest is None else max(0, now.wall_ms - oldest),
            effects_ambiguous=counts.effects_ambiguous,
            resources=managed.alive,
            reconciles_queued=managed.queued,
            reconciles_live=managed.live,
            resources_kept_back=managed.kept_back,
            runners=scheduler.used,
            capacity=scheduler.capacity,
            admissions=scheduler.admissions,
            store_bytes=counts.store_bytes,
            used_bytes=counts.used_bytes,
            max_state_size=services.config.max_state_size,
            wal_bytes=wal_bytes(services.places.database),
            memory_bytes=memory_bytes,
            open_descriptors=descriptors,
            live=live,
            disk_full=services.store.disk_full,
            pages=services.pages.url,
            problems=(*_problems(services, counts.used_bytes), *pinned, *channels.problems),
            violations=violations,
        )
    )


def _usage(runners: list[tuple[str, Identity]]) -> tuple[int, int, tuple[LiveRunner, ...]]:
    """In a thread: it reads a few files for each process."""
    memory_bytes, descriptors = own_usage()
    live = (
        LiveRunner(marker=marker, pid=identity.pid, memory_bytes=memory_of(identity.pid))
        for marker, identity in sorted(runners)
    )
    return memory_bytes, descriptors, tuple(live)


async def _pinned(services: Services) -> tuple[str, ...]:
    """Who keeps the database's log from being cut, where it is long."""
    database = services.places.database
    size = wal_bytes(database)
    if size < WAL_OWED_BYTES:
        return ()
    return (pinned_by(size, await trio.to_thread.run_sync(holders, files_of(database))),)


def _problems(services: Services, used_bytes: int) -> tuple[str, ...]:
    found = list(services.life.problems)
    if services.life.why_degraded is not None:
        found.append(services.life.why_degraded)
    if services.store.disk_full:
        found.append("the disk is full: nothing new is admitted until there is room again")
    if services.pages.trouble is not None:
        found.append(f"{PAGES_DOWN}: {services.pages.trouble}")
    over = budget_problem(used_bytes, services.config.max_state_size)
    if over is not None:
        found.append(over)
    return tuple(found)


async def stop(services: Services, asked: Asked[StopPayload]) -> Answer:
    """`daemon.stop`: begin to stop; names what a stop at the end of the drain would leave ambiguous."""
    effects = await services.store.read(applying, None)
    services.life.stop(asked.payload.drain_ms)
    return Answer(StopResult(pid=os.getpid(), applying=effects))


# --- contents ---------------------------------------------------------------------------------------------


class _ContentQuery(msgspec.Struct, frozen=True, kw_only=True):
    ref: str
    digest: str
    offset: int


async def read_content(services: Services, asked: Asked[ReadContent]) -> Answer:
    """`content.read`: a piece of a value that the run or resource refers to; a digest alone opens nothing."""
    payload = asked.payload
    if payload.offset < 0:
        raise InvalidArgument("offset is negative")
    query = _ContentQuery(ref=asked.run_ref, digest=payload.digest, offset=payload.offset)
    return Answer(await services.store.read(_content, query))


def _content(tx: Tx, query: _ContentQuery) -> Content:
    resource_no = resource_named(tx, query.ref)
    if resource_no is None:
        run_id = resolve_ref(tx, query.ref)
        what, may_read = f"run {run_id}", refers(tx, Refers(run_id=run_id, digest=query.digest))
    else:
        what = f"resource {query.ref}"
        may_read = resource_refers(tx, OfResource(resource_no=resource_no, digest=query.digest))
    if not may_read:
        raise NotFound(f"{what} refers to no value {shortened(query.digest, 80)!r}")
    size = value_size(tx, query.digest)
    if query.offset >= size:
        return Content(digest=query.digest, size=size, offset=query.offset, data=b"", last=True)
    index, skipped = divmod(query.offset, CHUNK_BYTES)
    chunk = read_chunk(tx, ReadValueChunk(digest=query.digest, index=index))
    return Content(
        digest=query.digest, size=size, offset=query.offset, data=chunk.data[skipped:], last=chunk.last
    )


HANDLERS: dict[str, OperationHandler] = {
    "daemon.status": status,
    "daemon.stop": stop,
    "content.read": read_content,
}
