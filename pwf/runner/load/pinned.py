"""Loads a workflow from recorded bytes alone, whatever stands in the project's files meanwhile.

A run executes the code it started with, to its end. So the finder here answers for every project module
from the bundle, also for imports inside functions that are reached days later, and a project module that
was not recorded is refused with what to do, rather than taken from today's files. Installed packages are
Python's own business.

Runs once in a process that serves one bundle (a template or a fresh runner), and changes that process for
good.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from pwf.errors import LoadFailed
from pwf.protocol.spawn import PinnedSource, SourceBundle
from pwf.runner.load.faults import load_fault
from pwf.runner.load.includes import PinnedIncludes
from pwf.runner.load.loading import (
    RESERVED,
    SourceLoader,
    execute_root,
    make_way,
    namespace_spec,
    prepare_process,
    project_distributions,
    spec_of,
    standing_in,
)
from pwf.runner.load.snapshot import ask_others, folders_of, is_namespace, project_path
from pwf.runner.load.tree import ProjectTree, is_library
from pwf.workflow.included import included_from
from pwf.workflow.load import Defined, find_definition


def load_bundle(bundle: SourceBundle) -> Defined:
    """Execute exactly the bundle's bytes and return its workflow or resource manager.

    Raises `LoadFailed` or `GraphError`, with file and line and what to do. Leaves the working folder as it
    was.
    """
    root, tree = _root_of(bundle), tree_of(bundle)
    finder = PinnedFinder(tree, bundle.sources, root.path)
    finder.install()
    includes = PinnedIncludes(bundle.sources, finder.texts, tree)
    with standing_in(bundle.root, root.path), included_from(includes):
        try:
            module = execute_root(root.path, root.text, finder.texts)
            return find_definition(vars(module))
        except BaseException as error:  # user code: SystemExit included
            fault = load_fault(error, root.path, tree)
            raise fault.exception() from error


def tree_of(bundle: SourceBundle) -> ProjectTree:
    """The bundle's project."""
    return ProjectTree(bundle.root, os.path.dirname(_root_of(bundle).path))


def _root_of(bundle: SourceBundle) -> PinnedSource:
    for source in bundle.sources:
        if source.kind == "root":
            return source
    raise LoadFailed(f"the definition {bundle.definition_id} has no root file")


class PinnedFinder:
    """Answers for project modules from the recorded bytes, and refuses those that were not recorded."""

    def __init__(self, tree: ProjectTree, sources: Sequence[PinnedSource], root_path: str) -> None:
        self.tree = tree
        self.root_path = root_path
        self.texts = {source.path: source.text for source in sources}
        self.modules: dict[str, PinnedSource] = {}
        self.namespaces: dict[str, list[str]] = {}
        for source in (one for one in sources if one.kind == "module"):
            for name in source.module.split():
                self.modules.setdefault(name, source)
        for name, source in self.modules.items():
            self._add_namespaces(name, source.path)

    def install(self) -> None:
        """Become the process's first finder, for modules and for listings of the project's folders."""
        prepare_process(self.tree)
        SourceLoader.all_recorded = True
        make_way({name.partition(".")[0] for name in self.modules})
        sys.meta_path.insert(0, self)
        sys.path_hooks.insert(0, self._list_folder)
        for folder in list(sys.path_importer_cache):
            if self.tree.holds_folder(folder):
                del sys.path_importer_cache[folder]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's question: where is this module?"""
        top = fullname.partition(".")[0]
        if is_library(top) or top in RESERVED:
            return None
        source = self.modules.get(fullname)
        if source is not None:
            folder = os.path.dirname(source.path)
            locations = [folder] if _is_init(source.path) else None
            return spec_of(fullname, source.path, source.text, self.texts, locations)
        installed = self._installed(fullname, path)
        if fullname in self.namespaces and (installed is None or is_namespace(installed)):
            further = [] if installed is None else folders_of(installed) or []
            here = self.namespaces[fullname]
            return namespace_spec(fullname, here + [at for at in further if at not in here])
        if installed is None:
            self._refuse_live(fullname, path)
        return installed

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """The question of `importlib.metadata`: which packages does this finder know?"""
        return project_distributions(self.tree, context)

    def _installed(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Where the installed packages have it. A project's file, found on any way, is refused."""
        folders = list(sys.path if path is None else path)
        spec = PathFinder.find_spec(name, [at for at in folders if not self.tree.holds_folder(at)])
        spec = spec or ask_others(self, name, path)
        if spec is None:
            return None
        found = project_path(self.tree, spec)
        if found is not None:
            raise self._refusal(name, found)
        if is_namespace(spec):
            portions = [at for at in folders_of(spec) or () if not self.tree.holds_folder(at)]
            return namespace_spec(name, portions) if portions else None
        return spec

    def _refuse_live(self, name: str, path: Sequence[str] | None) -> None:
        """Tell a project module that exists, but was not recorded, from one that does not exist."""
        folders = [*self.tree.places, *sys.path] if path is None else list(path)
        tail = name.rpartition(".")[2]
        for folder in folders:
            if self.tree.holds_folder(folder):
                at = os.path.join(folder, tail)
                for found in (os.path.join(at, "__init__.py"), at + ".py", at):
                    if found != self.root_path and os.path.exists(found):
                        raise self._refusal(name, found)

    def _refusal(self, name: str, path: str) -> ModuleNotFoundError:
        return ModuleNotFoundError(
            f"the project's module {name!r} ({path}) was not recorded when this run started, so it is not "
            f"used; import it at the top of the workflow's file ({self.root_path}), and later runs have it",
            name=name,
            path=path,
        )

    def _add_namespaces(self, name: str, path: str) -> None:
        """Note the packages without `__init__` above a recorded module, with the folders they stand in."""
        folder = os.path.dirname(os.path.dirname(path) if _is_init(path) else path)
        while "." in name:
            name = name.rpartition(".")[0]
            if name not in self.modules:
                known = self.namespaces.setdefault(name, [])
                if folder not in known:
                    known.append(folder)
            folder = os.path.dirname(folder)

    def _list_folder(self, folder: str) -> PinnedFolder:
        """A path hook: what the project's folders hold is what was recorded."""
        if not self.tree.holds_folder(folder):
            raise ImportError(f"{folder} is no folder of the project", path=folder)
        return PinnedFolder(self, folder)


class PinnedFolder:
    """One folder of the project, for `pkgutil.iter_modules`, and where it stands on `sys.path` itself."""

    def __init__(self, finder: PinnedFinder, folder: str) -> None:
        self._finder = finder
        self._folder = folder

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """Nothing: the finder of the whole process answers first."""
        return None

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """The recorded modules that stand in the folder: (name, whether it is a package)."""
        found = {}
        for source in self._finder.modules.values():
            package = _is_init(source.path)
            at = os.path.dirname(source.path) if package else source.path
            if os.path.dirname(at) == self._folder:
                found[os.path.basename(at).partition(".")[0]] = package
        for name, package in sorted(found.items()):
            yield prefix + name, package


def _is_init(path: str) -> bool:
    return os.path.basename(path).partition(".")[0] == "__init__"
