"""What a workflow's name means now: its file, its interpreter, and the definition that a run would be bound to.

Owns a cache of resolved files. Promises: an answer is used again only while every file that it depends on
is as it was; concurrent questions for one file share one resolver; a definition is in the store before
anybody gets it. Must never import or execute a project's code: a resolver process does, and its answer is
data. In: calls. Out: resolvers of the pool, one store command per new definition. Its state may be lost at
any time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import trio

from pwf.actors.code.whereabouts import Where, Whereabouts
from pwf.discovery import Found
from pwf.errors import LoadFailed, PwfError, by_code
from pwf.protocol.graph import WorkflowDefinition
from pwf.protocol.operations import Origin
from pwf.protocol.spawn import Resolved
from pwf.store.definitions import SaveDefinition, save_definition
from pwf.store.runs import RunEnvironment
from pwf.watch import Watched

CACHED_MAX = 128
TEXTS_KEPT_BYTES_MAX = (
    4 * 1024 * 1024
)  # of one file that nobody has run yet; larger ones go to the store at once
WATCHED_INLINE_MAX = 500  # more files than this are looked at in a thread


class Resolver(Protocol):
    """The part of the runner pool that this actor needs."""

    async def resolve(self, interpreter: str, path: str, root: str, environment: dict[str, str]) -> Resolved:
        """Load the file afresh in a process of its own."""
        ...


class Store(Protocol):
    """The part of the store's handle that this actor needs."""

    async def write(self, handler: Callable[[Any, Any], Any], command: Any) -> Any:
        """Run one command; its result after the commit."""
        ...


@dataclass(frozen=True)
class Known:
    """A workflow as it stands in its files now."""

    found: Found
    interpreter: str
    definition: WorkflowDefinition
    entry: _Entry


class _Key(msgspec.Struct, frozen=True):
    path: str
    root: str
    interpreter: str
    environment: tuple[tuple[str, str], ...]  # sorted: import-time code may look at it


@dataclass
class _Entry:
    """`texts` is emptied once they are in the store."""

    definition: WorkflowDefinition
    watch: Watched
    path: str
    texts: dict[str, bytes]
    saved: bool = False
    environment: RunEnvironment | None = None  # of the runs that were started of it last


class Definitions:
    """Handle; it has no task of its own."""

    def __init__(
        self, resolver: Resolver, store: Store, *, config_folder: Path, interpreter: str | None
    ) -> None:
        self._resolver = resolver
        self._store = store
        self._whereabouts = Whereabouts(config_folder, interpreter)
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._resolving: dict[_Key, trio.Event] = {}

    def where(self, workflow: str, origin: Origin, asked_ns: int | None = None) -> Where:
        """What `workflow` (a name or a path) means for somebody at `origin`. `asked_ns`: see `Watched.hold`.

        Raises `NotFound` or `EnvironmentMissing`.
        """
        return self._whereabouts.find(workflow, origin, asked_ns)

    def chosen(self, found: Found, origin: Origin) -> Where:
        """The same, for a file that is known. Raises `EnvironmentMissing`."""
        return self._whereabouts.chosen(found, origin)

    async def find(self, workflow: str, origin: Origin) -> Known:
        """What `workflow` means, with the definition that a run would be bound to. Leaves no trace when it raises."""
        return await self.at(self.where(workflow, origin), origin)

    async def at(self, where: Where, origin: Origin, asked_ns: int | None = None) -> Known:
        """The definition of what has been found. Raises `LoadFailed` or `GraphError`."""
        found, interpreter = where
        key = _Key(
            str(found.path),
            str(found.root),
            interpreter,
            tuple(sorted(origin.environment.items())),
        )
        entry = await self._entry(key, origin.environment, asked_ns)
        return Known(found, interpreter, entry.definition, entry)

    def forget(self, definition_ids: Iterable[str]) -> None:
        """These may be gone from the store in a moment: whoever asks next has them resolved and saved anew."""
        gone = set(definition_ids)
        for key in [key for key, entry in self._entries.items() if entry.definition.definition_id in gone]:
            del self._entries[key]

    async def save(self, known: Known) -> None:
        """Put the definition and its texts into the store, before a run refers to it."""
        await self._save(known.entry)

    async def _save(self, entry: _Entry) -> None:
        if entry.saved:
            return
        command = SaveDefinition(definition=entry.definition, texts=entry.texts, path=entry.path)
        await self._store.write(save_definition, command)
        entry.saved, entry.texts = True, {}

    async def _entry(self, key: _Key, environment: dict[str, str], asked_ns: int | None) -> _Entry:
        while True:
            entry = self._entries.get(key)
            if entry is not None and await _is_valid(entry.watch, asked_ns):
                if self._entries.get(key) is not entry:
                    continue  # forgotten, or resolved anew, while its files were looked at
                self._entries.move_to_end(key)
                return entry
            busy = self._resolving.get(key)
            if busy is None:
                return await self._resolve(key, environment)
            await busy.wait()  # then look again: it may have failed

    async def _resolve(self, key: _Key, environment: dict[str, str]) -> _Entry:
        done = self._resolving[key] = trio.Event()
        try:
            answer = await self._resolver.resolve(key.interpreter, key.path, key.root, environment)
            if answer.definition is None:
                raise _failure(answer)
            before = self._entries.get(key)
            entry = _Entry(answer.definition, Watched(answer.watch), key.path, answer.texts)
            if before is not None and before.definition.definition_id == entry.definition.definition_id:
                entry.saved = before.saved
            if entry.saved or sum(map(len, entry.texts.values())) > TEXTS_KEPT_BYTES_MAX:
                await self._save(entry)
                entry.texts = {}
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > CACHED_MAX:
                self._entries.popitem(last=False)
            return entry
        finally:
            del self._resolving[key]
            done.set()


async def _is_valid(watch: Watched, asked_ns: int | None) -> bool:
    if len(watch) <= WATCHED_INLINE_MAX:
        return watch.hold(asked_ns)
    return await trio.to_thread.run_sync(watch.hold, asked_ns)


def _failure(answer: Resolved) -> PwfError:
    kind = by_code(answer.error_code or LoadFailed.code)
    return kind(answer.error, hint=answer.hint)
