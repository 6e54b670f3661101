"""NewerCode: whether newer code exists than a run executes: what `show` says, and nothing decides by.

Owns a published memory of answers, which the handle reads. Promises: the files are read in a thread, and at most once
per `FRESH_S` for each definition, however many ask.
In: `differs` (a message where there is no fresh answer). Out: reads of the store. If it dies: the daemon ends; its
state may be lost at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import trio

from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.discovery import verify_sources
from pwf.protocol.graph import SourceFile
from pwf.store.definitions import definition_sources

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 64
FRESH_S = 2.0
REMEMBERED_MAX = 64


class Reads(Protocol):
    """The part of the store's handle that this needs."""

    async def read(self, handler: Callable[[Any, Any], Any], query: Any) -> Any:
        """Run one query."""
        ...


class Told(NamedTuple):
    """An answer, and until when (trio's clock) it counts as fresh."""

    fresh_until: float
    differs: bool


# --- messages -------------------------------------------------------------------------------------------------


class Look(Message[bool], frozen=True, kw_only=True, eq=False):
    """Compare a definition's files with what was recorded."""

    definition_id: str
    root: str


# --- the handle -----------------------------------------------------------------------------------------------


class NewerCodeHandle:
    """What others hold of it. `answers` are published."""

    def __init__(self, inbox: Mailbox[Look], answers: Mapping[str, Told]) -> None:
        self._inbox = inbox
        self._answers = answers

    async def differs(self, definition_id: str, root: str) -> bool:
        """Whether a recorded file exists with another text. A file that is gone is no newer code."""
        answer = fresh(self._answers, definition_id)
        if answer is None:
            answer = await ask(self._inbox, Look(definition_id=definition_id, root=root))
        return answer


# --- the actor ------------------------------------------------------------------------------------------------


class NewerCode:
    """The actor."""

    def __init__(self, store: Reads) -> None:
        self._store = store
        self._answers: dict[str, Told] = {}
        self._inbox: Mailbox[Look] = Mailbox(INBOX_MAX, "the watcher of newer code")
        self.handle = NewerCodeHandle(self._inbox, self._answers)

    async def run(self) -> None:
        """Serve until cancelled, one definition at a time."""
        with self._inbox.open():
            while True:
                for message in await self._inbox.take(1):
                    await self._inbox.answer(message, self._handle_look)

    async def _handle_look(self, message: Look) -> bool:
        answer = fresh(self._answers, message.definition_id)
        if answer is not None:
            return answer
        sources = await self._store.read(definition_sources, message.definition_id)
        differs = await trio.to_thread.run_sync(_any_newer, sources, message.root)
        self._answers.pop(message.definition_id, None)
        self._answers[message.definition_id] = Told(trio.current_time() + FRESH_S, differs)
        while len(self._answers) > REMEMBERED_MAX:
            del self._answers[next(iter(self._answers))]
        return differs


def fresh(answers: Mapping[str, Told], definition_id: str) -> bool | None:
    """The answer, while it is fresh."""
    told = answers.get(definition_id)
    return told.differs if told is not None and told.fresh_until > trio.current_time() else None


def _any_newer(sources: tuple[SourceFile, ...], root: str) -> bool:
    return any(os.path.exists(os.path.join(root, path)) for path in verify_sources(sources, root))
