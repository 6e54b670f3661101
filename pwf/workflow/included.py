"""Workflows that are included by name or by path: found and loaded by whoever loads the file, each once.

Owns the chain of files that are being loaded. Promises: a file that includes itself, by whatever way, is refused with
the whole chain. Resolver and pinned loader put their own `Files` in place; where a workflow is imported as any module,
as in a test, what stands beside its file is taken, and what comes with pwf.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from pwf.errors import GraphError, NotFound
from pwf.workflow.defined import only_workflow
from pwf.workflow.source import Place

T = TypeVar("T", bound=Any)

BUILTIN = os.path.join(os.path.dirname(os.path.dirname(__file__)), "builtin_workflows")


class Files(Protocol):
    """Where included files come from."""

    def find(self, given: str, file: str) -> str:
        """The path of what `file` includes as `given`. `NotFound` when there is none."""
        ...

    def load(self, path: str) -> Mapping[str, Any]:
        """Execute a file; its names."""
        ...


def is_path(given: str) -> bool:
    """Whether it is a path, relative to the file that includes it, and no name."""
    return os.sep in given or given.endswith(".py")


def from_file(given: str, file: str) -> str:
    """The path that a file means."""
    return os.path.normpath(os.path.join(os.path.dirname(file), os.path.expanduser(given)))


class FilesHere:
    """Those beside the file, and those that come with pwf, as they stand now."""

    def find(self, given: str, file: str) -> str:
        folders = (os.path.dirname(file), BUILTIN)
        paths = (
            [from_file(given, file)]
            if is_path(given)
            else [os.path.join(at, f"{given}.py") for at in folders]
        )
        for path in paths:
            if os.path.isfile(path):
                return path
        raise NotFound(f"there is no workflow {given!r}: looked for {' and '.join(paths)}")

    def load(self, path: str) -> Mapping[str, Any]:
        spec = importlib.util.spec_from_file_location(f"__included_{len(sys.modules)}__", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where the names in annotations are looked up
        spec.loader.exec_module(module)
        return vars(module)


class Library:
    """The workflows that were included, by the paths of their files."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._loaded: dict[str, Any] = {}
        self._loading: list[str] = []

    def get(self, given: str, place: Place, kind: type[T]) -> T:
        """The workflow that the file at `place` includes so. `GraphError` when there is none, or a circle."""
        try:
            path = self._files.find(given, place.file)
        except NotFound as error:
            raise GraphError(f"{place}: includes {given!r}: {error.message}", hint=error.hint) from None
        chain = self._loading or [place.file]
        if path in chain:
            circle = " includes ".join([*chain[chain.index(path) :], path])
            raise GraphError(f"{place}: a workflow would include itself: {circle}")
        if path not in self._loaded:
            self._loading = [*chain, path]
            try:
                self._loaded[path] = only_workflow(kind, self._files.load(path))
            finally:
                self._loading = [] if len(chain) == 1 else chain
        found: T = self._loaded[path]
        return found


_library = Library(FilesHere())


def included(given: str, place: Place, kind: type[T]) -> T:
    """The workflow (of this class) that the file at `place` includes under this name or path."""
    return _library.get(given, place, kind)


@contextmanager
def included_from(files: Files) -> Iterator[None]:
    """While a workflow's file is loaded, take what it includes from these files."""
    global _library
    before, _library = _library, Library(files)
    try:
        yield
    finally:
        _library = before
