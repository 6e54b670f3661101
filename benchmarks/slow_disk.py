"""`python slow_disk.py MS daemon`: `pwf daemon` on a disk that takes so many milliseconds more for each sync.

It is a file system for SQLite, which stands only in the process that registers it, as the default there: pwf has no
switch for it. A file of its own, that needs nothing else of the benchmarks: a daemon's working folder is not theirs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import apsw

NAME = "slow-disk"
LONG_LIVED = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_WAL


class SlowDisk(apsw.VFS):
    """`sync_s`: what a sync takes more, and may change at any time. `syncs`: how many each thread has made.

    Once there, it must live as long as SQLite's connections to it.
    """

    def __init__(
        self,
        sync_s: float,
        *,
        name: str = NAME,
        default: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self.sync_s = sync_s
        self.syncs: Counter[str] = Counter()
        self.sleep = sleep
        self.below = apsw.vfs_names()[0]  # by its name: we may be the default ourselves from now on
        super().__init__(name, self.below, default)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if flags[0] & LONG_LIVED:
            return _File(self, name, flags)
        return apsw.VFSFile(self.below, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: SlowDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(disk.below, name, flags)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.syncs[threading.current_thread().name] += 1
        self._disk.sleep(self._disk.sync_s)


if __name__ == "__main__":
    from pwf.cli.main import main

    disk = SlowDisk(float(sys.argv[1]) / 1_000, default=True)
    sys.exit(main(sys.argv[2:]))
