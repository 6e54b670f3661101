"""What a planted bug is."""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """`tests`: files and folders below tests/."""

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
