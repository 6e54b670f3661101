"""The file of a secret, as pwf wants it: for its owner alone, in a folder for the owner alone."""

from __future__ import annotations

from pathlib import Path


def keep_secret(path: Path, value: str, mode: int = 0o600) -> None:
    """Write it."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(value)
    path.chmod(mode)
