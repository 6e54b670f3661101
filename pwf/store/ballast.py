"""Space that is kept back for the day the disk is full.

A file of 16 MiB, really allocated, lies beside the database. When SQLite runs out of space the store releases
it, so that cancel, outcomes of running steps, prune and checkpoints still find room; it is built again before
admission resumes. Blocking file calls: only the store's writer thread uses this.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pwf.errors import HomeRefused
from pwf.ownership import check_own, open_own

BALLAST_BYTES = 16 * 1024 * 1024
#: Free space that must remain beside a rebuilt ballast, else the next commit would need it at once.
MARGIN_BYTES = 4 * 1024 * 1024

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class Ballast:
    """The file at `path`."""

    def __init__(self, path: Path, size: int = BALLAST_BYTES) -> None:
        self._path = path
        self._size = size

    @property
    def present(self) -> bool:
        """Whether the space is kept back now."""
        try:
            return check_own(self._path) and self._path.lstat().st_size >= self._size
        except (OSError, HomeRefused):
            return False

    def release(self) -> bool:
        """Give the space to whoever needs it; False when there was none to give."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def build(self) -> bool:
        """Keep the space back; False when the disk has too little of it. Other errors are `OSError`."""
        if self.present:
            return True
        free = os.statvfs(self._path.parent)
        if free.f_bavail * free.f_frsize < self._size + MARGIN_BYTES:
            return False
        # Complete or absent: a half-built file must not count as ballast after a crash.
        unfinished = self._path.with_name(self._path.name + ".new")
        try:
            self._allocate(unfinished)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            if error.errno in OUT_OF_SPACE:
                return False
            raise
        unfinished.replace(self._path)
        return True

    def _allocate(self, path: Path) -> None:
        path.unlink(missing_ok=True)  # a leftover, or a link that leads to somebody's file
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            if _fallocated(descriptor, self._size):
                return
            # A hole would hold nothing back: write the bytes, which no file system can compress.
            block = os.urandom(1024 * 1024)
            for offset in range(0, self._size, len(block)):
                os.pwrite(descriptor, block[: self._size - offset], offset)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _fallocated(descriptor: int, size: int) -> bool:
    """Whether the file system could do it in one call; macOS has no such call."""
    if not hasattr(os, "posix_fallocate"):
        return False
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS):
            return False
        raise
    return True
