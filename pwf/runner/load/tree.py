"""Which files are the project's own, and so are pinned with a run.

Owns the one rule: a file under the project's root or beside the workflow's file,
outside virtual environments, site-packages and hidden folders (`.pwf` excepted). Python's own library and
pwf itself are never part of a project, wherever they stand (a project may be the folder that pwf is
developed in).
"""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass, field

import pwf.protocol as _protocol

PWF_FOLDER = os.path.dirname(os.path.dirname(os.path.realpath(_protocol.__file__ or "")))
BUILTIN_FOLDER = os.path.join(PWF_FOLDER, "builtin_workflows")
INSTALLED = frozenset({"site-packages", "dist-packages"})


@functools.cache
def library_folders() -> tuple[str, ...]:
    """Python's standard library, as real paths.

    Not asked of `sysconfig`: it imports a module for its first answer, so a finder that asks this would itself be
    asked for that module (from Python 3.13 on, `sysconfig` then fails).
    """
    standard = os.path.dirname(os.__file__)
    platform = os.path.join(sys.exec_prefix, sys.platlibdir, os.path.basename(standard))
    return tuple(sorted({os.path.realpath(standard), os.path.realpath(platform)}))


@dataclass(frozen=True)
class ProjectTree:
    """A project: `root` and `beside`, the folder of the workflow's file (which may lie outside the root)."""

    root: str
    beside: str
    included: list[str] = field(
        default_factory=list, compare=False
    )  # folders of included files that lie elsewhere
    _folders: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def places(self) -> tuple[str, ...]:
        """Where a top-level name is looked for, in order, before installed packages."""
        return tuple(dict.fromkeys((self.beside, *self.included, self.root)))

    def stand_beside(self, folder: str) -> None:
        """A file of this folder is included: its own modules are looked for beside it, too."""
        if folder not in self.places and folder not in (PWF_FOLDER, BUILTIN_FOLDER):
            self.included.append(folder)
            self._folders.clear()

    def holds(self, path: str) -> bool:
        """Whether this file belongs to the project, by its path as it is written (links are not followed)."""
        return self.holds_folder(os.path.dirname(path))

    def holds_folder(self, folder: str) -> bool:
        """Whether files that stand in this folder belong to the project."""
        known = self._folders.get(folder)
        if known is None:
            known = self._folders[folder] = self._decide(folder)
        return known

    def _decide(self, folder: str) -> bool:
        if any(_within(folder, library) is not None for library in library_folders()):
            return False
        if _within(folder, PWF_FOLDER) is not None and _within(self.beside, PWF_FOLDER) is None:
            return False
        inner = ((place, _within(folder, place)) for place in self.places)
        return any(below is not None and _is_open(place, below) for place, below in inner)


def _is_open(place: str, inner: str) -> bool:
    """Whether no folder on the way from the place down is hidden, installed or a virtual environment."""
    at = place
    for part in inner.split(os.sep) if inner else ():
        if part in INSTALLED or (part.startswith(".") and part != ".pwf"):
            return False
        at = os.path.join(at, part)
        if os.path.exists(os.path.join(at, "pyvenv.cfg")):
            return False
    return True


def _within(path: str, folder: str) -> str | None:
    """The part of `path` below `folder` ('' for the folder itself), or None when it is elsewhere."""
    if path == folder:
        return ""
    prefix = folder if folder.endswith(os.sep) else folder + os.sep
    return path[len(prefix) :] if path.startswith(prefix) else None


def is_library(name: str) -> bool:
    """Whether a top-level name is of Python's standard library or pwf, which no project can replace."""
    return name in sys.stdlib_module_names or name in sys.builtin_module_names or name == "pwf"
