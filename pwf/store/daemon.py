"""The daemon's claim in the store, its renewal, what an earlier daemon left behind, and the numbers of status."""

from __future__ import annotations

import msgspec

from pwf.protocol.runner import effect_key
from pwf.store.queries import load_queries
from pwf.store.space import space
from pwf.store.state import shown_status
from pwf.store.tx import DAEMON_NO, Tx

Q = load_queries(__file__)

OWNER = "daemon"


def owner_of(epoch: int) -> str:
    """The lease owner that stands on the runs of a daemon."""
    return f"daemon:{epoch}"


class ClaimEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """Become the daemon. The kernel's lock is held already: it decides, this fences."""

    token: str
    lease_ms: int
    pid: int
    version: str
    start_tick: int = 0


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """`suspects`: how many were at work when the earlier daemon died by itself."""

    epoch: int
    home_id: str
    suspects: int = 0


def claim(tx: Tx, command: ClaimEpoch) -> Claimed:
    """Take the next epoch; every write of an earlier daemon fails from here on."""
    if tx.one(Q.daemon_entity) is None:
        tx.create_entity("daemon", "", DAEMON_NO)
        tx.event(DAEMON_NO, 1, "created", "daemon", 0, {})
    revision, epoch = tx.take_lease(
        DAEMON_NO, token=command.token, owner=OWNER, until_awake_ms=tx.now.awake_ms + command.lease_ms
    )
    # A pid is used again; with its start tick and boot it names one process.
    process = {"pid": command.pid, "start_tick": command.start_tick, "boot_id": tx.now.boot_id}
    facts = {**process, "version": command.version}
    tx.event(DAEMON_NO, revision, "claimed", "daemon", epoch, facts)
    home = tx.one(Q.meta, {"key": "home_id"})
    return Claimed(epoch=epoch, home_id="" if home is None else str(home[0]))


class Renew(msgspec.Struct, frozen=True, kw_only=True):
    """Renew the daemon's lease, and of those entities whose supervisor is alive: (entity_no, generation, token)."""

    token: str
    epoch: int
    lease_ms: int
    live: tuple[tuple[int, int, str], ...]


def renew(tx: Tx, command: Renew) -> int:
    """Renew in one transaction; returns how many were renewed besides. `ClaimLost` when the claim is another's.

    One that was parked, has ended or was taken over meanwhile isn't renewed, and nothing is said.
    """
    until = tx.now.awake_ms + command.lease_ms
    tx.renew_lease(DAEMON_NO, generation=command.epoch, token=command.token, until_awake_ms=until)
    return sum(
        tx.try_renew_lease(entity_no, generation=generation, token=token, until_awake_ms=until)
        for entity_no, generation, token in command.live
    )


class Release(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    epoch: int


def release(tx: Tx, command: Release) -> None:
    """Give the claim up at an ordered stop."""
    revision = tx.fence(DAEMON_NO, generation=command.epoch, token=command.token)
    tx.release_lease(DAEMON_NO)
    tx.event(DAEMON_NO, revision, "released", "daemon", command.epoch, {})


# --- numbers --------------------------------------------------------------------------------------------------


class DaemonCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The store's part of `daemon.status`."""

    runs: dict[str, int]
    held: dict[str, int]
    requests_open: int
    request_oldest_ms: int | None
    effects_ambiguous: int
    store_bytes: int
    used_bytes: int


def daemon_counts(tx: Tx, _: None = None) -> DaemonCounts:
    """Counts that cost no scan of what has ended."""
    runs: dict[str, int] = dict(tx.all(Q.run_counts))
    held: dict[str, int] = {}
    for hold, status, count in tx.all(Q.hold_counts):
        held[hold] = held.get(hold, 0) + count
        shown = shown_status(status, hold)
        if shown != status:
            runs[status] = runs.get(status, 0) - count
            runs[shown] = runs.get(shown, 0) + count
    requests = tx.one(Q.open_requests) or (0, None)
    ambiguous = tx.one(Q.ambiguous) or (0,)
    room = space(tx)
    return DaemonCounts(
        runs={status: count for status, count in runs.items() if count},
        held=held,
        requests_open=requests[0],
        request_oldest_ms=requests[1],
        effects_ambiguous=ambiguous[0],
        store_bytes=room.pages * room.page_bytes,
        used_bytes=room.used_bytes,
    )


def applying(tx: Tx, _: None = None) -> tuple[str, ...]:
    """Manual effects that are being applied: what a stop would leave ambiguous."""
    return tuple(effect_key(*row) for row in tx.all(Q.applying_manual))


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What `state.status` shows of the database itself."""

    schema: int
    home_id: str
    page_bytes: int
    file_bytes: int
    free_bytes: int
    rows: dict[str, int]
    settings: dict[str, str]


def state_status(tx: Tx, _: None = None) -> StoreFacts:
    """Sizes, settings and cheap row counts."""

    def pragma(name: str) -> str:
        row = tx.one(f"PRAGMA {name}")
        return "" if row is None else str(row[0])

    page = int(pragma("page_size"))
    newest = tx.one(Q.ended_last) or (0,)
    home = tx.one(Q.meta, {"key": "home_id"})
    counts = daemon_counts(tx)
    return StoreFacts(
        schema=int(pragma("user_version")),
        home_id="" if home is None else str(home[0]),
        page_bytes=page,
        file_bytes=page * int(pragma("page_count")),
        free_bytes=page * int(pragma("freelist_count")),
        rows={
            "runs_ever": newest[0] or 0,
            "runs": sum(counts.runs.values()),
            "requests_open": counts.requests_open,
        },
        settings={
            name: pragma(name) for name in ("journal_mode", "synchronous", "foreign_keys", "auto_vacuum")
        },
    )
