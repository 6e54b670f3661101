"""A new file in a folder that others may write, too: made in a folder of our own, and named when it is finished.

Promises: nobody but the user reads or writes it before it has its name; what gets the name is what was written, and it
never replaces anything; nothing is removed that was not made here. What a crash leaves is a folder `.pwf-new-…` beside
the target. Blocking calls.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

import apsw

from pwf.errors import Conflict, InvalidArgument

NAME = "new.db"
PREFIX = ".pwf-new-"
#: What SQLite takes for a part of the database whose name it begins with.
SIDE_FILES = ("-wal", "-shm", "-journal")


class NewFile:
    """Use it as a context manager; then `open` it as a database, and `finish` it.

    Entering raises `OSError`; where a method finds what it has not made, it raises `Conflict`.
    """

    def __init__(self, target: Path) -> None:
        self._target = target

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            self._parent = _open_folder(self._target.parent)
            undo.callback(os.close, self._parent)
            self._folder_name = PREFIX + secrets.token_hex(8)
            os.mkdir(self._folder_name, 0o700, dir_fd=self._parent)
            undo.callback(self._remove_folder)
            # From here on by its descriptor: under its name somebody else's may stand by now.
            self._folder = _open_folder(self._folder_name, dir_fd=self._parent)
            undo.callback(os.close, self._folder)
            facts = os.fstat(self._folder)
            if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
                raise self._disturbed()
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(NAME, flags, 0o600, dir_fd=self._folder)
            undo.callback(os.close, self._file)
            undo.callback(self._remove_file)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def open(self) -> apsw.Connection:
        """A connection to the empty file. It makes no files beside it."""
        before = self._holders()
        connection = apsw.Connection(
            str(self._target.parent / self._folder_name / NAME), flags=apsw.SQLITE_OPEN_READWRITE
        )
        if self._holders() != before + 1:  # SQLite opens by name: another file than ours must get nothing
            connection.close()
            raise self._disturbed()
        connection.pragma("journal_mode", "memory")
        return connection

    def finish(self) -> int:
        """Make what was written durable, and give it its name; its size. `FileExistsError` when the name is taken."""
        os.fsync(self._file)
        try:
            os.link(NAME, self._target.name, src_dir_fd=self._folder, dst_dir_fd=self._parent)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            self._rename()  # a file system without hard links
        os.fsync(self._parent)
        return os.fstat(self._file).st_size

    def _rename(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(
            os.open(self._target.name, flags, 0o600, dir_fd=self._parent)
        )  # the name is ours from here on
        os.rename(NAME, self._target.name, src_dir_fd=self._folder, dst_dir_fd=self._parent)

    def _holders(self) -> int:
        """How many descriptors of this process are open on the file."""
        ours, found = os.fstat(self._file), 0
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):  # that of the listing itself
                found += os.path.samestat(os.fstat(int(name)), ours)
        return found

    def _disturbed(self) -> Conflict:
        return Conflict(
            f"somebody else changes what is made in {self._target.parent}", hint="name a folder of your own"
        )

    def _remove_file(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(NAME, dir_fd=self._folder)

    def _remove_folder(self) -> None:
        with contextlib.suppress(OSError):  # gone, or no longer ours
            os.rmdir(self._folder_name, dir_fd=self._parent)


def refuse_name(database: Path, target: Path) -> None:
    """Raise `InvalidArgument` or `Conflict` for a name under which no new database can be made."""
    if "\0" in str(target):
        raise InvalidArgument("the name has a NUL in it", hint="name a file without one")
    if not target.is_absolute():
        raise InvalidArgument(f"{target} is not an absolute path")
    try:
        if not target.parent.is_dir():
            raise InvalidArgument(f"there is no folder {target.parent}", hint=f"mkdir -p {target.parent}")
        _refuse_taken(database, target)
    except OSError as error:
        raise InvalidArgument(
            f"{target} can not be looked at: {error.strerror}", hint="name another file"
        ) from error


def _refuse_taken(database: Path, target: Path) -> None:
    if target.is_dir():
        raise Conflict(f"{target} is a folder", hint=f"name a new file in it: {target / 'pwf-backup.db'}")
    if os.path.lexists(target):
        raise Conflict(f"{target} exists", hint="name a new file; a backup never replaces one")
    for end in SIDE_FILES:
        if os.path.lexists(f"{target}{end}"):
            raise Conflict(
                f"{target}{end} exists: SQLite would take it for a part of the backup",
                hint="name another file",
            )
    own = target.name.casefold().startswith(database.name.casefold())
    if own and os.path.samefile(target.parent, database.parent):
        raise Conflict(
            f"{target} is a name that belongs to the database itself", hint="name a file in another folder"
        )


def _open_folder(path: Path | str, *, dir_fd: int | None = None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if dir_fd is None else os.O_NOFOLLOW)
    return os.open(path, flags, dir_fd=dir_fd)
