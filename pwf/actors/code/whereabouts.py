"""Which project, file and interpreter a start means, looked up afresh only when a folder on the way has changed.

Owns a memory that may be lost at any time. Promises: its answer is what `pwf.discovery` would give now. What that
looks at are names in folders, so the marks of the folders on the way stand for it: a name comes or goes, or a
folder is moved, and a mark differs. Must never read a project's files.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pwf.actors.code.trust import looked_at, refuse_strangers
from pwf.discovery import (
    BUILTIN_WORKFLOWS,
    Found,
    Sort,
    choose_interpreter,
    find_manager_file,
    find_workflow_file,
    project_of,
)
from pwf.ownership import on_way
from pwf.protocol.origin import Origin
from pwf.watch import Mark, Watched, mark_to_keep_of

KEPT_MAX = 256


class Where(NamedTuple):
    """The file of a workflow or a manager, with the project that it acts for and the Python that the project uses."""

    found: Found
    interpreter: str


class Whereabouts:
    """Handle; it has no task of its own."""

    def __init__(self, config: Path, interpreter: str | None) -> None:
        self._config = config
        self._config_folder = config.parent
        self._interpreter = interpreter
        self._kept: OrderedDict[tuple[Sort, str, str, str], tuple[Watched, Where]] = OrderedDict()

    def find(
        self, workflow: str, origin: Origin, asked_ns: int | None = None, sort: Sort = "workflows"
    ) -> Where:
        """Raises `NotFound`, `Untrusted` or `EnvironmentMissing`. Blocks on some `stat`. `asked_ns`: `Watched.hold`."""
        key = (sort, workflow, origin.cwd, origin.python)
        kept = self._kept.get(key)
        if kept is not None and kept[0].hold(asked_ns):
            return kept[1]
        self._kept.pop(key, None)
        where = self._look(workflow, origin, sort)
        marks = _marks(self._on_the_way(workflow, where, origin, sort))
        refuse_strangers(where.found, where.interpreter, self._config)
        if self._look(workflow, origin, sort) == where:  # so it still was when the marks had been taken
            self._kept[key] = (Watched(marks), where)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return where

    def _look(self, workflow: str, origin: Origin, sort: Sort) -> Where:
        find = find_workflow_file if sort == "workflows" else find_manager_file
        return self._choose(find(workflow, Path(origin.cwd), self._config_folder), origin)

    def project_of(self, workflow: str, origin: Origin) -> Path:
        """The project of which somebody at `origin` speaks, whether or not there is such a workflow."""
        return project_of(workflow, Path(origin.cwd), self._config_folder)

    def chosen(self, found: Found, origin: Origin) -> Where:
        """The same for a file that is known, looked up now. Raises `Untrusted` or `EnvironmentMissing`."""
        where = self._choose(found, origin)
        refuse_strangers(found, where.interpreter, self._config)
        return where

    def _choose(self, found: Found, origin: Origin) -> Where:
        return Where(found, choose_interpreter(found.root, self._interpreter, origin.python))

    def _on_the_way(self, workflow: str, where: Where, origin: Origin, sort: Sort) -> Iterator[str]:
        """Every folder in which a name was looked for, and what was found.

        Also each name that may be a link: what it leads to comes or goes in another folder.
        """
        root = str(where.found.root)
        for asked in (origin.cwd, str(where.found.path.parent)):
            yield from _with_parents(asked)  # by its name: a link in it may come to lead elsewhere
            for folder in _with_parents(os.path.realpath(asked)):
                yield folder
                names = (os.path.join(folder, name) for name in (".pwf", ".git"))
                yield from filter(os.path.islink, names)  # of others it only counts that they are there
        for folder in (os.path.join(root, ".pwf"), str(self._config_folder)):
            yield from (folder, os.path.join(folder, sort))
            yield os.path.join(folder, sort, f"{workflow}.py")
        for _, looked in looked_at(where.found, where.interpreter):
            with contextlib.suppress(OSError):  # it may be gone by now
                yield from (step for step, _ in on_way(looked))
        yield str(self._config)  # it may trust the folder
        yield str(BUILTIN_WORKFLOWS)
        yield str(where.found.path)
        yield where.interpreter
        venv = os.path.join(root, ".venv")
        yield from (venv, os.path.join(venv, "bin"), os.path.join(venv, "bin", "python"))
        for library in ("lib", "lib64"):
            yield os.path.join(venv, library)
            for python in glob.glob(os.path.join(glob.escape(venv), library, "python3*")):
                packages = os.path.join(python, "site-packages")
                package = os.path.join(packages, "pwf")
                yield from (python, packages, package, os.path.join(package, "__init__.py"))


def _with_parents(folder: str) -> Iterator[str]:
    while True:
        yield folder
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _marks(paths: Iterator[str]) -> dict[str, Mark | None]:
    marks: dict[str, Mark | None] = {}
    for path in paths:  # some are named more than once
        if path not in marks:
            marks[path] = mark_to_keep_of(path)
    # A name that is absent in a folder which is itself watched, or absent there in turn, needs no look of its own.
    return {
        path: kept
        for path, kept in marks.items()
        if kept is not None or os.path.lexists(path) or os.path.dirname(path) not in marks
    }
