"""Definitions: what a workflow's name means now, with all that a run would be bound to.

Owns a published table of resolved files, which the handle reads. Promises: an answer is used again only while every
file that it depends on is as it was; questions that come while a file is resolved share one resolver, and none is
answered with an error from before it was asked; a question leaves no trace in the store. Must never import or execute
a project's code: a resolver process does, and its answer is data.
In: `look`, `find`, `at` (one message where the table has no answer, else none). Out: resolvers of the pool.
If it dies: the daemon ends; its state may be lost at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import trio

import pwf
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.code.whereabouts import Where
from pwf.discovery import Found, Sort
from pwf.errors import GraphError, LoadFailed, NotFound, PwfError, by_code
from pwf.protocol.graph import WorkflowDefinition
from pwf.protocol.origin import Origin
from pwf.protocol.spawn import Resolved
from pwf.store.definitions import SaveDefinition
from pwf.store.runs import RunEnvironment
from pwf.watch import Watched, mark_of

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 256
TAKE_MAX = 64
CACHED_MAX = 128
TEXTS_BYTES_MAX = 96 * 1024 * 1024  # of all of them together: the largest file may come with 64 MiB
WATCHED_INLINE_MAX = 500  # more files than this are looked at in a thread


class Resolver(Protocol):
    """The part of the runner pool that this actor needs."""

    async def resolve(self, interpreter: str, path: str, root: str, environment: dict[str, str]) -> Resolved:
        """Load the file afresh in a process of its own."""
        ...


class Lookup(Protocol):
    """Where a workflow's file and interpreter are found: `Whereabouts`."""

    def find(
        self, workflow: str, origin: Origin, asked_ns: int | None = None, sort: Sort = "workflows"
    ) -> Where:
        """What a name or path means for somebody at `origin`."""
        ...

    def project_of(self, workflow: str, origin: Origin) -> Path:
        """The project of which somebody at `origin` speaks, whether or not there is such a workflow."""
        ...

    def chosen(self, found: Found, origin: Origin) -> Where:
        """The same as `find` for a file that is known."""
        ...


class Known(NamedTuple):
    """A workflow as it stands in its files now: `code` is what a run of it executes, `environment` what in."""

    code: SaveDefinition
    environment: RunEnvironment

    @property
    def definition(self) -> WorkflowDefinition:
        """The code without its texts."""
        return self.code.definition


class Looked(NamedTuple):
    """The project that was meant, and the workflow, or what is wrong with it."""

    root: Path
    known: Known | None = None
    error: PwfError | None = None

    def get(self) -> Known:
        """The workflow; raises what is wrong with it."""
        if self.error is not None:
            raise self.error
        assert self.known is not None, "either there is an error or it is known"
        return self.known


class Key(msgspec.Struct, frozen=True):
    """What an answer depends on, besides the files."""

    path: str
    root: str
    interpreter: str
    environment: tuple[tuple[str, str], ...]  # sorted: import-time code may look at it


class Entry(NamedTuple):
    """One resolved file."""

    known: Known
    watch: Watched


# --- messages -------------------------------------------------------------------------------------------------


class Resolve(Message[Known | None], frozen=True, kw_only=True, eq=False):
    """Resolve a file. The answer None: somebody else had asked before, so look at the table again."""

    key: Key


# --- the handle -----------------------------------------------------------------------------------------------


class DefinitionsHandle:
    """What others hold of it. `entries` is the published table."""

    def __init__(self, inbox: Mailbox[Resolve], entries: Mapping[Key, Entry], lookup: Lookup) -> None:
        self._inbox = inbox
        self._entries = entries
        self._lookup = lookup

    async def look(self, workflow: str, origin: Origin, asked_ns: int | None = None) -> Looked:
        """What `workflow` (a name or a path) means for somebody at `origin`. `asked_ns`: see `Watched.hold`.

        What is wrong with it is part of the answer: `NotFound`, `EnvironmentMissing`, `LoadFailed`, `GraphError`.
        """
        root = None
        try:
            where = self._lookup.find(workflow, origin, asked_ns)
            root = where.found.root
            return Looked(root, _as_sort(await self._known(where, origin, asked_ns), "workflows"))
        except PwfError as error:
            return Looked(root or self._lookup.project_of(workflow, origin), error=error)

    async def find(self, workflow: str, origin: Origin) -> Known:
        """The same, and what is wrong with it is raised."""
        return (await self.look(workflow, origin)).get()

    async def manager(self, manager: str, origin: Origin) -> Known:
        """What the name or path of a resource manager means for somebody at `origin`. Raises as `find` does."""
        where = self._lookup.find(manager, origin, sort="resources")
        return _as_sort(await self._known(where, origin), "resources")

    async def anything(self, name_or_path: str, origin: Origin) -> Known:
        """The workflow, or else the resource manager, that the text means; by path, wherever its file lies."""
        try:
            where = self._lookup.find(name_or_path, origin)
        except NotFound as error:
            try:
                where = self._lookup.find(name_or_path, origin, sort="resources")
            except NotFound:
                raise error from None
        return await self._known(where, origin)

    async def at(self, found: Found, origin: Origin, sort: Sort = "workflows") -> Known:
        """What a file is that has been found. Raises `EnvironmentMissing`, `LoadFailed` or `GraphError`."""
        return _as_sort(await self._known(self._lookup.chosen(found, origin), origin), sort)

    async def _known(self, where: Where, origin: Origin, asked_ns: int | None = None) -> Known:
        found, interpreter = where
        key = Key(str(found.path), str(found.root), interpreter, tuple(sorted(origin.environment.items())))
        while True:
            entry = self._entries.get(key)
            if entry is not None and await _is_valid(entry.watch, asked_ns):
                return entry.known
            known = await ask(self._inbox, Resolve(key=key))
            if known is not None:
                return known


# --- the actor ------------------------------------------------------------------------------------------------


class Definitions:
    """The actor."""

    def __init__(self, resolver: Resolver, lookup: Lookup) -> None:
        self._resolver = resolver
        self._entries: dict[Key, Entry] = {}  # those that were resolved last are the last
        self._askers: dict[Key, list[Resolve]] = {}
        self._inbox: Mailbox[Resolve] = Mailbox(INBOX_MAX, "the keeper of definitions")
        self.handle = DefinitionsHandle(self._inbox, self._entries, lookup)

    async def run(self) -> None:
        """Serve until cancelled."""
        with self._inbox.open():
            async with trio.open_nursery() as nursery:
                while True:
                    for message in await self._inbox.take(TAKE_MAX):
                        if message.key in self._askers:
                            self._askers[message.key].append(message)
                        else:
                            self._askers[message.key] = [message]
                            nursery.start_soon(self._resolve_for_all, message)

    # --- handlers ---

    async def _resolve_for_all(self, message: Resolve) -> None:
        """Those who joined the first look again, whatever came of it: the file may be another by now, or the first has
        gone away before anything was done."""
        try:
            await self._inbox.answer(message, self._handle_resolve)
        finally:
            for joined in self._askers.pop(message.key)[1:]:
                joined.reply.give(None)

    async def _handle_resolve(self, message: Resolve) -> Known:
        key = message.key
        interpreter = mark_of(key.interpreter)
        variables = dict(key.environment)
        answer = await self._resolver.resolve(key.interpreter, key.path, key.root, variables)
        if answer.definition is None:
            raise _failure(answer)
        known = Known(
            SaveDefinition(definition=answer.definition, path=key.path, texts=answer.texts),
            RunEnvironment(
                root=key.root,
                interpreter=key.interpreter,
                python=answer.python,
                pwf=pwf.__version__,  # a zygote with another one is refused
                variables=variables,
            ),
        )
        self._entries.pop(key, None)
        self._entries[key] = Entry(known, Watched({**answer.watch, key.interpreter: interpreter}))
        while len(self._entries) > 1 and _are_too_many(self._entries.values()):
            del self._entries[next(iter(self._entries))]
        return known


# --- pure functions -------------------------------------------------------------------------------------------


async def _is_valid(watch: Watched, asked_ns: int | None) -> bool:
    if len(watch) <= WATCHED_INLINE_MAX:
        return watch.hold(asked_ns)
    return await trio.to_thread.run_sync(watch.hold, asked_ns)


def _as_sort(known: Known, sort: Sort) -> Known:
    """The same; raises `GraphError` where a workflow was asked for and the file is a manager's, or the reverse."""
    graph = known.definition.graph
    if graph.manager is not None and sort == "workflows":
        raise GraphError(
            f"{known.code.path} is a resource manager, not a workflow",
            hint=f"pwf resource apply {graph.name} KEY --spec JSON",
        )
    if graph.manager is None and sort == "resources":
        raise GraphError(
            f"{known.code.path} is a workflow, not a resource manager",
            hint=f"move it to .pwf/workflows, and then: pwf run {graph.name}",
        )
    return known


def _are_too_many(entries: Collection[Entry]) -> bool:
    texts = (text for entry in entries for text in entry.known.code.texts.values())
    return len(entries) > CACHED_MAX or sum(map(len, texts)) > TEXTS_BYTES_MAX


def _failure(answer: Resolved) -> PwfError:
    kind = by_code(answer.error_code or LoadFailed.code)
    return kind(answer.error, hint=answer.hint)
