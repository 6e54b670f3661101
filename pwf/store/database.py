"""Opening the one database file: whose it is, what is in it, and how SQLite must treat it.

Promises: what is not ours, or from a newer pwf, is refused and left as it was; a new database appears whole
or not at all; the settings that durability rests on are set, then read back, and a mismatch refuses to serve.
Blocking calls: this runs on the thread that owns the connection. The caller holds the home's kernel lock.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from pathlib import Path
from typing import Protocol

import apsw

from pwf.errors import StoreBroken, StoreRefused
from pwf.ownership import check_own
from pwf.protocol.database_file import APPLICATION_ID, HEADER_BYTES, is_ours
from pwf.store.ballast import OUT_OF_SPACE
from pwf.store.migrate import (
    create_schema,
    expected_as_written,
    expected_schema,
    migrate,
    schema_of,
    schema_version,
    written_schema,
)

PAGE_BYTES = 4096
STATEMENTS_CACHED = 1024  # every named query stays prepared; a test holds their number below this
CACHE_KIB = 16 * 1024
BUSY_LIMIT_S = 30.0  # how long a foreign lock is waited for
BUSY_WARN_S = 0.5
PIECE_BYTES = 64 * 1024  # of the WAL, where it is written anew; SQLite's port takes less than 128 KiB
WAL_KEPT_BYTES = (
    16 * 1024 * 1024
)  # to this the WAL file is cut when it starts anew; to grow costs more than to write


class Warn(Protocol):
    """How the store says what a person may want to know: a constant event name, and facts."""

    def __call__(self, event: str, **fields: object) -> None: ...


EMPTY_HINT = "pwf state restore FILE puts a backup in its place; pwf state new begins with an empty one"
_AUTO_VACUUM_INCREMENTAL = 2
_SYNCHRONOUS = {"OFF": 0, "FULL": 2}


def no_warning(event: str, **fields: object) -> None:
    """Where nobody wants to hear."""


def open_writer(
    path: Path,
    *,
    create: bool = True,
    synchronous: str = "FULL",
    vfs: str | None = None,
    warn: Warn = no_warning,
) -> apsw.Connection:
    """Open the database for writing, making or migrating it as needed.

    Raises `StoreRefused` when it can't be served, and `HomeRefused` for a link or another user's file; then the file is
    as it was. `create` False: this folder was served before, and an empty database would hide that its own is gone.
    `synchronous="OFF"` is for simulations, which crash no machine.
    """
    if not check_own(path):
        if not create:
            raise StoreRefused(
                f"{path} is gone, and this folder was served before: no empty database is made in its place",
                hint=_what_was_rescued(path) or EMPTY_HINT,
            )
        _create(path, vfs)
    check_header(path)
    _keep_private(path)
    try:
        connection = apsw.Connection(
            str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs, statementcachesize=STATEMENTS_CACHED
        )
    except apsw.Error as error:
        raise _refusal(path, error) from error
    try:
        _take_over(connection, path, synchronous, warn)
    except apsw.Error as error:
        connection.close()
        raise _refusal(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


class FileGuard:
    """Whether the files that were opened still stand under their names: what is written to others is lost.

    Make it once the database is open. Two looks at the file system; nothing is read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = {path: identity_of_file(path)}

    def rescue_to(self, epoch: int) -> Path:
        """Where the daemon of `epoch` puts what it had, when its database is gone."""
        return self._path.with_name(f"{self._path.name}.rescued-{epoch}")

    def check(self) -> None:
        """Raise `StoreBroken` naming the file that was deleted or replaced."""
        wal = self._path.with_name(self._path.name + "-wal")
        self._seen.setdefault(wal, None)
        for path, seen in self._seen.items():
            now = identity_of_file(path)
            if seen is None:
                self._seen[path] = now  # the log is made by the first write, and then stays as long as we do
            elif now != seen:
                what = "was deleted" if now is None else "was replaced by another file"
                raise StoreBroken(
                    f"{path} {what} while it was served: what is written from now on would be lost",
                    hint=EMPTY_HINT,
                )


def _what_was_rescued(path: Path) -> str | None:
    found = sorted(path.parent.glob(f"{path.name}.rescued-*"), key=lambda file: file.lstat().st_mtime)
    return f"what it had was rescued: pwf state restore {found[-1]}; or pwf state new" if found else None


def identity_of_file(path: Path) -> tuple[int, int] | None:
    """Which file stands there; None: none that can be looked at."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def open_reader(path: Path, *, vfs: str | None = None, waits: bool = True) -> apsw.Connection:
    """A further connection that can't write. The writer has opened the same file before.

    `waits`: while the file is locked for a moment, rather than fail at once.
    """
    try:
        connection = apsw.Connection(
            str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs, statementcachesize=STATEMENTS_CACHED
        )
    except apsw.Error as error:
        raise _refusal(path, error) from error
    try:
        if waits:
            connection.set_busy_handler(BusyWait(no_warning))
        _harden(connection)
        connection.pragma("query_only", True)
    except apsw.Error as error:
        connection.close()
        raise _refusal(path, error) from error
    return connection


def check_header(path: Path) -> None:
    """Read the file's first bytes without SQLite; raises `StoreRefused` for what is not ours or is newer."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        raise StoreRefused(f"{path} can not be read: {error.strerror}") from error
    if not is_ours(header):
        raise StoreRefused(
            f"{path} is not a pwf database", hint="move it away, or set PWF_HOME to another folder"
        )
    _refuse_newer(path, int.from_bytes(header[60:64], "big"))


def read_settings(connection: apsw.Connection) -> dict[str, object]:
    """The settings that durability and safety rest on, as SQLite itself reports them."""
    names = ["journal_mode", "synchronous", "foreign_keys", "auto_vacuum", "application_id", "user_version"]
    names += ["page_size", "trusted_schema", "fullfsync", "checkpoint_fullfsync"]
    return {name: connection.pragma(name) for name in names}


def check_settings(path: Path, found: dict[str, object], *, synchronous: str = "FULL") -> None:
    """Raise `StoreRefused` naming the first setting that is not as it must be."""
    wanted: dict[str, object] = {
        "journal_mode": "wal",
        "synchronous": _SYNCHRONOUS[synchronous],
        "foreign_keys": 1,
        "auto_vacuum": _AUTO_VACUUM_INCREMENTAL,
        "application_id": APPLICATION_ID,
        "user_version": schema_version(),
        "trusted_schema": 0,
    }
    if sys.platform == "darwin":
        wanted |= {"fullfsync": 1, "checkpoint_fullfsync": 1}
    for name, value in wanted.items():
        if found[name] != value:
            raise StoreRefused(
                f"{path}: {name} is {found[name]!r}; pwf serves only with {value!r}",
                hint="move the file away, or restore it from a backup",
            )


class BusyWait:
    """SQLite's busy handler: waits for a foreign lock, says so once, gives up after `limit_s`."""

    def __init__(self, warn: Warn, limit_s: float = BUSY_LIMIT_S) -> None:
        self.waits = True  # False for the moment: what finds a lock fails at once
        self._warn = warn
        self._limit_s = limit_s
        self._started = 0.0
        self._warned = False

    def __call__(self, tries: int) -> bool:
        if not self.waits:
            return False
        now = time.monotonic()
        if tries == 0:
            self._started, self._warned = now, False
        waited = now - self._started
        if waited >= BUSY_WARN_S and not self._warned:
            self._warned = True
            self._warn("store.locked_by_another_process", waited_ms=int(waited * 1000))
        if waited >= self._limit_s:
            return False
        time.sleep(min(0.001 * (tries + 1), 0.025))
        return True


def _take_over(connection: apsw.Connection, path: Path, synchronous: str, warn: Warn) -> None:
    # Until we know that it is ours to serve, closing must not move the WAL into the file.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_handler(BusyWait(warn))
    _refuse_newer(path, int(connection.pragma("user_version")))
    found = connection.pragma("auto_vacuum")
    if found != _AUTO_VACUUM_INCREMENTAL:
        raise StoreRefused(f"{path}: auto_vacuum is {found}; pwf serves only with {_AUTO_VACUUM_INCREMENTAL}")
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    _harden(connection)
    migrate(connection)
    refuse_other_schema(connection, path)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", synchronous)
    connection.pragma("foreign_keys", True)
    connection.pragma("wal_autocheckpoint", 0)  # the writer does it, between batches
    connection.pragma("journal_size_limit", WAL_KEPT_BYTES)
    if sys.platform == "darwin":
        connection.pragma("fullfsync", True)
        connection.pragma("checkpoint_fullfsync", True)
    check_settings(path, read_settings(connection), synchronous=synchronous)
    _write_wal_anew(connection, path)


def _write_wal_anew(connection: apsw.Connection, path: Path) -> None:
    """Write what an earlier daemon left in the WAL once more to its place, before anything goes by it.

    A sync that failed may have left frames that only the page cache has: the kernel shows them, and calls them clean,
    so that no later sync writes them, not even that of a checkpoint. Nobody else adds to the WAL meanwhile. A full disk
    is no reason not to serve: the bytes are those that stand there.
    """
    wal = path.with_name(path.name + "-wal")
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return
    try:
        if wal.exists() and wal.stat().st_size:
            _write_file_anew(wal, connection.open_vfs)
    except (apsw.FullError, apsw.IOError) as error:
        if not (isinstance(error, apsw.FullError) or connection.system_errno in OUT_OF_SPACE):
            raise
    finally:
        connection.execute("ROLLBACK")


def _write_file_anew(path: Path, vfs: str) -> None:
    file = apsw.VFSFile(vfs, str(path), [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0])
    try:
        for offset in range(0, file.xFileSize(), PIECE_BYTES):
            file.xWrite(file.xRead(min(PIECE_BYTES, file.xFileSize() - offset), offset), offset)
        file.xSync(apsw.SQLITE_SYNC_NORMAL)
    finally:
        file.xClose()


def _harden(connection: apsw.Connection) -> None:
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("temp_store", 2)  # in memory: a full disk must not fail a sort
    connection.pragma("trusted_schema", False)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    # A plan must not depend on bound values: beside partial indexes SQLite would prepare a statement again whenever
    # one changes, which made an admission cost twice as much.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _create(path: Path, vfs: str | None) -> None:
    """Make a new database beside its place and put it there whole."""
    for leftover in ("-wal", "-journal"):
        if path.with_name(path.name + leftover).exists():
            # SQLite would play it into the new file.
            raise StoreRefused(
                f"{path} is gone, but {path.name}{leftover} is still there",
                hint=f"put the database back, or move the leftover away; then: {EMPTY_HINT}",
            )
    unfinished = path.with_name(path.name + ".new")
    for name in (unfinished.name, *(unfinished.name + end for end in ("-wal", "-shm", "-journal"))):
        path.with_name(name).unlink(missing_ok=True)
    try:
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _fill(unfinished, vfs)
        put_in_place(unfinished, path)
    except (OSError, apsw.Error) as error:
        raise StoreRefused(
            f"{path} can not be made: {error}", hint="is the disk full or read-only?"
        ) from error


def _fill(path: Path, vfs: str | None) -> None:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    try:
        connection.pragma("page_size", PAGE_BYTES)
        connection.pragma("auto_vacuum", _AUTO_VACUUM_INCREMENTAL)
        connection.execute("BEGIN IMMEDIATE").fetchall()
        connection.pragma("application_id", APPLICATION_ID)
        create_schema(connection)
        connection.execute("COMMIT").fetchall()
        connection.pragma("journal_mode", "wal")
    finally:
        connection.close()


def put_in_place(unfinished: Path, path: Path) -> None:
    """Give a finished file its name, durably. Raises `FileExistsError` when the name is taken."""
    try:
        os.link(unfinished, path)  # unlike a rename, never replaces a database that somebody just made
        unfinished.unlink()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        unfinished.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_private(path: Path) -> None:
    # SQLite gives the WAL and its index the rights of the database file.
    for name in (path.name, path.name + "-wal", path.name + "-shm"):
        file = path.with_name(name)
        try:
            if check_own(file) and stat.S_IMODE(file.stat().st_mode) & 0o177:
                file.chmod(0o600)
        except OSError as error:
            raise StoreRefused(f"the rights of {file} can not be set: {error.strerror}") from error


def _refuse_newer(path: Path, version: int) -> None:
    if version > schema_version():
        raise StoreRefused(
            f"{path} is from a newer pwf: its schema is {version}, and this pwf knows {schema_version()}",
            hint="upgrade pwf (nothing in the file was changed)",
        )


def refuse_other_schema(connection: apsw.Connection, path: Path) -> None:
    """Raise `StoreRefused` for a database that has our schema's number and another form."""
    if written_schema(connection) == expected_as_written():
        return
    found, wanted = schema_of(connection), expected_schema()
    if found == wanted:
        return
    names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    raise StoreRefused(
        f"{path} has schema {schema_version()} in another form (first difference: {names[0]})",
        hint="it is from another pre-release of pwf: move it away, or use that pwf",
    )


def _refusal(path: Path, error: apsw.Error) -> StoreRefused:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreRefused(f"{path} is locked by another process", hint="end the program that has it open")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        hint = f"pwf state verify {path} says more; restore it from a backup (pwf state restore FILE)"
        return StoreRefused(f"{path} is damaged: {error}", hint=hint)
    return StoreRefused(f"{path} can not be opened: {error}", hint="check the disk and the file's rights")
