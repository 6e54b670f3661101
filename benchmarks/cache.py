"""The cache folder: databases that take long to fill, and environments. Never in the repository.

A filled database is kept under the digest of the schema and of the code that filled it, so that it is made again
when either changes. What stands in the cache is whole: it is made beside its place and renamed.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks import fill
from pwf.store import migrate


def cache_folder() -> Path:
    """`PWF_BENCH_CACHE`, else `pwf-bench` in the user's cache folder. Made when it is missing."""
    override = os.environ.get("PWF_BENCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(override) if override else Path(base) / "pwf-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def filled_database(name: str, make: Callable[[Path], None]) -> Path:
    """The database that `make(path)` makes, from the cache where it is known. Copy it; do not open it there."""
    folder = cache_folder()
    place = folder / f"{name}-{_digest(make)}.db"
    if not place.exists():
        for old in folder.glob(f"{name}-*"):
            old.unlink()
        unfinished = folder / f"{name}-unfinished.{os.getpid()}"
        try:
            make(unfinished)
            unfinished.rename(place)
        finally:
            for left in folder.glob(f"{unfinished.name}*"):
                left.unlink()
    return place


def put(database: Path, home: Path) -> Path:
    """Copy a filled database into a home that no daemon serves; its path there.

    The copy is on the disk when this returns: else what is measured next would wait for the writing of it.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = home / "pwf.db"
    shutil.copyfile(database, place)
    place.chmod(0o600)
    with place.open("rb+") as copy:
        os.fsync(copy)
    return place


def _digest(make: Callable[[Path], None]) -> str:
    found = hashlib.sha256(str(migrate.expected_schema()).encode())
    for part in (fill.__file__, inspect.getsourcefile(make)):
        assert part is not None
        found.update(Path(part).read_bytes())
    return found.hexdigest()[:16]
