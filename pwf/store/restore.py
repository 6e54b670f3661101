"""Restoring a backup into an empty home, and what would be lost by it. For a home that no daemon serves.

The caller holds the home's kernel lock. The file is checked before anything is written, and appears under the
database's name whole or not at all; the next daemon gives it a new home id and holds what was going on (`home`).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw
import msgspec

from pwf.clock import Now
from pwf.errors import Rejected, StoreRefused
from pwf.protocol.views import Violation
from pwf.store.backup import DAMAGE, Made, copy_database, newest_event_ms, plain_tx, read_made
from pwf.store.backup import Q as BACKUP
from pwf.store.database import check_header, open_reader, refuse_other_schema
from pwf.store.home import NOWHERE
from pwf.store.migrate import schema_version
from pwf.store.new_file import SIDE_FILES, NewFile
from pwf.store.queries import load_queries
from pwf.store.soundness import UNREADABLE, integrity, shown
from pwf.store.verify import verify

Q = load_queries(__file__)

ANOTHER = "name a file that pwf state backup has written"
NAMED_MAX = 5  # runs that a refusal names


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that can be restored. `made` None: a plain copy of a database. `going_on`: runs by status.

    `newest_ms`: when something last happened in it.
    """

    made: Made | None
    schema: int
    runs: int
    going_on: dict[str, int]
    newest_ms: int
    violations: tuple[Violation, ...]


class Newer(msgspec.Struct, frozen=True, kw_only=True):
    """What a database has that a backup has not: runs made since, and runs that went on since (the first few)."""

    made: int
    changed: int
    named: tuple[str, ...]
    newest_ms: int


def check_backup(file: Path, now: Now) -> Checked:
    """Look through a backup. Raises `StoreRefused` for what can't be served, with the reason."""
    require_file(file)
    try:
        check_header(file)
        connection = open_reader(file)
    except StoreRefused as error:
        # What there is to do with a database in its place is not what there is to do with a backup.
        raise StoreRefused(error.message, hint=error.hint if "newer" in error.message else ANOTHER) from error
    try:
        tx = plain_tx(connection, now)
        schema = int(connection.pragma("user_version"))
        if schema == schema_version():
            refuse_other_schema(connection, file)
            violations = verify(tx, 0).violations
        else:
            violations = tuple(integrity(tx))  # today's rules are about today's tables
        damage = next((violation for violation in violations if violation.rule in DAMAGE), None)
        if damage is not None:
            raise StoreRefused(f"{file} is damaged: {damage.message}", hint="restore another backup")
        return Checked(
            made=read_made(tx),
            schema=schema,
            runs=len(tx.all(Q.revisions)),
            going_on=dict(tx.all(Q.going_on)),
            newest_ms=newest_event_ms(tx),
            violations=violations,
        )
    except (apsw.Error, *UNREADABLE, msgspec.MsgspecError) as error:
        raise StoreRefused(
            f"{file} can not be read: {shown(error)}", hint="restore another backup"
        ) from error
    finally:
        connection.close()


def require_file(file: Path) -> None:
    """Raise `StoreRefused` where there is no plain file of that name."""
    try:
        facts = os.stat(file)
    except (OSError, ValueError) as error:
        why = "" if isinstance(error, FileNotFoundError) else f" ({error})"
        raise StoreRefused(f"there is no file {file}{why}", hint=ANOTHER) from error
    if not stat.S_ISREG(facts.st_mode):
        what = "a folder" if stat.S_ISDIR(facts.st_mode) else "no plain file"
        raise StoreRefused(f"{file} is {what}", hint=ANOTHER)


def compare(file: Path, database: Path, now: Now) -> Newer:
    """What is newer in `database` than in the backup `file`. Raises `StoreRefused` where that can't be read."""
    try:
        return _compare(file, database, now)
    except (apsw.Error, *UNREADABLE) as error:
        raise StoreRefused(f"{database} can not be read: {shown(error)}") from error


def _compare(file: Path, database: Path, now: Now) -> Newer:
    old = _revisions(file, now)
    made = changed = 0
    named: list[str] = []
    for run_id, (revision, _status) in (present := _revisions(database, now)).items():
        if run_id in old and revision <= old[run_id][0]:
            continue
        made, changed = made + (run_id not in old), changed + (run_id in old)
        named.append(run_id)
    shown = tuple(f"{run_id} ({present[run_id][1]})" for run_id in named[-NAMED_MAX:])
    connection = open_reader(database)
    try:
        newest_ms = newest_event_ms(plain_tx(connection, now))
    finally:
        connection.close()
    return Newer(made=made, changed=changed, named=shown, newest_ms=newest_ms)


def restore_backup(file: Path, database: Path) -> None:
    """Put a copy of a checked backup in the place of a database that isn't there."""
    for end in ("", *SIDE_FILES):
        if os.path.lexists(f"{database}{end}"):
            raise Rejected(f"{database}{end} exists", hint="move it away first")
    try:
        with NewFile(database) as new:
            copy = new.open()
            try:
                copy_database(file, copy, lambda: None)
                # A plain copy of a database, too, must not be taken for the one that was served here.
                copy.execute(BACKUP.set_fact, {"key": "home_place", "value": NOWHERE}).fetchall()
            finally:
                copy.close()
            new.finish()
    except (OSError, apsw.Error) as error:
        raise StoreRefused(f"{database} can not be written: {error}", hint="is the disk full?") from error


def _revisions(path: Path, now: Now) -> dict[str, tuple[int, str]]:
    connection = open_reader(path)
    try:
        rows = plain_tx(connection, now).all(Q.revisions)
    finally:
        connection.close()
    return {str(run_id): (int(revision), str(status)) for run_id, revision, status in rows}
