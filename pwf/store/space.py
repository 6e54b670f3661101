"""How much room the database takes, the budget for it, and giving free pages back to the file system.

Giving back costs writes (pages move from the end of the file into holes), so it is done only when it pays, in
small commands of their own.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from pwf.errors import StateFull
from pwf.store.tx import Tx

MIB = 1024 * 1024
PAYS_BYTES = 32 * MIB
PAYS_SHARE = 0.2  # of the file
KEPT_SHARE = 0.05  # of the file: room for what comes next
STEP_PAGES = 512  # 2 MiB a command
WARN_SHARE = 0.8  # of the budget


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of the database file, and how many of them are free."""

    page_bytes: int
    pages: int
    free_pages: int

    @property
    def used_bytes(self) -> int:
        """What the content takes: the file without its free pages."""
        return self.page_bytes * (self.pages - self.free_pages)


def space(tx: Tx, _: None = None) -> Space:
    """From the file's header: costs nothing."""

    def pragma(name: str) -> int:
        row = tx.one(f"PRAGMA {name}")
        assert row is not None
        return int(row[0])

    return Space(
        page_bytes=pragma("page_size"), pages=pragma("page_count"), free_pages=pragma("freelist_count")
    )


def disk_bytes(database: Path) -> int:
    """What the database's files take, by their length: what a file system allocates ahead for a while is not ours."""
    found = 0
    for end in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            found += database.with_name(database.name + end).lstat().st_size
    return found


def to_give_back(found: Space, *, disk_full: bool = False) -> int:
    """How many free pages are worth giving back now. On a full disk every one is."""
    if disk_full:
        return found.free_pages
    free_bytes = found.free_pages * found.page_bytes
    if free_bytes < PAYS_BYTES or found.free_pages < found.pages * PAYS_SHARE:
        return 0
    return found.free_pages - int(found.pages * KEPT_SHARE)


def compact(tx: Tx, pages: int) -> int:
    """Give up to so many free pages back: move pages into holes and shorten the file; how many pages went."""
    before = space(tx).pages
    tx.all(f"PRAGMA incremental_vacuum({int(pages)})")
    return before - space(tx).pages


def refuse_over_budget(tx: Tx, limit: int | None) -> None:
    """Raise `StateFull` when the database has reached its budget. Ends, answers, cancels and reads never ask."""
    if limit is None:
        return
    used = space(tx).used_bytes
    if used >= limit:
        raise StateFull(
            f"the state takes {used:,} bytes, and max_state_size is {limit:,}: no run is started",
            hint="pwf state prune --before 7d, or raise max_state_size in config.toml",
        )


def budget_problem(used: int, limit: int | None) -> str | None:
    """What `pwf status` and `pwf doctor` say about the budget; None while there is nothing to say."""
    if limit is None or used < limit * WARN_SHARE:
        return None
    what = "nothing new is started" if used >= limit else "nothing new is started from 100 % on"
    return (
        f"the state takes {100 * used // limit} % of max_state_size ({used:,} of {limit:,} bytes): {what}; "
        "pwf state prune --before 7d removes old runs"
    )
