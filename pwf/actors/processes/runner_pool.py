"""RunnerPool: runner processes on demand, forked from templates, which come from one zygote per interpreter.

Owns: the zygotes and templates, and every process from its start until a caller has it.
Promises: a runner does nothing before its `Launch`; one that nobody took (a cancelled caller) is ended; workflow
code never runs in the daemon; templates and zygotes are bounded in number and end when idle.
In: `acquire`, `resolve`, `reserve` (from any task; they take a runner that stands by, which is published, or put a
message into the inbox). Out: `RunnerProcess`, `Resolved`.
If it dies: the daemon ends, and with its sockets every zygote, template and runner.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import trio

from pwf import host
from pwf.actors.base.mailbox import Mailbox, ask
from pwf.actors.processes.custody import PROOF_TIMEOUT_S, Custody, Sought
from pwf.actors.processes.kept import Kept
from pwf.actors.processes.link import Exits
from pwf.actors.processes.making import Acquire, EventLog, Makers, PoolInbox, ResolveFile
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.standing_by import template_key
from pwf.actors.processes.template import WAITING_HURRIED_MAX
from pwf.actors.processes.warm import (
    IDLE_S,
    LOAD_DEADLINE_S,
    TEMPLATES_MAX,
    ZYGOTE_IDLE_S,
    ZYGOTES_MAX,
    LoadBundle,
    WarmProcesses,
)
from pwf.host import Identity
from pwf.protocol.runner import WAITING_MARKER
from pwf.protocol.spawn import Resolved

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 256
NO_PID = -1
TAKE_MAX = 64
RESOLVE_DEADLINE_S = 30.0
RUNNERS_MAX = 4  # as the configuration has it where it says nothing
WAITING_SHARE = 2  # of these, so many may wait for a run while runs come fast


# --- the actor and its handle in one --------------------------------------------------------------------------


class RunnerPool:
    """`run` is the actor's task; the other public methods are its handle, for any task.

    `fork` False gives every run a fresh process. `runners_max`: how many runs there may be at once.
    """

    def __init__(
        self,
        *,
        log: EventLog | None = None,
        fork: bool = host.SAFE_TO_FORK,
        runners_max: int = RUNNERS_MAX,
        templates_max: int = TEMPLATES_MAX,
        zygotes_max: int = ZYGOTES_MAX,
        idle_s: float = IDLE_S,
        zygote_idle_s: float = ZYGOTE_IDLE_S,
        load_deadline_s: float = LOAD_DEADLINE_S,
    ) -> None:
        self._inbox: PoolInbox = Mailbox(INBOX_MAX, "the runner pool")
        self._custody = Custody()
        self._warm = WarmProcesses(
            templates_max=templates_max,
            zygotes_max=zygotes_max,
            idle_s=idle_s,
            zygote_idle_s=zygote_idle_s,
        )
        self.reserve = self._warm.standing_by.reserve  # of what is published: no task is asked
        self._makers = Makers(
            self._warm,
            self._inbox,
            Exits(),
            self._custody.handle,
            may_fork=fork,
            load_deadline_s=load_deadline_s,
            waiting_max=min(WAITING_SHARE * runners_max, WAITING_HURRIED_MAX),
            log=log,
        )

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
        key = template_key(interpreter, bundle_key, environment)
        waiting = self.reserve(key) if isolate != "spawn" else None
        if waiting is not None:
            return waiting.take(marker)
        message = Acquire(
            key=key,
            load_bundle=load_bundle,
            environment=environment,
            root=root,
            marker=marker,
            isolate=isolate,
        )
        return await ask(self._inbox, message)

    @property
    def kept(self) -> Kept:
        """What became of the processes of definitions that ask to keep them."""
        return self._makers.kept

    def runners(self) -> list[tuple[str, Identity]]:
        """Marker and identity of every runner that has a run."""
        held = [process for process in self._makers.runners if process.marker != WAITING_MARKER]
        return [(process.marker, process.identity) for process in held]

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
        return await ask(
            self._inbox,
            ResolveFile(
                interpreter=interpreter, path=path, root=root, environment=environment, deadline_s=deadline_s
            ),
        )

    async def prove_dead(
        self, identity: Identity, marker: str, *, timeout_s: float = PROOF_TIMEOUT_S
    ) -> bool:
        """For a runner that nobody holds: kill it and all that it started until nothing is left (custody.py).

        One that has stayed may have another run by now: what is left of this one is found by its marker alone.
        """
        if any(held.identity == identity and held.marker != marker for held in self._makers.runners):
            identity = msgspec.structs.replace(identity, pid=NO_PID, session=NO_PID)
        return await self._custody.handle.prove_dead(identity, marker, timeout_s=timeout_s)

    async def left_nothing(self, sought: Sequence[Sought]) -> list[bool]:
        """Which of these runners of an earlier daemon are proved dead by one look at all (custody.py)."""
        return await self._custody.handle.left_nothing(sought)

    # --- the task ---

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then end every zygote, template and runner, within a bound."""
        with self._inbox.open():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._custody.run)
                nursery.start_soon(self._warm.keep_bounded)
                nursery.start_soon(self._makers.read_what_is_stuck)
                task_status.started()
                try:
                    while True:
                        for message in await self._inbox.take(TAKE_MAX):
                            self._makers.begin(message, nursery)
                finally:
                    self._warm.close_all()
