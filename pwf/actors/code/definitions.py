"""Definitions: what a workflow's name means now, with the definition that a run would be bound to.

Owns a published table of resolved files, which the handle reads. Promises: an answer is used again only while every
file that it depends on is as it was; questions that come while a file is resolved share one resolver, and none is
answered with an error from before it was asked; what `save` has answered is in the store. Must never import or
execute a project's code: a resolver process does, and its answer is data.
In: `at` (a message where the table has no answer), `save`, `forget`. Out: resolvers of the pool, one store command per
new definition. If it dies: the daemon ends; its state may be lost at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
import trio

from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.code.whereabouts import Where
from pwf.discovery import Found
from pwf.errors import LoadFailed, PwfError, by_code
from pwf.protocol.graph import WorkflowDefinition
from pwf.protocol.operations import Origin
from pwf.protocol.spawn import Resolved
from pwf.store.definitions import SaveDefinition, save_definition
from pwf.store.runs import RunEnvironment
from pwf.watch import Watched

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 256
TAKE_MAX = 64
CACHED_MAX = 128
# Of one file that nobody has run yet; larger ones go to the store at once.
TEXTS_KEPT_BYTES_MAX = 4 * 1024 * 1024
WATCHED_INLINE_MAX = 500  # more files than this are looked at in a thread


class Resolver(Protocol):
    """The part of the runner pool that this actor needs."""

    async def resolve(self, interpreter: str, path: str, root: str, environment: dict[str, str]) -> Resolved:
        """Load the file afresh in a process of its own."""
        ...


class Lookup(Protocol):
    """Where a workflow's file and interpreter are found: `Whereabouts`."""

    def find(self, workflow: str, origin: Origin, asked_ns: int | None = None) -> Where:
        """What a name or path means for somebody at `origin`."""
        ...

    def chosen(self, found: Found, origin: Origin) -> Where:
        """The same for a file that is known."""
        ...


@dataclass
class Entry:
    """One resolved file. Only the actor changes it; `texts` is emptied once they are in the store."""

    definition: WorkflowDefinition
    watch: Watched
    path: str
    texts: dict[str, bytes]
    saved: bool = False
    recorded: RunEnvironment | None = None  # the last answer of `Known.environment`, which only saves work


@dataclass(frozen=True)
class Known:
    """A workflow as it stands in its files now."""

    found: Found
    interpreter: str
    definition: WorkflowDefinition
    entry: Entry

    def environment(self, python: str, pwf: str, variables: dict[str, str]) -> RunEnvironment:
        """What a new run records of where it will execute; the same object for the same facts."""
        last = self.entry.recorded  # the variables are in the key of the entry
        if last is None or last.python != python or last.pwf != pwf:
            last = self.entry.recorded = RunEnvironment(
                root=str(self.found.root),
                interpreter=self.interpreter,
                python=python,
                pwf=pwf,
                variables=variables,
            )
        return last


class Key(msgspec.Struct, frozen=True):
    """What an answer depends on, besides the files."""

    path: str
    root: str
    interpreter: str
    environment: tuple[tuple[str, str], ...]  # sorted: import-time code may look at it


# --- messages -------------------------------------------------------------------------------------------------


class Resolve(Message[Entry | None], frozen=True, kw_only=True, eq=False):
    """Resolve a file. The answer None: somebody else had asked before, so look at the table again."""

    key: Key
    environment: dict[str, str]


class Save(Message[None], frozen=True, kw_only=True, eq=False):
    """Put a definition and its texts into the store."""

    entry: Entry


class Forget(Message[None], frozen=True, kw_only=True, eq=False):
    """Definitions that may be gone from the store in a moment."""

    definition_ids: frozenset[str]


# --- the handle -----------------------------------------------------------------------------------------------


class DefinitionsHandle:
    """What others hold of it. `entries` is the published table."""

    def __init__(
        self, inbox: Mailbox[Resolve | Save | Forget], entries: Mapping[Key, Entry], lookup: Lookup
    ) -> None:
        self._inbox = inbox
        self._entries = entries
        self._lookup = lookup

    def where(self, workflow: str, origin: Origin, asked_ns: int | None = None) -> Where:
        """What `workflow` (a name or a path) means for somebody at `origin`. `asked_ns`: see `Watched.hold`.

        Raises `NotFound` or `EnvironmentMissing`.
        """
        return self._lookup.find(workflow, origin, asked_ns)

    def chosen(self, found: Found, origin: Origin) -> Where:
        """The same, for a file that is known. Raises `EnvironmentMissing`."""
        return self._lookup.chosen(found, origin)

    async def find(self, workflow: str, origin: Origin) -> Known:
        """What `workflow` means, with the definition that a run would be bound to. Leaves no trace when it raises."""
        return await self.at(self.where(workflow, origin), origin)

    async def at(self, where: Where, origin: Origin, asked_ns: int | None = None) -> Known:
        """The definition of what has been found. Raises `LoadFailed` or `GraphError`."""
        found, interpreter = where
        variables = origin.environment
        key = Key(str(found.path), str(found.root), interpreter, tuple(sorted(variables.items())))
        entry = None
        while entry is None:
            entry = await self._valid(key, asked_ns)
            if entry is None:
                entry = await ask(self._inbox, Resolve(key=key, environment=variables))
        return Known(found, interpreter, entry.definition, entry)

    async def _valid(self, key: Key, asked_ns: int | None) -> Entry | None:
        """The published answer, while its files are as they were."""
        entry = self._entries.get(key)
        if entry is None or not await _is_valid(entry.watch, asked_ns):
            return None
        # It may have been forgotten, or resolved anew, while its files were looked at.
        return entry if self._entries.get(key) is entry else None

    async def save(self, known: Known) -> None:
        """Put the definition and its texts into the store, before a run refers to it."""
        if not known.entry.saved:
            await ask(self._inbox, Save(entry=known.entry))

    async def forget(self, definition_ids: Iterable[str]) -> None:
        """These may be gone from the store in a moment: whoever asks next has them resolved and saved anew."""
        await ask(self._inbox, Forget(definition_ids=frozenset(definition_ids)))


# --- the actor ------------------------------------------------------------------------------------------------


class Definitions:
    """The actor."""

    def __init__(self, resolver: Resolver, store: StoreHandle, lookup: Lookup) -> None:
        self._resolver = resolver
        self._store = store
        self._entries: dict[Key, Entry] = {}  # those that were resolved last are the last
        self._askers: dict[Key, list[Resolve]] = {}
        self._inbox: Mailbox[Resolve | Save | Forget] = Mailbox(INBOX_MAX, "the keeper of definitions")
        self.handle = DefinitionsHandle(self._inbox, self._entries, lookup)

    async def run(self) -> None:
        """Serve until cancelled."""
        with self._inbox.open():
            async with trio.open_nursery() as nursery:
                while True:
                    for message in await self._inbox.take(TAKE_MAX):
                        if isinstance(message, Forget):
                            self._handle_forget(message)
                        elif isinstance(message, Save):
                            nursery.start_soon(self._inbox.answer, message, self._handle_save)
                        elif message.key in self._askers:
                            self._askers[message.key].append(message)
                        else:
                            self._askers[message.key] = [message]
                            nursery.start_soon(self._resolve_for_all, message)

    # --- handlers ---

    def _handle_forget(self, message: Forget) -> None:
        gone = message.definition_ids
        for key in [key for key, entry in self._entries.items() if entry.definition.definition_id in gone]:
            del self._entries[key]
        message.reply.give(None)

    async def _handle_save(self, message: Save) -> None:
        await self._save(message.entry)

    async def _resolve_for_all(self, message: Resolve) -> None:
        """Those who joined the first look again, whatever came of it: the file may be another by now, or the first has
        gone away before anything was done."""
        try:
            await self._inbox.answer(message, self._handle_resolve)
        finally:
            for joined in self._askers.pop(message.key)[1:]:
                joined.reply.give(None)

    async def _handle_resolve(self, message: Resolve) -> Entry:
        return await self._resolve(message.key, message.environment)

    async def _resolve(self, key: Key, environment: dict[str, str]) -> Entry:
        answer = await self._resolver.resolve(key.interpreter, key.path, key.root, environment)
        if answer.definition is None:
            raise _failure(answer)
        before = self._entries.pop(key, None)
        entry = Entry(answer.definition, Watched(answer.watch), key.path, answer.texts)
        if before is not None and before.definition.definition_id == entry.definition.definition_id:
            entry.saved = before.saved
        if entry.saved or sum(map(len, entry.texts.values())) > TEXTS_KEPT_BYTES_MAX:
            await self._save(entry)
            entry.texts = {}
        self._entries[key] = entry
        while len(self._entries) > CACHED_MAX:
            del self._entries[next(iter(self._entries))]
        return entry

    async def _save(self, entry: Entry) -> None:
        if entry.saved:
            return
        command = SaveDefinition(definition=entry.definition, texts=entry.texts, path=entry.path)
        await self._store.write(save_definition, command)
        entry.saved, entry.texts = True, {}


# --- pure functions -------------------------------------------------------------------------------------------


async def _is_valid(watch: Watched, asked_ns: int | None) -> bool:
    if len(watch) <= WATCHED_INLINE_MAX:
        return watch.hold(asked_ns)
    return await trio.to_thread.run_sync(watch.hold, asked_ns)


def _failure(answer: Resolved) -> PwfError:
    kind = by_code(answer.error_code or LoadFailed.code)
    return kind(answer.error, hint=answer.hint)
