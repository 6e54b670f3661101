"""Which files outside the project the code of this process was loaded from, and as they were then.

A template keeps what it has loaded, and a resolver's answer depends on it. So both are of use only while these files
are as they were: those of a package that is installed in place, say, whose text somebody edits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator

from pwf.runner.load.tree import INSTALLED, PWF_FOLDER, ProjectTree, library_folders
from pwf.watch import Mark, mark_as_of


def loaded_files(before: Collection[str], tree: ProjectTree, since_ns: int) -> dict[str, Mark]:
    """The files of the modules that are loaded and were not `before`, a set of names, with their marks.

    `since_ns`: when loading began, by the wall clock. A file that was written since may have been read before that: its
    mark agrees with nothing. Python's own library and the project, whose text is recorded, are left out.
    """
    found: dict[str, Mark] = {}
    for path in _origins(before):
        if not tree.holds(path) and not _is_of_python(path):
            kept = mark_as_of(path, since_ns)
            if kept is not None:
                found[path] = kept
    return found


def is_installed(path: str) -> bool:
    """Whether the file stands where packages are installed, and not in place."""
    return not INSTALLED.isdisjoint(path.split(os.sep))


def _origins(before: Collection[str]) -> Iterator[str]:
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name not in before and spec is not None and spec.has_location and isinstance(spec.origin, str):
            yield spec.origin


def _is_of_python(path: str) -> bool:
    if path.startswith(PWF_FOLDER + os.sep):
        return True
    within = any(path.startswith(folder + os.sep) for folder in library_folders())
    return within and not is_installed(path)
