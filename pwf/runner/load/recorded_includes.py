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
from pwf.places import places
from pwf.runner.load.includes import load_included, word_for
from pwf.runner.load.snapshot import Snapshot
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
        return load_included(path, text, self._snapshot.texts, self._snapshot.tree)
