"""The resolver: loads a workflow's file as it stands now, and answers with its definition and its texts.

Runs in a process forked for this one answer; what it imports, patches or leaves behind ends with that
process. It never raises for what is wrong with the file: that is part of the answer, with file and line and
what to do.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from importlib.machinery import PathFinder
from typing import Any

import msgspec

from pwf.errors import GraphError
from pwf.protocol.graph import SourceFile, WorkflowDefinition, WorkflowGraph
from pwf.protocol.spawn import Resolved
from pwf.runner.load.datafiles import pin_data
from pwf.runner.load.faults import load_fault
from pwf.runner.load.includes import SEPARATOR
from pwf.runner.load.loaded import is_installed, loaded_files
from pwf.runner.load.loading import (
    INCLUDED_MODULE,
    RESERVED,
    ROOT_MODULE,
    execute_root,
    make_way,
    prepare_process,
    standing_in,
)
from pwf.runner.load.packages import distributions_of
from pwf.runner.load.reads import ReadTracker
from pwf.runner.load.recorded_includes import RecordedIncludes
from pwf.runner.load.snapshot import Closure, LiveFinder, Snapshot, evicted_names, offered, watch_search_path
from pwf.runner.load.tree import ProjectTree, is_library
from pwf.values import digest
from pwf.watch import definition_id
from pwf.workflow.included import included_from
from pwf.workflow.load import find_definition


def resolve(path: str, root: str) -> Resolved:
    """Load the file at `path` for the project `root`, and record everything that a run of it would execute.

    The answer has `definition`, `texts` and `watch`, or `error_code` (load_failed, graph_error, or
    no_workflow for a file that is only a helper), `error` and `hint`; `watch` is set in both cases. `call`
    is the caller's to fill in.
    """
    given = os.path.abspath(path)
    path, root = os.path.realpath(path), os.path.realpath(root)
    tree = ProjectTree(root, os.path.dirname(path))
    snapshot = Snapshot(tree, path)
    snapshot.look_at(given)
    try:
        definition, data = _Resolution(snapshot).run()
    except BaseException as error:  # noqa: BLE001 - user code: SystemExit included
        fault = load_fault(error, path, tree)
        return Resolved(
            call=0, error_code=fault.code, error=fault.message, hint=fault.hint, watch=dict(snapshot.watch)
        )
    texts = {digest(text): text for text in (*snapshot.texts.values(), *data.values())}
    return Resolved(
        call=0,
        python=sys.version.split(maxsplit=1)[0],
        definition=definition,
        texts=texts,
        watch=dict(snapshot.watch),
    )


class _Resolution:
    """One answer, step by step."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.finder = LiveFinder(snapshot)
        self.closure = Closure(self.finder)
        self.includes = RecordedIncludes(snapshot)
        self.reads = ReadTracker(snapshot, self.finder)
        self.warnings: list[str] = []

    def run(self) -> tuple[WorkflowDefinition, dict[str, bytes]]:
        snapshot = self.snapshot
        text = snapshot.read(snapshot.root_path)
        loaded, since_ns = set(sys.modules), time.time_ns()
        graph = self._load(text)
        for path, kept in loaded_files(loaded, snapshot.tree, since_ns).items():
            if not is_installed(path):  # else its folder changes with an upgrade, and that is watched
                snapshot.watch.setdefault(path, kept)
        self.closure.follow(text, {path: snapshot.texts[path] for path in self.includes.words})
        watch_search_path(snapshot)
        data, unmatched = pin_data(snapshot, graph.files, snapshot.root_path)
        self.warnings += unmatched
        self.warnings += self.closure.broken
        self._warn_of_clashes()
        self._warn_of_reads(set(data))
        self._warn_of_computed()
        definition = WorkflowDefinition(
            definition_id="",
            graph=graph,
            root=snapshot.tree.root,
            sources=tuple(self._sources(data)),
            packages=distributions_of(self._packages(loaded)),
            warnings=tuple(dict.fromkeys(self.warnings)),
        )
        return msgspec.structs.replace(definition, definition_id=definition_id(definition)), data

    def _load(self, text: bytes) -> WorkflowGraph:
        snapshot = self.snapshot
        prepare_process(snapshot.tree)
        make_way(evicted_names(snapshot, sys.modules))
        sys.meta_path.insert(0, self.finder)
        standing = standing_in(snapshot.tree.root, snapshot.root_path)
        with standing, self.reads.watching(), included_from(self.includes):
            module = execute_root(snapshot.root_path, text, snapshot.texts)
            found = find_definition(vars(module)).to_graph()
        if found.manager is not None:
            _check_name(found.name, snapshot.root_path)
        return found

    def _sources(self, data: dict[str, bytes]) -> Iterable[SourceFile]:
        root_path = self.snapshot.root_path
        text = self.snapshot.texts[root_path]
        yield SourceFile(path=root_path, digest=digest(text), size=len(text), kind="root")
        for path, words in sorted(self.includes.words.items()):
            text = self.snapshot.texts[path]
            found_by = SEPARATOR.join(sorted(words))
            yield SourceFile(path=path, digest=digest(text), size=len(text), kind="included", module=found_by)
        for path, module in sorted(self.snapshot.modules.items()):
            names = " ".join(sorted(module.names))
            yield SourceFile(path=path, digest=digest(module.text), size=len(module.text), module=names)
        for name, content in sorted(data.items()):
            yield SourceFile(path=name, digest=digest(content), size=len(content), kind="data")

    def _packages(self, loaded: set[str]) -> list[str]:
        """Top-level names of installed packages that were imported, or that the texts name."""
        own = {name.partition(".")[0] for module in self.snapshot.modules.values() for name in module.names}
        fresh = {name.partition(".")[0] for name in sys.modules if name not in loaded}
        fresh = {name for name in fresh if not name.startswith(INCLUDED_MODULE)}
        named = {name for name in self.closure.tops if name}
        installed = (fresh | named) - own - {ROOT_MODULE}
        return sorted(name for name in installed if name == "pwf" or not is_library(name))

    def _warn_of_clashes(self) -> None:
        for name, (path, line) in sorted(self.closure.tops.items()):
            if not name:
                continue
            places = offered(self.snapshot, name)
            if not places:
                continue
            if is_library(name) or name in RESERVED:
                first = (
                    "Python's standard library"
                    if name != "pwf" and is_library(name)
                    else "the installed package"
                )
            else:
                first, *places = [*places, *installed_place(self.snapshot.tree, name)]
            places = [at for at in dict.fromkeys(places) if at != first]
            if places:
                also = ", ".join(places)
                self.warnings.append(
                    f"{path}:{line}: {name!r} is taken from {first}; it is also offered by {also}"
                )

    def _warn_of_reads(self, pinned: set[str]) -> None:
        root = self.snapshot.tree.root
        advice = "it is read as it is then, not pinned: add it to files= and read it with ctx.file()"
        for path, found in sorted(self.closure.found.items()):
            for line, name in found.reads:
                if os.path.relpath(os.path.join(root, name), root) not in pinned:
                    self.warnings.append(f"{path}:{line}: opens {name!r}; {advice}")
        for name in self.reads.opened:
            self.warnings.append(
                f"{self.snapshot.root_path}: reads {name} while it loads; each runner reads it again, "
                "as it is then"
            )

    def _warn_of_computed(self) -> None:
        for path, found in sorted(self.closure.found.items()):
            for line in found.computed:
                self.warnings.append(
                    f"{path}:{line}: imports a module by a computed name; a run has of the project's own what "
                    "was imported while the file loaded, and what stands in the packages that this file names"
                )


def _check_name(name: str, path: str) -> None:
    """A manager is known by its file's name: what it calls itself must be no other."""
    stem = os.path.basename(path).removesuffix(".py")
    if name != stem:
        raise GraphError(
            f"{path}: the manager calls itself {name!r}, and its file {stem!r}",
            hint=f'write ResourceManager("{stem}", …), or rename the file to {name}.py',
        )


def installed_place(tree: ProjectTree, name: str) -> list[str]:
    """Where installed packages offer a top-level name that the project offers too."""
    spec: Any = PathFinder.find_spec(
        name, [at for at in sys.path if not tree.holds_folder(os.path.realpath(at))]
    )
    return [spec.origin] if spec is not None and spec.origin is not None else []
