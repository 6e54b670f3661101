"""What a workflow's file includes by name or by path: recorded by the resolver as a root of its own, and pinned so.

A name means what it means on the command line (project, user's folder, pwf's own); a path is relative to the file that
includes it. The record has each under the words by which it was found, so that a run needs no look at any folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pwf.discovery import find_workflow_file, workflow_candidates
from pwf.errors import LoadFailed
from pwf.places import places
from pwf.protocol.spawn import PinnedSource
from pwf.runner.load.loading import execute_included
from pwf.runner.load.snapshot import Snapshot
from pwf.runner.load.tree import ProjectTree
from pwf.workflow.included import from_file, is_path

SEPARATOR = "\n"  # between the words in the record


def word_for(given: str, file: str) -> str:
    """What an included file is recorded under: a name, or a whole path as the including file means it."""
    return from_file(given, file) if is_path(given) else given


class RecordedIncludes:
    """Files as they stand now. `words`: what each was found by."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.words: dict[str, list[str]] = {}

    def find(self, given: str, file: str) -> str:
        """The real path of it; every place where it might have stood is watched."""
        snapshot, word = self._snapshot, word_for(given, file)
        root, config = Path(snapshot.tree.root), places(dict(os.environ)).config.parent
        for candidate in [word] if is_path(given) else map(str, workflow_candidates(given, root, config)):
            snapshot.look_at(candidate)
            if os.path.isfile(candidate):
                path = os.path.realpath(candidate)
                words = self.words.setdefault(path, [])
                if word not in words:
                    words.append(word)
                return path
        return str(find_workflow_file(word, root, config).path)  # which says what there is

    def load(self, path: str) -> Mapping[str, Any]:
        """Record its text, and execute that."""
        text = self._snapshot.read(path)
        return _load(path, text, self._snapshot.texts, self._snapshot.tree)


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
        return _load(path, self._texts[path], self._texts, self._tree)


def _load(path: str, text: bytes, texts: Mapping[str, bytes], tree: ProjectTree) -> Mapping[str, Any]:
    tree.stand_beside(os.path.dirname(path))
    return vars(execute_included(path, text, texts))
