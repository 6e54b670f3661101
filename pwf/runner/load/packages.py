"""Which installed distributions a workflow's code uses: recorded, and reported when they differ.

`importlib.metadata.packages_distributions()` reads and parses every RECORD of the environment, which takes
a second where many packages are installed. Nearly always the distribution has the module's name; only for
the others are the RECORDs searched, as bytes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import importlib.metadata


def distributions_of(names: Iterable[str]) -> dict[str, str]:
    """{distribution: version} of the installed ones that provide these top-level modules."""
    import importlib.metadata  # megabytes, for some resolvers only: a fork of the zygote would map them each time

    found: dict[str, str] = {}
    rest: set[str] = set()
    for name in names:
        distribution = _by_name(name)
        if distribution is None:
            rest.add(name)
        else:
            found[distribution[0]] = distribution[1]
    for info in _info_folders() if rest else ():
        provided = _provided(info, rest)
        if provided:
            rest -= provided
            distribution = _read(importlib.metadata.Distribution.at(info))
            if distribution is not None:
                found[distribution[0]] = distribution[1]
    return dict(sorted(found.items()))


def _by_name(module: str) -> tuple[str, str] | None:
    import importlib.metadata

    name = "pwf-workflows" if module == "pwf" else module
    try:
        distribution = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    return _read(distribution)


def _read(distribution: importlib.metadata.Distribution) -> tuple[str, str] | None:
    name, version = distribution.metadata["Name"], distribution.metadata["Version"]
    if not name or not version:
        return None
    return re.sub(r"[-_.]+", "-", name).lower(), version


def _info_folders() -> Iterator[str]:
    for folder in dict.fromkeys(map(os.path.realpath, sys.path)):
        try:
            with os.scandir(folder) as entries:
                yield from sorted(
                    entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))
                )
        except OSError:
            continue


def _provided(info: str, names: set[str]) -> set[str]:
    """Those of the names that this distribution installs."""
    found = set()
    text = b"\n".join(_bytes_of(os.path.join(info, name)) for name in ("RECORD", "top_level.txt"))
    for name in names:
        starts = (
            b"\n" + os.fsencode(name) + end for end in (b"/", b".py,", b".so,", b".cpython-", b".abi3", b"\n")
        )
        if any(start in b"\n" + text + b"\n" for start in starts):
            found.add(name)
    return found


def _bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
