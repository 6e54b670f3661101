"""Which other processes have files open: who keeps a database's log from being cut.

A scan of the process table: call it in a thread. What belongs to other users can't be looked into, and is not found.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Holder(NamedTuple):
    """A process with one of the files open, and the name of its program."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name})"


def holders(files: Iterable[Path], *, besides: Iterable[int] = ()) -> list[Holder]:
    """The processes that have one of the files open, but those `besides` and this one; by pid."""
    paths = {os.path.realpath(file) for file in files}
    left_out = {os.getpid(), *besides}
    found = _by_psutil(paths) if sys.platform == "darwin" else _by_proc(paths)
    return sorted(holder for holder in found if holder.pid not in left_out)


def files_of(database: Path) -> tuple[Path, ...]:
    """The files of an SQLite database."""
    return tuple(database.with_name(database.name + end) for end in ("", "-wal", "-shm"))


def pinned_by(wal_bytes: int, found: list[Holder]) -> str:
    """What to say of a long log, and of the processes that have the database open."""
    who = (
        f"{', '.join(map(str, found))} has the database open"
        if found
        else "somebody reads the database for long"
    )
    return f"the database's log takes {wal_bytes / 1024**2:,.0f} MiB and can't be cut: {who}"


def _by_proc(paths: set[str]) -> list[Holder]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _has_open(f"/proc/{entry}/fd", paths):
            try:
                name = Path(f"/proc/{entry}/comm").read_text(errors="replace").strip()
            except OSError:
                continue  # it has ended
            found.append(Holder(int(entry), name))
    return found


def _has_open(folder: str, paths: set[str]) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:  # it has ended, or is another user's
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") in paths:
                return True
        except OSError:
            continue
    return False


def _by_psutil(paths: set[str]) -> list[Holder]:
    import psutil

    found = []
    for process in psutil.process_iter(["name"]):
        try:
            if any(file.path in paths for file in process.open_files()):
                found.append(Holder(process.pid, process.info["name"] or "?"))
        except psutil.Error:
            continue
    return found
