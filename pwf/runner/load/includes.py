"""What a workflow's file includes by name or by path: recorded by the resolver as a root of its own, and pinned so.

A name means what it means on the command line (project, user's folder, pwf's own); a path is relative to the file that
includes it. The record has each under the words by which it was found, so that a run needs no look at any folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pwf.errors import LoadFailed
from pwf.protocol.spawn import PinnedSource
from pwf.runner.load.loading import execute_included
from pwf.runner.load.tree import ProjectTree
from pwf.workflow.included import from_file, is_path

SEPARATOR = "\n"  # between the words in the record


def word_for(given: str, file: str) -> str:
    """What an included file is recorded under: a name, or a whole path as the including file means it."""
    return from_file(given, file) if is_path(given) else given


class PinnedIncludes:
    """What was recorded, and nothing else."""

    def __init__(
        self, sources: Sequence[PinnedSource], texts: Mapping[str, bytes], tree: ProjectTree
    ) -> None:
        self._texts = texts
        self._tree = tree
        self._paths = {
            word: source.path
            for source in sources
            if source.kind == "included"
            for word in source.module.split(SEPARATOR)
        }

    def find(self, given: str, file: str) -> str:
        """The recorded path of it."""
        path = self._paths.get(word_for(given, file))
        if path is None:
            raise LoadFailed(
                f"{file} includes {given!r}, which was not recorded when this run started",
                hint="include the same workflows whenever the file is loaded",
            )
        return path

    def load(self, path: str) -> Mapping[str, Any]:
        """Execute the recorded text."""
        return load_included(path, self._texts[path], self._texts, self._tree)


def load_included(path: str, text: bytes, texts: Mapping[str, bytes], tree: ProjectTree) -> Mapping[str, Any]:
    """Execute an included file, its own modules beside it; its names."""
    tree.stand_beside(os.path.dirname(path))
    return vars(execute_included(path, text, texts))
