"""What a workflow's name means now: its file, its interpreter, and the definition that a run would be bound to.

Owns a cache of resolved files. Promises: an answer is used again only while every file that it depends on
is as it was; concurrent questions for one file share one resolver; a definition is in the store before
anybody gets it. Must never import or execute a project's code: a resolver process does, and its answer is
data. In: calls. Out: resolvers of the pool, one store command per new definition. Its state may be lost at
any time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jsonschema_rs
import msgspec
import trio

from pwf.discovery import Found, choose_interpreter, find_workflow_file
from pwf.errors import InvalidAnswer, InvalidInput, LoadFailed, PwfError, by_code
from pwf.protocol.graph import WorkflowDefinition
from pwf.protocol.operations import Origin
from pwf.protocol.spawn import Resolved
from pwf.store.definitions import SaveDefinition, save_definition
from pwf.values import canonical, digest, parse
from pwf.watch import Mark, still_valid

CACHED_MAX = 128
VALIDATORS_MAX = 128
WATCHED_INLINE_MAX = 500  # more files than this are looked at in a thread
FAULTS_SHOWN_MAX = 5


class Resolver(Protocol):
    """The part of the runner pool that this actor needs."""

    async def resolve(self, interpreter: str, path: str, root: str, environment: dict[str, str]) -> Resolved:
        """Load the file afresh in a process of its own."""


class Store(Protocol):
    """The part of the store's handle that this actor needs."""

    async def write(self, handler: Callable[[Any, Any], Any], command: Any) -> Any:
        """Run one command; its result after the commit."""


@dataclass(frozen=True)
class Known:
    """A workflow as it stands in its files now."""

    found: Found
    interpreter: str
    definition: WorkflowDefinition


class _Key(msgspec.Struct, frozen=True):
    path: str
    root: str
    interpreter: str
    environment: str  # digest: import-time code may look at it


@dataclass
class _Entry:
    definition: WorkflowDefinition
    watch: Mapping[str, Mark | None]


class Definitions:
    """Handle; it has no task of its own."""

    def __init__(
        self, resolver: Resolver, store: Store, *, config_folder: Path, interpreter: str | None
    ) -> None:
        self._resolver = resolver
        self._store = store
        self._config_folder = config_folder
        self._interpreter = interpreter
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._resolving: dict[_Key, trio.Event] = {}

    async def find(self, workflow: str, origin: Origin) -> Known:
        """The workflow that `workflow` (a name or a path) means for somebody at `origin`.

        Raises `NotFound`, `EnvironmentMissing`, `LoadFailed` or `GraphError`, and leaves no trace then.
        """
        found = find_workflow_file(workflow, Path(origin.cwd), self._config_folder)
        return await self.at(found, origin)

    async def at(self, found: Found, origin: Origin) -> Known:
        """The same, for a file that has been found."""
        interpreter = choose_interpreter(Path(found.root), self._interpreter, origin.python)
        key = _Key(
            str(found.path),
            str(found.root),
            interpreter,
            digest(canonical(origin.environment, what="environment")),
        )
        return Known(found, interpreter, await self._definition(key, origin.environment))

    async def _definition(self, key: _Key, environment: dict[str, str]) -> WorkflowDefinition:
        while True:
            entry = self._entries.get(key)
            if entry is not None and await _is_valid(entry.watch):
                self._entries.move_to_end(key)
                return entry.definition
            busy = self._resolving.get(key)
            if busy is None:
                return await self._resolve(key, environment)
            await busy.wait()  # then look again: it may have failed

    async def _resolve(self, key: _Key, environment: dict[str, str]) -> WorkflowDefinition:
        done = self._resolving[key] = trio.Event()
        try:
            answer = await self._resolver.resolve(key.interpreter, key.path, key.root, environment)
            if answer.definition is None:
                raise _failure(answer)
            await self._store.write(
                save_definition,
                SaveDefinition(definition=answer.definition, texts=answer.texts, path=key.path),
            )
            # The texts are in the store; only what is needed to use the answer again is kept.
            self._entries[key] = _Entry(answer.definition, answer.watch)
            self._entries.move_to_end(key)
            while len(self._entries) > CACHED_MAX:
                self._entries.popitem(last=False)
            return answer.definition
        finally:
            del self._resolving[key]
            done.set()


async def _is_valid(watch: Mapping[str, Mark | None]) -> bool:
    if len(watch) <= WATCHED_INLINE_MAX:
        return still_valid(watch)
    return await trio.to_thread.run_sync(still_valid, watch)


def _failure(answer: Resolved) -> PwfError:
    kind = by_code(answer.error_code) if answer.error_code else LoadFailed
    return kind(answer.error, hint=answer.hint)


class Schemas:
    """Checks values against JSON Schemas; compiled ones are kept."""

    def __init__(self) -> None:
        self._validators: OrderedDict[bytes, Any] = OrderedDict()

    def check_input(self, schema: dict[str, Any] | None, value: bytes) -> None:
        """Raise `InvalidInput` that says where in the input (canonical JSON) the fault is."""
        faults = self._faults(schema, value)
        if faults:
            raise InvalidInput(
                "the input does not fit: " + "; ".join(faults), hint="pwf graph WORKFLOW shows its input"
            )

    def check_answer(self, schema: dict[str, Any] | None, value: bytes) -> None:
        """Raise `InvalidAnswer` that says where in the answer the fault is."""
        faults = self._faults(schema, value)
        if faults:
            raise InvalidAnswer(
                "the answer does not fit: " + "; ".join(faults), hint="pwf requests shows what is asked"
            )

    def _faults(self, schema: dict[str, Any] | None, value: bytes) -> list[str]:
        if schema is None:
            return []
        key = msgspec.json.encode(schema, order="deterministic")
        validator = self._validators.get(key)
        if validator is None:
            validator = self._validators[key] = jsonschema_rs.validator_for(schema)
            if len(self._validators) > VALIDATORS_MAX:
                self._validators.popitem(last=False)
        faults = []
        for fault in validator.iter_errors(parse(value)):
            if len(faults) == FAULTS_SHOWN_MAX:
                faults.append("…")
                break
            faults.append(f"{_said(fault.message)} (at {_where(fault.instance_path)})")
        return faults


def _where(path: list[str | int]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "$" + "".join(steps)


def _said(message: str) -> str:
    return message if len(message) <= 300 else message[:300] + "…"
