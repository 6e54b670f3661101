"""The folder of what steps print: one of this home's life, from which goes what belongs to no run any more.

Owns the file `.home` in it, which says whose it is. Promises: what another life has left there (the home was restored,
copied, put back) is never shown as a run's; no link is followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import trio

OWNER = ".home"
BATCH_MAX = 500


def prepare_output(folder: Path, home_id: str) -> None:
    """Make the folder for this life of the home, and put aside what another one left. Raises `OSError`."""
    if not folder.is_symlink() and _owner(folder) == home_id:
        return
    with contextlib.suppress(FileNotFoundError):
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink()
        else:
            folder.rename(folder.with_name(f"{folder.name}.gone-{os.getpid()}-{folder.stat().st_mtime_ns}"))
    folder.mkdir(mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(folder / OWNER, flags, 0o600), "w", encoding="ascii") as file:
        file.write(home_id)


def _owner(folder: Path) -> str:
    try:
        return (folder / OWNER).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


async def run_folders(folder: Path) -> list[tuple[str, ...]]:
    """The names of the runs that have a folder, in batches."""
    names = await trio.to_thread.run_sync(_names, folder)
    return [tuple(names[start : start + BATCH_MAX]) for start in range(0, len(names), BATCH_MAX)]


async def remove(folder: Path, names: Iterable[str]) -> None:
    """Remove what these runs have printed. What can't be removed now is found again by the next look."""
    await trio.to_thread.run_sync(_remove, [folder / name for name in names])


async def remove_put_aside(folder: Path) -> None:
    """Remove what `prepare_output` has put aside."""

    def look() -> None:
        _remove([path for path in folder.parent.iterdir() if path.name.startswith(f"{folder.name}.gone-")])

    with contextlib.suppress(OSError):
        await trio.to_thread.run_sync(look)


def _names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return []


def _remove(paths: list[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                shutil.rmtree(path)
