"""Records what a workflow's file imports: its modules' exact bytes, and each path the answer depends on.

Owns the live finder, which the resolver puts first: it answers in the order standard library, beside the
file, root, installed packages, and hands out project modules from the bytes that it has just recorded, so
that what is recorded is what was executed. Then it follows, without running them, the imports that the
texts name anywhere.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    BuiltinImporter,
    ExtensionFileLoader,
    FrozenImporter,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType
from typing import Any

from pwf.errors import LoadFailed
from pwf.runner.load.imports import Findings, findings
from pwf.runner.load.loading import (
    RESERVED,
    ROOT_MODULE,
    is_extension,
    namespace_spec,
    project_distributions,
    spec_of,
)
from pwf.runner.load.tree import ProjectTree, is_library
from pwf.watch import Mark, mark_of, mark_to_keep, mark_to_keep_of

SOURCE_BYTES_MAX = 16 * 1024 * 1024
SOURCES_MAX = 5_000
DISCOVERED_MAX = 500  # modules that no text names, and that may be meant
WATCHED_MAX = 50_000
_READ_TRIES = 5


@dataclass
class Recorded:
    """One file: its bytes, and the names it is imported by (none for the root file)."""

    path: str
    text: bytes
    names: list[str] = field(default_factory=list)
    package: bool = False


class Snapshot:
    """The growing record of one resolution."""

    def __init__(self, tree: ProjectTree, root_path: str) -> None:
        self.tree = tree
        self.root_path = root_path
        self.modules: dict[str, Recorded] = {}
        self.texts: dict[str, bytes] = {}
        self.watch: dict[str, Mark | None] = {}
        self._bytes = 0

    def read(self, path: str) -> bytes:
        """The file's bytes, read once, and watched. `LoadFailed` when it is no file or there is too much."""
        if path not in self.texts:
            text, kept = read_settled(path, limit=SOURCE_BYTES_MAX)
            self.watch.setdefault(path, kept)
            self._bytes += len(text)
            if self._bytes > SOURCE_BYTES_MAX or len(self.texts) >= SOURCES_MAX:
                raise LoadFailed(
                    f"the workflow's own modules are more than {SOURCES_MAX:,} files or "
                    f"{SOURCE_BYTES_MAX:,} bytes (at {path})",
                    hint="import less from the project, or install the large part as a package",
                )
            self.texts[path] = text
        return self.texts[path]

    def record(self, name: str, path: str, *, package: bool) -> bytes:
        """Record a project module under a name."""
        text = self.read(path)
        kept = self.modules.setdefault(path, Recorded(path, text, package=package))
        if name not in kept.names:
            kept.names.append(name)
        return text

    def probe(self, tail: str, folders: Sequence[str]) -> None:
        """Watch where a module of this name would stand, before it is looked for."""
        for folder in folders:
            if not self.tree.holds_folder(folder):
                continue
            at = os.path.join(folder, tail)
            ends = (".py", *EXTENSION_SUFFIXES, *(f"/__init__{end}" for end in (".py", *EXTENSION_SUFFIXES)))
            for end in ends:
                self.look_at(at + end)
            if not os.path.isdir(at):
                self.look_at(at)

    def look_at(self, path: str) -> None:
        """Watch a path as it is now, present or absent. The first look counts."""
        if path not in self.watch and len(self.watch) < WATCHED_MAX:
            self.watch[path] = mark_to_keep_of(path)


class LiveFinder:
    """Finds modules as they stand now, and records those of the project."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.busy = False  # our own look-ups are not the workflow's reads

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's question: where is this module?"""
        top = fullname.partition(".")[0]
        if is_library(top) or top in RESERVED:
            return None
        with self.quiet():
            return self.locate(fullname, path)

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """The question of `importlib.metadata`: which packages does this finder know?"""
        return project_distributions(self.snapshot.tree, context)

    def locate(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Find a module without running anything; a project module is recorded."""
        folders = [*self.snapshot.tree.places, *sys.path] if path is None else list(path)
        self.snapshot.probe(name.rpartition(".")[2], folders)
        spec = self._search(name, folders, path)
        return None if spec is None else self._adopt(name, spec)

    def _search(self, name: str, folders: list[str], path: Sequence[str] | None) -> ModuleSpec | None:
        spec = find_in(name, folders)
        if spec is not None and spec.origin == self.snapshot.root_path and path is None:
            beside = self.snapshot.tree.beside  # the workflow's own file is not a module beside itself
            spec = find_in(name, [folder for folder in folders if folder != beside])
        return spec if spec is not None else ask_others(self, name, path)

    def _adopt(self, name: str, spec: ModuleSpec) -> ModuleSpec:
        locations = folders_of(spec)
        if is_namespace(spec) and locations is not None:
            if any(self.snapshot.tree.holds_folder(folder) for folder in locations):
                return namespace_spec(name, locations)
            return spec
        path = project_path(self.snapshot.tree, spec)
        if path is None:
            return spec
        if isinstance(spec.loader, SourcelessFileLoader):
            raise ImportError(
                f"{path} is byte code without its source, which can't be pinned", name=name, path=path
            )
        text = self.snapshot.record(name, path, package=locations is not None)
        return spec_of(name, path, text, self.snapshot.texts, locations)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Mark what happens inside as ours."""
        before, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = before


class Closure:
    """Follows the imports that recorded texts name, transitively, without running anything."""

    def __init__(self, finder: LiveFinder) -> None:
        self.finder = finder
        self.found: dict[str, Findings] = {}  # by path
        self.broken: list[str] = []
        self.tops: dict[str, tuple[str, int]] = {}  # top-level names that the texts name, and the first place
        self._locations: dict[str, list[str] | None] = {}

    def follow(self, root_text: bytes, included: Mapping[str, bytes]) -> None:
        """Record everything that can be reached from the root file, what it includes, and the modules so far."""
        snapshot = self.finder.snapshot
        for path, text in {snapshot.root_path: root_text, **included}.items():
            self._read(path, text, ROOT_MODULE, package=False)
        self._follow_named()
        self._discover()

    def _follow_named(self) -> None:
        snapshot = self.finder.snapshot
        while fresh := [module for path, module in snapshot.modules.items() if path not in self.found]:
            for module in fresh:
                self._read(module.path, module.text, module.names[0], package=module.package)

    def _discover(self) -> None:
        """Record what no text names and some may mean: the modules in the packages that such a text names."""
        self._reach_plugins()
        looked: set[str] = set()
        most = len(self.finder.snapshot.modules) + DISCOVERED_MAX
        while packages := self._meant() - looked:
            looked |= packages
            for name in self._modules_in(packages):
                if len(self.finder.snapshot.modules) >= most:
                    self.broken.append(
                        f"more than {DISCOVERED_MAX} modules might be imported by computed names, {name} among them; "
                        "a run has not all of them: import at the top what it needs"
                    )
                    return
                self._reach(name)
            self._follow_named()

    def _meant(self) -> set[str]:
        """The packages of the project in which a text looks for modules by itself, and all packages in them."""
        meant: set[str] = set()
        for path, found in self.found.items():
            if found.discovers:
                module = self.finder.snapshot.modules.get(path)
                own = module.names if module is not None and module.package else []
                named = {name for one in found.modules for name in (one.name,) if self._is_ours(name)}
                narrow = {name for name in named if not any(other.startswith(name + ".") for other in named)}
                meant.update(own, narrow, filter(self._is_ours, found.within))
        inner = (name for name in list(self._locations) if any(name.startswith(one + ".") for one in meant))
        return meant | {name for name in inner if self._is_ours(name)}

    def _is_ours(self, name: str) -> bool:
        """Whether it is a package of the project."""
        return any(map(self.finder.snapshot.tree.holds_folder, self._reach(name) or ()))

    def _modules_in(self, packages: set[str]) -> Iterator[str]:
        """The modules and packages that stand in packages of the project."""
        import pkgutil  # for a few workflows only

        for package in sorted(packages):
            for folder in filter(self.finder.snapshot.tree.holds_folder, self._reach(package) or ()):
                self.finder.snapshot.look_at(folder)
                yield from sorted(f"{package}.{name}" for _, name, _ in pkgutil.iter_modules([folder]))

    def _reach_plugins(self) -> None:
        """Record the modules of the project that are entry points, of itself or of an installed package."""
        if any(found.plugins for found in self.found.values()):
            import importlib.metadata  # as above

            for distribution in importlib.metadata.distributions():
                for point in distribution.entry_points:
                    self._reach(point.module)
            self._follow_named()

    def _read(self, path: str, text: bytes, name: str, *, package: bool) -> None:
        if is_extension(path):
            self.found[path] = Findings()
            return
        try:
            found = findings(text, path, module=name, is_package=package)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 1
            self.broken.append(f"{path}:{line}: does not parse, so its imports are not known: {error}")
            found = Findings()
        self.found[path] = found
        for named in found.modules:
            self.tops.setdefault(named.name.partition(".")[0], (path, named.line))
            self._reach(named.name)

    def _reach(self, name: str) -> list[str] | None:
        """Record a module and the packages above it. Its search folders, when it is a package."""
        if name not in self._locations:
            self._locations[name] = self._look(name)
        return self._locations[name]

    def _look(self, name: str) -> list[str] | None:
        parent, _, _ = name.rpartition(".")
        top = name.partition(".")[0]
        if is_library(top) or top in RESERVED or not all(name.split(".")):
            return None
        if name in sys.modules and not parent:
            self.finder.snapshot.probe(name, self.finder.snapshot.tree.places)
            return search_folders(sys.modules[name])
        folders = self._reach(parent) if parent else None
        if parent and (folders is None or not any(map(self.finder.snapshot.tree.holds_folder, folders))):
            return None
        if name in sys.modules:
            return search_folders(sys.modules[name])
        try:
            spec = self.finder.locate(name, folders)
        except ImportError as error:
            self.broken.append(str(error))
            return None
        return None if spec is None else folders_of(spec)


def read_settled(path: str, *, limit: int) -> tuple[bytes, Mark]:
    """A regular file's bytes with the mark that they belong to. `LoadFailed` says what is in the way."""
    try:
        for _ in range(_READ_TRIES):
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise LoadFailed(f"{path} is not a regular file")
            with open(path, "rb") as file:
                before = os.fstat(file.fileno())
                if before.st_size > limit:
                    raise LoadFailed(f"{path} has {before.st_size:,} bytes; the limit is {limit:,}")
                text = file.read(limit + 1)
                after = os.fstat(file.fileno())
            if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and len(
                text
            ) <= limit:
                return text, mark_to_keep(after)
    except OSError as error:
        raise LoadFailed(f"{path} can't be read: {error.strerror or error}") from error
    raise LoadFailed(f"{path} is being written all the time", hint="try again when nothing writes to it")


def find_in(name: str, folders: Sequence[str]) -> ModuleSpec | None:
    """Python's own search of these folders, also below packages that are not loaded."""
    try:
        return PathFinder.find_spec(name, folders)
    except KeyError:  # a package without `__init__` whose parent is not in `sys.modules`
        tail = name.rpartition(".")[2]
        portions = [os.path.join(folder, tail) for folder in folders]
        return namespace_spec(name, [portion for portion in portions if os.path.isdir(portion)])


def ask_others(ours: object, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """What the other import hooks say, such as those of editable installs."""
    for other in sys.meta_path:
        if other in (ours, BuiltinImporter, FrozenImporter, PathFinder):
            continue
        find: Any = getattr(other, "find_spec", None)
        spec = find(name, path, None) if find is not None else None
        if isinstance(spec, ModuleSpec):
            return spec
    return None


def is_namespace(spec: ModuleSpec) -> bool:
    """Whether the spec is of a package without `__init__`."""
    return not spec.has_location and spec.submodule_search_locations is not None


def folders_of(spec: ModuleSpec) -> list[str] | None:
    """A package's search folders, or None for a plain module.

    A namespace's own list computes itself anew from its parent in `sys.modules`, which need not be loaded here; so
    the folders are taken as they were found.
    """
    folders = spec.submodule_search_locations
    return None if folders is None else [str(folder) for folder in getattr(folders, "_path", folders)]


def project_path(tree: ProjectTree, spec: ModuleSpec) -> str | None:
    """The path under which the project holds the module's file, or None when it is not the project's."""
    if not spec.has_location or spec.origin is None:
        return None
    if not isinstance(spec.loader, SourceFileLoader | ExtensionFileLoader | SourcelessFileLoader):
        return None
    for path in (spec.origin, os.path.realpath(spec.origin)):
        if tree.holds(path):
            return path
    return None


def search_folders(module: ModuleType) -> list[str] | None:
    """A loaded package's folders, or None for a plain module."""
    folders = getattr(module, "__path__", None)
    return None if folders is None else [str(folder) for folder in folders]


def evicted_names(snapshot: Snapshot, loaded: Mapping[str, object]) -> set[str]:
    """Top-level names of loaded installed modules that the project offers as its own."""
    tops = {name for name in loaded if "." not in name and not is_library(name) and name not in RESERVED}
    return {name for name in tops if offered(snapshot, name)}


def offered(snapshot: Snapshot, name: str) -> list[str]:
    """The project's files that offer a top-level name, in order; the workflow's own file is not one."""
    found = []
    for place in snapshot.tree.places:
        spec = PathFinder.find_spec(name, [place])
        path = None if spec is None else project_path(snapshot.tree, spec)
        if path is not None and path != snapshot.root_path:
            found.append(path)
    return found


def watch_search_path(snapshot: Snapshot) -> None:
    """Watch the folders of installed packages: an upgrade changes them."""
    for entry in sys.path:
        if mark_of(entry) is not None:
            snapshot.look_at(os.path.realpath(entry))
