"""RunnerPool: runner processes on demand, forked from templates, which come from one zygote per interpreter.

Owns: the zygotes and templates, and every process from its start until a caller has it.
Promises: a runner does nothing before its `Launch`; one that nobody took (a cancelled caller) is ended; workflow
code never runs in the daemon; templates and zygotes are bounded in number and end when idle.
In: `acquire`, `resolve` (from any task; they take a runner that waits, or put a message into the inbox).
Out: `RunnerProcess`, `Resolved`.
If it dies: the daemon ends, and with its sockets every zygote, template and runner.
"""

from __future__ import annotations

import trio

from pwf import host
from pwf.actors.base.mailbox import Mailbox
from pwf.actors.processes.custody import PROOF_TIMEOUT_S, Custody
from pwf.actors.processes.link import Exits
from pwf.actors.processes.making import Acquire, EventLog, Makers, Reserved, ResolveFile
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.warm import (
    IDLE_S,
    LOAD_DEADLINE_S,
    TEMPLATES_MAX,
    ZYGOTE_IDLE_S,
    ZYGOTES_MAX,
    LoadBundle,
    TemplateKey,
    WarmProcesses,
)
from pwf.errors import RunnerCrashed
from pwf.host import Identity
from pwf.protocol.spawn import Resolved

INBOX_MAX = 256
TAKE_MAX = 64
RESOLVE_DEADLINE_S = 30.0


class RunnerPool:
    """`run` is the actor's task; the other public methods are its handle, for any task.

    `fork` False gives every run a fresh process.
    """

    def __init__(
        self,
        *,
        log: EventLog | None = None,
        custody: Custody | None = None,
        fork: bool = host.SAFE_TO_FORK,
        templates_max: int = TEMPLATES_MAX,
        zygotes_max: int = ZYGOTES_MAX,
        idle_s: float = IDLE_S,
        zygote_idle_s: float = ZYGOTE_IDLE_S,
        load_deadline_s: float = LOAD_DEADLINE_S,
    ) -> None:
        self.custody = custody or Custody()
        self._log = log
        self._may_fork = fork
        self._load_deadline_s = load_deadline_s
        self._templates_max = templates_max
        self._zygotes_max = zygotes_max
        self._idle_s = idle_s
        self._zygote_idle_s = zygote_idle_s
        self._inbox: Mailbox[Acquire | ResolveFile] = Mailbox(INBOX_MAX, "the runner pool")
        self._exits = Exits()
        self._makers: Makers | None = None

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
        message = Acquire(bundle_key, load_bundle, interpreter, environment, root, marker, isolate)
        waiting = self.reserve(message.key) if isolate != "spawn" else None
        if waiting is not None:
            return waiting.take(marker)
        await self._inbox.put(message)
        return await message.reply.wait()

    def reserve(self, key: TemplateKey) -> Reserved | None:
        """A runner that waits for a run, if one lives; the caller takes it or puts it back. Does not wait."""
        return self._makers.reserve(key) if self._makers is not None else None

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
        message = ResolveFile(interpreter, path, root, environment, deadline_s)
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
            warm = WarmProcesses(
                self._exits,
                nursery,
                templates_max=self._templates_max,
                zygotes_max=self._zygotes_max,
                idle_s=self._idle_s,
                zygote_idle_s=self._zygote_idle_s,
                load_deadline_s=self._load_deadline_s,
            )
            makers = self._makers = Makers(
                warm,
                nursery,
                self._exits,
                self.custody,
                may_fork=self._may_fork,
                load_deadline_s=self._load_deadline_s,
                log=self._log,
            )
            nursery.start_soon(warm.keep_bounded)
            task_status.started()
            try:
                while True:
                    for message in await self._inbox.take(TAKE_MAX):
                        nursery.start_soon(makers.handle, message)
            finally:
                self._makers = None
                for message in self._inbox.close():
                    message.reply.fail(RunnerCrashed("the runner pool has stopped"))
                warm.close_all()
