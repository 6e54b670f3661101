"""Operations on the state folder: status, verify, backup, prune. Holds no state."""

from __future__ import annotations

from pathlib import Path

import apsw

from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.protocol.operations import (
    BackupPayload,
    BackupResult,
    Nothing,
    PrunePayload,
    StateStatus,
)
from pwf.store.daemon import state_status
from pwf.store.verify import verify

VERIFY_S_MAX = 3_600.0  # it reads everything there is


async def state(services: Services, asked: Asked[Nothing]) -> Answer:
    """`state.status`."""
    facts = await services.store.read(state_status, None)
    database = services.places.database
    return Answer(
        StateStatus(
            database=str(database),
            schema=facts.schema,
            home_id=facts.home_id,
            page_bytes=facts.page_bytes,
            file_bytes=facts.file_bytes,
            wal_bytes=wal_bytes(database),
            free_bytes=facts.free_bytes,
            rows=facts.rows,
            settings=facts.settings,
            sqlite=apsw.sqlite_lib_version(),
        )
    )


async def state_verify(services: Services, asked: Asked[Nothing]) -> Answer:
    """`state.verify`: every rule, and each violation with its run. Other reads go on meanwhile."""
    epoch = services.claim.claim.epoch
    return Answer(await services.store.read_apart(verify, epoch, limit_s=VERIFY_S_MAX))


async def state_backup(services: Services, asked: Asked[BackupPayload]) -> Answer:
    """`state.backup`: a verified copy in a new file."""
    made = await services.backups.make(Path(asked.payload.path))
    return Answer(
        BackupResult(
            path=made.path,
            bytes=made.size,
            runs=made.runs,
            at_ms=made.made.at_ms,
            home_id=made.made.home_id,
            epoch=made.made.epoch,
            violations=made.violations,
        )
    )


async def state_prune(services: Services, asked: Asked[PrunePayload]) -> Answer:
    """`state.prune`: remove trees of ended runs, or say which would go."""
    payload = asked.payload
    receipt = await asked.make_receipt()
    done = await services.pruner.prune(
        payload.before_ms, dry_run=payload.dry_run, actor=asked.actor, receipt=receipt
    )
    return Answer(done.unwrap(), done.adopted)


def wal_bytes(database: Path) -> int:
    """Size of the write-ahead log's file."""
    try:
        return database.with_name(database.name + "-wal").stat().st_size
    except OSError:
        return 0


HANDLERS: dict[str, OperationHandler] = {
    "state.status": state,
    "state.verify": state_verify,
    "state.backup": state_backup,
    "state.prune": state_prune,
}
