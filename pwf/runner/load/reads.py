"""Notices what a workflow's file reads while it loads: its graph may depend on it, so the answer does too.

Uses Python's audit events, which can't be unsubscribed: only for the resolver's process, which ends with
its answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pwf.runner.load.snapshot import LiveFinder, Snapshot

_LISTINGS = frozenset({"os.listdir", "os.scandir"})
_BYTE_CODE = ".pyc"


class ReadTracker:
    """Watches the project's files that are opened for reading, and the folders that are listed."""

    def __init__(self, snapshot: Snapshot, finder: LiveFinder) -> None:
        self._snapshot = snapshot
        self._finder = finder
        self._active = False
        self._opened: dict[str, None] = {}

    @property
    def opened(self) -> list[str]:
        """The project's files that were opened, without those that were recorded as modules."""
        return sorted(path for path in self._opened if path not in self._snapshot.texts)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the file loads."""
        sys.addaudithook(self._hear)
        self._active = True
        try:
            yield
        finally:
            self._active = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active or self._finder.busy:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes) and (flags or 0) & os.O_ACCMODE == os.O_RDONLY:
                self._note(os.fsdecode(path), listing=False)
        elif event in _LISTINGS:
            path = arguments[0]
            if path is None or isinstance(path, str | bytes):
                self._note("." if path is None else os.fsdecode(path), listing=True)

    def _note(self, path: str, *, listing: bool) -> None:
        path = os.path.abspath(path)
        if path.endswith(_BYTE_CODE) or "\0" in path:
            return
        tree = self._snapshot.tree
        if not (tree.holds_folder(path) if listing else tree.holds(path)):
            return
        with self._finder.quiet():
            self._snapshot.look_at(path)
        if not listing and os.path.isfile(path):
            self._opened.setdefault(path)
