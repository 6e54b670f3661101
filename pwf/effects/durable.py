"""Making sure of the disk: what counts as applied outlives the machine."""

from __future__ import annotations

import os


def sync(path: str | os.PathLike[str]) -> None:
    """Have the bytes of a file, or the names in a folder, on the disk. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
