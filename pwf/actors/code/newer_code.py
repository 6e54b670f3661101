"""Whether newer code exists than a run executes: what `show` says, and nothing decides by.

Owns a short memory of answers. Promises: the files are read in a thread, and at most once per `FRESH_S` for
each definition. Its state may be lost at any time.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

import trio

from pwf.discovery import verify_sources
from pwf.protocol.graph import SourceFile
from pwf.store.definitions import DefinitionRef, definition_sources

FRESH_S = 2.0
REMEMBERED_MAX = 64


class Reads(Protocol):
    """The part of the store's handle that this needs."""

    async def read(self, handler: Callable[[Any, Any], Any], query: Any) -> Any:
        """Run one query."""
        ...


class NewerCode:
    """Handle; it has no task of its own."""

    def __init__(self, store: Reads) -> None:
        self._store = store
        self._answers: OrderedDict[str, tuple[float, bool]] = OrderedDict()

    async def differs(self, definition_id: str, root: str) -> bool:
        """Whether a recorded file exists with another text. A file that is gone is no newer code."""
        answer = self._answers.get(definition_id)
        if answer is not None and answer[0] > trio.current_time():
            return answer[1]
        sources = await self._store.read(definition_sources, DefinitionRef(definition_id=definition_id))
        differs = await trio.to_thread.run_sync(_any_newer, sources, root)
        self._answers[definition_id] = (trio.current_time() + FRESH_S, differs)
        self._answers.move_to_end(definition_id)
        while len(self._answers) > REMEMBERED_MAX:
            self._answers.popitem(last=False)
        return differs


def _any_newer(sources: tuple[SourceFile, ...], root: str) -> bool:
    return any(os.path.exists(os.path.join(root, path)) for path in verify_sources(sources, root))
