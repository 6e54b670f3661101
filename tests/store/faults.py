"""A file system for SQLite that fails on demand: disk full, I/O errors, at a write or at a sync of the WAL."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable

import apsw

_numbers = itertools.count()


class FaultyDisk:
    """Registers a VFS under `name`. `fail` is asked at every write and sync, and raises what should happen."""

    def __init__(self) -> None:
        self.name = f"faulty-{next(_numbers)}"
        self.fail: Callable[[str, str], None] = lambda act, file: None
        self.last_errno = 0
        self._vfs = _Vfs(self)

    def full(self, *, times: int | None = None, after: int = 0) -> None:
        """Writes to the WAL find no space: the next `times` ones (None: all), after `after` good ones."""
        self._arm(lambda: apsw.FullError("no space"), "write", times, after)

    def broken_sync(self, *, times: int | None = 1) -> None:
        """Syncs of the WAL fail: at the COMMIT, when everything is written."""
        self._arm(lambda: apsw.IOError("sync failed"), "sync", times, 0)

    def unsynced_for_lack_of_space(self) -> None:
        """Syncs of the WAL fail, since the file system finds only then that there is no room."""

        def make() -> Exception:
            error = apsw.IOError("no space to sync")
            error.extendedresult = apsw.SQLITE_IOERR_FSYNC
            return error

        self._arm(make, "sync", 1, 0)
        self.last_errno = errno.ENOSPC

    def broken_write(self, *, times: int | None = None, after: int = 0) -> None:
        """Writes to the WAL fail."""
        self._arm(lambda: apsw.IOError("write failed"), "write", times, after)

    def heal(self) -> None:
        """No more faults."""
        self.fail = lambda act, file: None

    def _arm(self, make: Callable[[], Exception], what: str, times: int | None, after: int) -> None:
        counter = itertools.count()

        def fail(act: str, file: str) -> None:
            if act == what and file.endswith("-wal"):
                number = next(counter)
                if number >= after and (times is None or number < after + times):
                    raise make()

        self.fail = fail


class _Vfs(apsw.VFS):
    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk
        super().__init__(disk.name, "")

    def xOpen(self, name, flags):
        return _File(self._disk, name, flags)

    def xGetLastError(self):
        return self._disk.last_errno, ""

    def excepthook(self, kind, error, trace):
        """The fault is ours; apsw would print it."""


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name, flags) -> None:
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__("", name, flags)

    def excepthook(self, kind, error, trace):
        """The fault is ours; apsw would print it."""

    def xWrite(self, data, offset):
        self._disk.fail("write", self._name)
        super().xWrite(data, offset)

    def xSync(self, flags):
        self._disk.fail("sync", self._name)
        super().xSync(flags)
