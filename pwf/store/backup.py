"""Backups: a copy of the database while it is served, by SQLite's backup API, verified before it has its name.

The copy is one snapshot, whole in one file (no WAL beside it), and says when and of what it was made. It belongs
to no folder: whoever serves it, in whichever place, gets a new home id and holds what was going on (see `home`).
Blocking calls: they run in a thread of their own, on connections of their own, so that neither commands nor reads
wait. What a crash leaves, `new_file` says.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec

from pwf.clock import Now
from pwf.errors import Conflict, DiskFull, StoreBroken, Unavailable
from pwf.ids import Ids
from pwf.protocol.operations import VerifyResult
from pwf.protocol.views import Violation
from pwf.store.database import open_reader
from pwf.store.home import NOWHERE
from pwf.store.new_file import NewFile, refuse_name
from pwf.store.queries import load_queries
from pwf.store.tx import Tx
from pwf.store.verify import verify

Q = load_queries(__file__)

STEP_PAGES = 256  # 1 MiB between two looks at whether the copy is still wanted
STEPS_BETWEEN_CHECKS = 50_000  # of SQLite's machine, while the copy is verified
MARGIN_BYTES = 32 * 1024 * 1024  # a backup must not fill the disk that it shares with the database
DAMAGED = "pwf state verify names what is damaged; check the disk"
DAMAGE = frozenset({"integrity", "foreign_key"})  # rules whose breach makes a file useless


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup says of itself: when it was made (wall time), of which home, in which daemon's life."""

    at_ms: int
    home_id: str
    epoch: int


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """A finished copy. `violations`: rules that its runs break, as those of the database do."""

    path: str
    size: int
    made: Made
    runs: int
    violations: tuple[Violation, ...]


def write_backup(
    database: Path, target: Path, *, now: Now, epoch: int, check_wanted: Callable[[], None]
) -> Backup:
    """Copy `database` to the new file `target`. `check_wanted` is called often, and raises to give up.

    `epoch`: of the daemon that asks. Raises `InvalidArgument` or `Conflict` for a target that can't be, `DiskFull`,
    `Unavailable`, or `StoreBroken` when the copy is damaged; then no file is left.
    """
    refuse_name(database, target)
    _refuse_small_disk(database, target)
    try:
        with NewFile(target) as file:
            copy = file.open()
            try:
                copy_database(database, copy, check_wanted)
                found, made = _finish(copy, now, epoch, check_wanted)
            finally:
                copy.close()
            size = file.finish()
    except FileExistsError as error:
        raise Conflict(f"{target} exists by now", hint="name another file") from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StoreBroken(f"{database} is damaged: {error}", hint=DAMAGED) from error
    except apsw.FullError as error:
        raise DiskFull(f"there is no room for {target}", hint="name a file on another disk") from error
    except (OSError, apsw.Error) as error:
        raise Unavailable(f"{target} can not be written: {error}") from error
    runs = found.checked.get("runs", 0)
    return Backup(path=str(target), size=size, made=made, runs=runs, violations=found.violations)


def copy_database(source: Path, target: apsw.Connection, check_wanted: Callable[[], None]) -> None:
    """Copy one snapshot of a database into an empty one, whole in one file in rollback mode."""
    reader = open_reader(source)
    try:
        # With a snapshot open the copy never begins anew, however much is written meanwhile.
        reader.execute("BEGIN").fetchall()
        reader.execute("SELECT count(*) FROM meta").fetchall()
        with target.backup("main", reader, "main") as copy:
            while not copy.done:
                check_wanted()
                copy.step(STEP_PAGES)
        target.pragma("journal_mode", "delete")
        target.pragma("journal_mode", "memory")
        target.pragma("synchronous", "full")
    finally:
        reader.close()


def read_made(tx: Tx) -> Made | None:
    """What a database says about the backup that it is, or was restored from."""
    row = tx.one(Q.fact, {"key": "backup"})
    return None if row is None else msgspec.json.decode(str(row[0]), type=Made)


def epoch_of(tx: Tx) -> int:
    """The last daemon's number; 0 for a database that was never served."""
    row = tx.one(Q.epoch)
    return 0 if row is None else int(row[0])


def newest_event_ms(tx: Tx) -> int:
    """The wall time at which something last happened. Reads the whole history."""
    row = tx.one(Q.newest_event)
    return 0 if row is None else int(row[0])


def plain_tx(connection: apsw.Connection, now: Now) -> Tx:
    """A view of a database that nobody serves."""
    return Tx(connection, now=now, ids=Ids())


def _refuse_small_disk(database: Path, target: Path) -> None:
    needed = database.stat().st_size + MARGIN_BYTES
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise DiskFull(
            f"a backup takes up to {needed:,} bytes, and {target.parent} has {free:,} left",
            hint="name a file on another disk",
        )


def _is_wanted(check_wanted: Callable[[], None]) -> bool:
    try:
        check_wanted()
    except BaseException:  # noqa: BLE001 - raised again by whoever sees the interruption
        return False
    return True


def _finish(
    copy: apsw.Connection, now: Now, epoch: int, check_wanted: Callable[[], None]
) -> tuple[VerifyResult, Made]:
    """Say in the copy what it is, and verify it."""
    copy.set_progress_handler(lambda: not _is_wanted(check_wanted), STEPS_BETWEEN_CHECKS)
    try:
        tx = plain_tx(copy, now)
        home = tx.one(Q.fact, {"key": "home_id"})
        made = Made(at_ms=now.wall_ms, home_id="" if home is None else str(home[0]), epoch=epoch_of(tx))
        tx.all("BEGIN IMMEDIATE")
        tx.run(Q.set_fact, {"key": "backup", "value": msgspec.json.encode(made).decode()})
        tx.run(Q.set_fact, {"key": "home_place", "value": NOWHERE})
        tx.all("COMMIT")
        found = verify(tx, epoch)
    except apsw.InterruptError:
        check_wanted()
        raise
    damage = next((violation for violation in found.violations if violation.rule in DAMAGE), None)
    if damage is not None:
        raise StoreBroken(f"the copy is damaged: {damage.message}", hint=DAMAGED)
    return found, made
