"""What the RunnerPool is asked for, and the tasks that make it: one per message, and one per runner forked ahead.

Owns each process from its start until the caller or its template has it; one that nobody took is ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import trio

from pwf.actors.base.reply import Reply
from pwf.actors.processes.custody import Custody
from pwf.actors.processes.link import Exits, LinkClosed
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.template import WAITING_MARKER, Origin, Sockets, Template, open_sockets
from pwf.actors.processes.warm import LoadBundle, Slot, TemplateKey, WarmProcesses, template_key
from pwf.errors import LoadFailed, PwfError, RunnerCrashed
from pwf.host import Identity
from pwf.protocol.spawn import Resolved

LOADING_MAX = 4  # workflow files that are resolved or loaded into fresh processes at once
HURRY_S = 1.0  # since a run found nobody waiting
ATTEMPTS_MAX = 2  # to fork: a template may die between two runs; a second death in a row is its own fault


class EventLog(Protocol):
    """The daemon's log: a constant event name and ids."""

    def __call__(self, event: str, **fields: Any) -> None: ...


# --- messages -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Acquire:
    bundle_key: str
    load_bundle: LoadBundle
    interpreter: str
    environment: dict[str, str]
    root: str
    marker: str
    isolate: str
    reply: Reply[RunnerProcess] = field(default_factory=Reply)

    @cached_property
    def key(self) -> TemplateKey:
        return template_key(self.interpreter, self.bundle_key, self.environment)


@dataclass(frozen=True)
class ResolveFile:
    interpreter: str
    path: str
    root: str
    environment: dict[str, str]
    deadline_s: float
    reply: Reply[Resolved] = field(default_factory=Reply)


# --- making them ---


class Makers:
    """One task per message makes what it asks for. Lives as long as `RunnerPool.run`."""

    def __init__(
        self,
        warm: WarmProcesses,
        nursery: trio.Nursery,
        exits: Exits,
        custody: Custody,
        *,
        may_fork: bool,
        load_deadline_s: float,
        log: EventLog | None,
    ) -> None:
        self._warm = warm
        self._nursery = nursery
        self._exits = exits
        self._custody = custody
        self._may_fork = may_fork
        self._load_deadline_s = load_deadline_s
        self._log = log
        self._loading = trio.CapacityLimiter(LOADING_MAX)

    async def handle(self, message: Acquire | ResolveFile) -> None:
        """Answer one message. Only a `PwfError` is an answer; anything else ends the daemon."""
        if isinstance(message, Acquire):
            await self._handle_acquire(message)
        else:
            await self._handle_resolve(message)

    async def _handle_acquire(self, message: Acquire) -> None:
        try:
            process = await self._make_runner(message)
        except PwfError as error:
            message.reply.fail(error)
            return
        if not message.reply.give(process):
            process.discard()

    async def _handle_resolve(self, message: ResolveFile) -> None:
        try:
            async with self._loading:
                slot = self._warm.zygote(message.interpreter)
                with self._warm.using(slot):
                    zygote = await slot.get()
                    answer = await zygote.resolve(
                        message.path, message.root, message.environment, message.deadline_s
                    )
        except PwfError as error:
            message.reply.fail(error)
        else:
            message.reply.give(answer)

    async def _make_runner(self, message: Acquire) -> RunnerProcess:
        _check_root(message.root)
        if self._may_fork and message.isolate != "spawn":
            forked = await self._fork_runner(message)
            if forked is not None:
                return forked
        return await self._start_fresh(message)

    async def _fork_runner(self, message: Acquire) -> RunnerProcess | None:
        """A runner from a template; None when this definition is not safe to fork."""
        for _ in range(ATTEMPTS_MAX):
            if self._warm.why_unsafe(message.key) is not None:
                return None
            slot = self._warm.template(message.key, message.load_bundle)
            with self._warm.using(slot):
                template = await slot.get()
                if template.unsafe is not None:
                    self._log_unsafe(message, template.unsafe)
                    return None
                self._note_demand(template)
                try:
                    (process,) = await self._fork(template, 1)
                except LinkClosed:  # it died or was stopped, or made room for another, since it was last used
                    continue
                self._give(process, message.marker, template.zygote, slot)
                self.fork_ahead(slot, template)
                return process
        raise RunnerCrashed("the template ended while it forked a runner")

    async def _fork(self, template: Template, count: int) -> list[RunnerProcess]:
        sockets: list[Sockets] = []
        identities: tuple[Identity, ...] = ()
        try:
            for _ in range(count):
                sockets.append(open_sockets())
            identities = await template.fork_runners(sockets)
        finally:
            for unused in sockets[len(identities) :]:
                unused.close()
        return [self._hold(*made, WAITING_MARKER) for made in zip(identities, sockets, strict=False)]

    # --- runners that wait for a run ---

    def reserve(self, key: TemplateKey) -> Reserved | None:
        """A runner that was forked ahead, if one lives. Does not wait."""
        found = self._warm.waiting_runner(key) if self._may_fork else None
        if found is None:
            return None
        slot, template, process = found
        ended = process.on_end = self._warm.runner_started(template.zygote, slot)
        return Reserved(self, slot, template, process, ended)

    def _note_demand(self, template: Template) -> None:
        """A run found nobody waiting. While this happens, and not for the first run alone, more are kept."""
        if template.is_used:
            template.hurries_until = trio.current_time() + HURRY_S
        template.is_used = True

    def fork_ahead(self, slot: Slot[Template], template: Template) -> None:
        """Have as many wait as may soon be wanted."""
        missing = template.missing
        if missing:
            template.coming += missing
            self._nursery.start_soon(self._fork_some_ahead, slot, template, missing)

    async def _fork_some_ahead(self, slot: Slot[Template], template: Template, count: int) -> None:
        try:
            await trio.lowlevel.checkpoint()  # the run that has just begun is told first
            if not template.is_usable:
                return
            with self._warm.using(slot):
                for process in await self._fork(template, count):
                    template.keep(process)
        except PwfError:
            pass  # whoever needs one meets the same, and is told
        finally:
            template.coming -= count

    async def _start_fresh(self, message: Acquire) -> RunnerProcess:
        async with self._loading:
            slot = self._warm.zygote(message.interpreter)
            with self._warm.using(slot):
                bundle = await message.load_bundle()
                zygote = await slot.get()
                sockets = open_sockets()
                try:
                    identity = await zygote.start_fresh(
                        bundle,
                        message.environment,
                        message.marker,
                        sockets.runner_descriptors,
                        self._load_deadline_s,
                    )
                except BaseException:
                    sockets.close()
                    raise
                process = self._hold(identity, sockets, message.marker, isolated=True)
                self._give(process, message.marker, zygote, None)
                return process

    def _log_unsafe(self, message: Acquire, reason: str) -> None:
        if self._log is not None:
            self._log("template.unsafe", definition_id=message.bundle_key, reason=reason)

    def _hold(
        self, identity: Identity, sockets: Sockets, marker: str, *, isolated: bool = False
    ) -> RunnerProcess:
        """The new runner, with a task that waits for its end."""
        sockets.close_runner_ends()
        process = RunnerProcess(
            identity,
            marker,
            sockets.messages,
            sockets.values,
            exits=self._exits,
            custody=self._custody,
            isolated=isolated,
        )
        self._nursery.start_soon(self._watch, process)
        return process

    def _give(self, process: RunnerProcess, marker: str, zygote: Origin, slot: Slot[Template] | None) -> None:
        """From now on it is a run's, and what it came from is in use until it ends."""
        process.marker = marker
        process.on_end = self._warm.runner_started(zygote, slot)

    async def _watch(self, process: RunnerProcess) -> None:
        try:
            await process.watch()
        finally:
            if process.on_end is not None:
                process.on_end()


class Reserved:
    """A runner that waits, kept for whoever is admitted next: to be taken or put back at once after that."""

    def __init__(
        self,
        makers: Makers,
        slot: Slot[Template],
        template: Template,
        process: RunnerProcess,
        ended: Callable[..., None],
    ) -> None:
        self.process = process
        self._makers = makers
        self._slot = slot
        self._template = template
        self._ended = ended

    def take(self, marker: str) -> RunnerProcess:
        """It is a run's from now on, and the next one is on its way."""
        self.process.marker = marker
        self._slot.touch()
        if self._template.is_open:  # else nothing comes of it any more, and the pool may have stopped
            self._makers.fork_ahead(self._slot, self._template)
        return self.process

    def put_back(self) -> None:
        """Nobody needed it: as if it had waited all the time."""
        if self.process.has_exited:
            self.process.close()
            return
        self.process.on_end = None
        self._ended(used=False)
        self._template.keep(self.process)


def _check_root(root: str) -> None:
    if not os.path.isdir(root):
        raise LoadFailed(f"the project's folder {root} is gone", hint="restore it, then resume the run")
