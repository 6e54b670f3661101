"""A home's database without a daemon: a backup restored, an empty one made, a file verified.

Owns the lock while it works, so no daemon can start. Promises: only an empty home is filled; a home that has a
database is left as it is, and what it has that the backup has not is said; nothing is signalled. If it dies, there is
the whole database or none.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from shlex import quote

import msgspec

from pwf import host
from pwf.actors.claim.lock_file import take_if_free
from pwf.clock import Clock, Now, SystemClock
from pwf.errors import Rejected, StoreRefused
from pwf.host.home import prepare_home
from pwf.places import Places, places
from pwf.protocol.lock_record import LockRecord, read_record
from pwf.protocol.operations import VerifyResult
from pwf.protocol.views import Violation
from pwf.store.backup import plain_tx
from pwf.store.database import check_header, open_reader, open_writer
from pwf.store.restore import Checked, Newer, check_backup, compare, require_file, restore_backup
from pwf.store.verify import verify

HOUR_S = 3_600


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was restored. `newer`: what is known of the time after the backup. `going_on`: runs by status."""

    database: str
    runs: int
    made_ms: int | None
    newest_ms: int
    going_on: dict[str, int]
    newer: tuple[str, ...]
    violations: tuple[Violation, ...]


def restore(file: Path, at: Places | None = None, clock: Clock | None = None) -> Restored:
    """Fill the empty home with a backup.

    Raises `StoreRefused` for a file that can't be served, `AlreadyServing`, `HomeRefused`, or `Rejected` when the home
    has a database: its hint says what to move away, its message what would be lost.
    """
    at = places() if at is None else at
    clock = SystemClock(host.boot_id()) if clock is None else clock
    now = clock.now()
    checked = check_backup(file, now)
    prepare_home(at.home)
    lock = take_if_free(at.lock)
    try:
        if at.database.exists():
            raise _occupied(at, file, now)
        restore_backup(file, at.database)
    finally:
        lock.close()
    return Restored(
        database=str(at.database),
        runs=checked.runs,
        made_ms=None if checked.made is None else checked.made.at_ms,
        newest_ms=checked.newest_ms,
        going_on=checked.going_on,
        newer=tuple(_newer(at, checked, now.wall_ms)),
        violations=checked.violations,
    )


def begin_anew(at: Places | None = None) -> Path:
    """Make an empty database in a home that has none, whatever was served there before; its path.

    Raises `Rejected` where there is one, `AlreadyServing`, `HomeRefused` or `StoreRefused`.
    """
    at = places() if at is None else at
    prepare_home(at.home)
    lock = take_if_free(at.lock)
    try:
        if os.path.lexists(at.database):
            raise Rejected(f"{at.home} has a database already", hint=_put_aside(at))
        open_writer(at.database).close()
    finally:
        lock.close()
    return at.database


def verify_file(file: Path) -> VerifyResult:
    """Verify a backup, or a database that no daemon serves. Raises `StoreRefused` where it is no database of ours."""
    require_file(file)
    check_header(file)
    connection = open_reader(file)
    try:
        return verify(plain_tx(connection, SystemClock(host.boot_id()).now()))
    finally:
        connection.close()


def _put_aside(at: Places) -> str:
    aside = quote(f"{at.home}.old")
    return f"to put it aside: mkdir {aside} && mv {quote(str(at.database))}* {aside}/"


def _occupied(at: Places, file: Path, now: Now) -> Rejected:
    try:
        newer = compare(file, at.database, now)
    except StoreRefused as error:  # it may be what the backup is to replace
        newer, lost = Newer(made=0, changed=0, named=(), newest_ms=0), error.message
    else:
        lost = _lost(newer)
    return Rejected(
        f"{at.home} has a database already; {lost}",
        hint=_put_aside(at),
        details=msgspec.to_builtins(newer),
    )


def _lost(newer: Newer) -> str:
    lost = "it has nothing that the backup has not"
    if newer.made or newer.changed:
        more = newer.made + newer.changed - len(newer.named)
        named = ", ".join(newer.named) + (f", and {more:,} more" if more else "")
        runs = "1 run" if newer.made == 1 else f"{newer.made:,} runs"
        lost = (
            f"newer than the backup: {runs} made since, {newer.changed:,} that went on since, "
            f"until {_when(newer.newest_ms)}: {named}"
        )
    return lost


def _newer(at: Places, checked: Checked, now_ms: int) -> list[str]:
    """What may have happened that the backup does not know."""
    made_ms = checked.newest_ms if checked.made is None else checked.made.at_ms
    found = [f"whatever happened after {_when(made_ms)} ({_ago(now_ms - made_ms)}) is not in the backup"]
    record = read_record(at.lock) or LockRecord()
    made = checked.made
    if made is not None and record.home_id == made.home_id and record.epoch > made.epoch:
        found.append(f"this folder was served by {record.epoch - made.epoch} more daemons since")
    last_ms = _modified_ms(at.log)
    if last_ms > made_ms:
        found.append(f"the log goes on until {_when(last_ms)}: pwf logs")
    return found


def _modified_ms(path: Path) -> int:
    try:
        return int(path.stat().st_mtime * 1_000)
    except OSError:
        return 0


def _when(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1_000))


def _ago(ms: int) -> str:
    seconds = max(0, ms) // 1_000
    if seconds < 120:
        return f"{seconds} seconds ago"
    if seconds < 2 * HOUR_S:
        return f"{seconds // 60} minutes ago"
    hours = seconds / HOUR_S
    return f"{hours / 24:.1f} days ago" if hours >= 48 else f"{hours:.1f} hours ago"
