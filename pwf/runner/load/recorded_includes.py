"""What a workflow's file includes, looked for and recorded by the resolver.

Apart from what a run loads by (`includes`): a process that executes the record looks for nothing, and does without the
modules that know the folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pwf.discovery import find_workflow_file, workflow_candidates
from pwf.errors import GraphError
from pwf.places import places
from pwf.runner.load.imports import findings
from pwf.runner.load.includes import load_included, word_for
from pwf.runner.load.snapshot import Snapshot, offered
from pwf.workflow.included import is_path


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
        self._refuse_another_module(path, text)
        return load_included(path, text, self._snapshot.texts, self._snapshot.tree)

    def _refuse_another_module(self, path: str, text: bytes) -> None:
        """What it imports must be what it imports when it stands alone: of a name there is one module in a process."""
        folder = os.path.dirname(path)
        self._snapshot.tree.stand_beside(folder)
        try:
            named = findings(text, path, module="", is_package=False).modules
        except (SyntaxError, ValueError, RecursionError):
            return  # its execution says so
        for one in named:
            places = offered(self._snapshot, one.name.partition(".")[0])
            beside = [place for place in places if _is_in(place, folder)]
            if beside and beside[0] != places[0]:
                raise GraphError(
                    f"{path}:{one.line}: imports {one.name!r}, which stands beside it, and would get that of "
                    f"{places[0]}",
                    hint=f"one process has one module of a name: rename {beside[0]}, or the other",
                )


def _is_in(place: str, folder: str) -> bool:
    """Whether the file of a module or a package is of this folder."""
    at = os.path.dirname(place)
    return folder == (os.path.dirname(at) if os.path.basename(place).startswith("__init__.") else at)
