"""RunnerPool: runner processes on demand, forked from templates, which come from one zygote per interpreter.

Owns: the zygotes and templates, and every process from its start until a caller has it.
Promises: a runner does nothing before its `Launch`; one that nobody took (a cancelled caller) is ended; workflow
code never runs in the daemon; templates and zygotes are bounded in number and end when idle.
In: `acquire`, `resolve` (from any task; they put a message into the inbox). Out: `RunnerProcess`, `Resolved`.
If it dies: the daemon ends, and with its sockets every zygote, template and runner.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import trio

from pwf import host
from pwf.actors.custody import PROOF_TIMEOUT_S, Custody
from pwf.actors.mailbox import Mailbox
from pwf.actors.runner_process import RunnerProcess
from pwf.actors.spawn_link import Exits, LinkClosed
from pwf.actors.spawner import Sockets, Template, Zygote, open_sockets
from pwf.actors.warm import LOAD_DEADLINE_S, LoadBundle, Slot, TemplateKey, WarmProcesses
from pwf.errors import LoadFailed, PwfError, RunnerCrashed
from pwf.host import Identity
from pwf.protocol.spawn import Resolved

# --- limits -------------------------------------------------------------------------------------------------

INBOX_MAX = 256
TAKE_MAX = 64
LOADING_MAX = 4  # workflow files that are resolved or loaded into fresh processes at once
ATTEMPTS_MAX = 2  # to fork: a template may die between two runs; a second death in a row is its own fault
RESOLVE_DEADLINE_S = 30.0

T = TypeVar("T")


class EventLog(Protocol):
    """The daemon's log: a constant event name and ids."""

    def __call__(self, event: str, **fields: Any) -> None: ...


# --- messages -----------------------------------------------------------------------------------------------


class _Reply(Generic[T]):
    """A value or an error, taken once. `abandoned`: the caller was cancelled."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._value: list[T] = []
        self._error: PwfError | None = None
        self.abandoned = False

    def give(self, value: T) -> None:
        self._value.append(value)
        self._done.set()

    def fail(self, error: PwfError) -> None:
        self._error = error
        self._done.set()

    async def wait(self) -> T:
        try:
            await self._done.wait()
        except trio.Cancelled:
            self.abandoned = True
            for value in self._value:  # given in the same instant
                if isinstance(value, RunnerProcess):
                    await value.discard()
            raise
        if self._error is not None:
            raise self._error
        return self._value[0]


@dataclass(frozen=True)
class _Acquire:
    bundle_key: str
    load_bundle: LoadBundle
    interpreter: str
    environment: dict[str, str]
    root: str
    marker: str
    isolate: str
    reply: _Reply[RunnerProcess] = field(default_factory=_Reply)

    @property
    def key(self) -> TemplateKey:
        """What one template serves: loading may depend on the environment."""
        return self.interpreter, self.bundle_key, tuple(sorted(self.environment.items()))


@dataclass(frozen=True)
class _Resolve:
    interpreter: str
    path: str
    root: str
    environment: dict[str, str]
    deadline_s: float
    reply: _Reply[Resolved] = field(default_factory=_Reply)


# --- the actor ----------------------------------------------------------------------------------------------


class RunnerPool:
    """`run` is the actor's task; the other public methods are its handle, for any task.

    `fork` False gives every run a fresh process. `limits` go to `WarmProcesses`: templates_max, zygotes_max, idle_s.
    """

    def __init__(
        self,
        *,
        log: EventLog | None = None,
        custody: Custody | None = None,
        fork: bool = host.SAFE_TO_FORK,
        load_deadline_s: float = LOAD_DEADLINE_S,
        **limits: Any,
    ) -> None:
        self.custody = custody or Custody()
        self._log = log
        self._may_fork = fork
        self._load_deadline_s = load_deadline_s
        self._limits = {"load_deadline_s": load_deadline_s, **limits}
        self._inbox: Mailbox[_Acquire | _Resolve] = Mailbox(INBOX_MAX, "the runner pool")
        self._exits = Exits()

    async def acquire(
        self,
        *,
        bundle_key: str,
        load_bundle: LoadBundle,
        interpreter: str,
        environment: dict[str, str],
        root: str,
        marker: str,
        isolate: str = "fork",
    ) -> RunnerProcess:
        """A new runner for the definition `bundle_key`, which waits for its `Launch`.

        `load_bundle` is awaited only when no template is warm. Raises `EnvironmentMissing` (the interpreter is gone
        or its pwf does not fit), `LoadFailed` or `GraphError` (the pinned code does not load), `RunnerCrashed` (no
        process could be made). A caller that is cancelled leaves no process behind.
        """
        message = _Acquire(bundle_key, load_bundle, interpreter, environment, root, marker, isolate)
        await self._inbox.put(message)
        return await message.reply.wait()

    async def resolve(
        self,
        interpreter: str,
        path: str,
        root: str,
        environment: dict[str, str],
        *,
        deadline_s: float = RESOLVE_DEADLINE_S,
    ) -> Resolved:
        """Load a workflow's file in a process of its own. A file that kills or stalls that process is an answer.

        Raises `EnvironmentMissing` or `RunnerCrashed`.
        """
        message = _Resolve(interpreter, path, root, environment, deadline_s)
        await self._inbox.put(message)
        return await message.reply.wait()

    async def prove_dead(
        self, identity: Identity, marker: str, *, timeout_s: float = PROOF_TIMEOUT_S
    ) -> bool:
        """For a runner of an earlier daemon: kill it and all that it started until nothing is left (custody.py)."""
        return await self.custody.prove_dead(identity, marker, timeout_s=timeout_s)

    # --- the task ---

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then end every zygote, template and runner, within a bound."""
        async with trio.open_nursery() as nursery:
            warm = WarmProcesses(self._exits, nursery, **self._limits)
            makers = _Makers(self, warm, nursery)
            nursery.start_soon(warm.keep_bounded)
            task_status.started()
            try:
                while True:
                    for message in await self._inbox.take(TAKE_MAX):
                        nursery.start_soon(makers.handle, message)
            finally:
                for message in self._inbox.close():
                    message.reply.fail(RunnerCrashed("the runner pool has stopped"))
                warm.close_all()


class _Makers:
    """One task per message makes what it asks for. Lives as long as `RunnerPool.run`."""

    def __init__(self, pool: RunnerPool, warm: WarmProcesses, nursery: trio.Nursery) -> None:
        self._warm = warm
        self._nursery = nursery
        self._exits = pool._exits
        self._custody = pool.custody
        self._may_fork = pool._may_fork
        self._load_deadline_s = pool._load_deadline_s
        self._log = pool._log
        self._loading = trio.CapacityLimiter(LOADING_MAX)

    async def handle(self, message: _Acquire | _Resolve) -> None:
        """Answer one message. Only a `PwfError` is an answer; anything else ends the daemon."""
        if isinstance(message, _Acquire):
            await self._handle_acquire(message)
        else:
            await self._handle_resolve(message)

    async def _handle_acquire(self, message: _Acquire) -> None:
        try:
            process = await self._make_runner(message)
        except PwfError as error:
            message.reply.fail(error)
            return
        if message.reply.abandoned:
            await process.discard()
        else:
            message.reply.give(process)

    async def _handle_resolve(self, message: _Resolve) -> None:
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

    async def _make_runner(self, message: _Acquire) -> RunnerProcess:
        _check_root(message.root)
        if self._may_fork and message.isolate != "spawn":
            forked = await self._fork_runner(message)
            if forked is not None:
                return forked
        return await self._start_fresh(message)

    async def _fork_runner(self, message: _Acquire) -> RunnerProcess | None:
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
                sockets = open_sockets()
                try:
                    identity = await template.fork_runner(
                        message.environment, message.marker, sockets.runner_descriptors
                    )
                except LinkClosed:  # it died, or made room for another, since it was last used
                    sockets.close()
                except BaseException:
                    sockets.close()
                    raise
                else:
                    return self._hold(identity, message, sockets, template.zygote, slot)
        raise RunnerCrashed("the template ended while it forked a runner")

    async def _start_fresh(self, message: _Acquire) -> RunnerProcess:
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
                return self._hold(identity, message, sockets, zygote, None)

    def _log_unsafe(self, message: _Acquire, reason: str) -> None:
        if self._log is not None:
            self._log("template.unsafe", definition_id=message.bundle_key, reason=reason)

    def _hold(
        self,
        identity: Identity,
        message: _Acquire,
        sockets: Sockets,
        zygote: Zygote,
        slot: Slot[Template] | None,
    ) -> RunnerProcess:
        """The new runner, with a task that waits for its end."""
        sockets.close_runner_ends()
        process = RunnerProcess(
            identity,
            message.marker,
            sockets.messages,
            sockets.values,
            exits=self._exits,
            custody=self._custody,
            isolated=slot is None,
        )
        self._nursery.start_soon(self._watch, process, self._warm.runner_started(zygote, slot))
        return process

    async def _watch(self, process: RunnerProcess, ended: Callable[[], None]) -> None:
        try:
            await process.watch()
        finally:
            ended()


def _check_root(root: str) -> None:
    if not os.path.isdir(root):
        raise LoadFailed(f"the project's folder {root} is gone", hint="restore it, then resume the run")
