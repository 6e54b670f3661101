"""What the RunnerPool is asked for, and the tasks that make it.

There is a task for each message, for each zygote and template as long as it lives, and for each runner until its end.
The pool's own task starts them all (`begin`); what another one wants started, it puts into the pool's inbox. Owns each
process from its start until the caller has it or it stands by; one that nobody took is ended.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Protocol

import msgspec
import trio

from pwf.actors.base.mailbox import Mailbox, Message
from pwf.actors.processes.custody import CustodyHandle
from pwf.actors.processes.kept import Kept
from pwf.actors.processes.link import Exits, LinkClosed
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.standing_by import TemplateKey
from pwf.actors.processes.template import Sockets, Spawner, Template, open_sockets
from pwf.actors.processes.warm import LoadBundle, Slot, WarmProcesses
from pwf.actors.processes.zygote import Zygote
from pwf.errors import LoadFailed, PwfError, RunnerCrashed, Unavailable
from pwf.host import Identity
from pwf.protocol.runner import WAITING_MARKER
from pwf.protocol.spawn import Resolved

# --- limits ---------------------------------------------------------------------------------------------------

LOADING_MAX = 4  # workflow files that are resolved or loaded into fresh processes at once
HURRY_S = 1.0  # since a run found nobody waiting
LOOK_S = 1.0  # from one look at what runners have not read to the next
IDLE_LOOK_S = 5.0  # the same where no run is live
STUCK_LOOK_S = 0.01
ATTEMPTS_MAX = 2  # to fork: a template may die between two runs; a second death in a row is its own fault


class EventLog(Protocol):
    """The daemon's log: a constant event name and ids."""

    def __call__(self, event: str, **fields: Any) -> None: ...


# --- messages -------------------------------------------------------------------------------------------------


class Acquire(Message[RunnerProcess], frozen=True, kw_only=True, eq=False):
    """Make a runner. `attempt`: from a template, counted from 1."""

    key: TemplateKey
    load_bundle: LoadBundle
    environment: dict[str, str]
    root: str
    marker: str
    isolate: str
    attempt: int = 1


class ResolveFile(Message[Resolved], frozen=True, kw_only=True, eq=False):
    """Load a file in a process of its own."""

    interpreter: str
    path: str
    root: str
    environment: dict[str, str]
    deadline_s: float


class AwaitEnd(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """From the pool's tasks: wait for the end of these new runners, which come from `origins`."""

    processes: tuple[RunnerProcess, ...]
    origins: tuple[Spawner, ...]


PoolInbox = Mailbox[Acquire | ResolveFile | AwaitEnd]


# --- making them ----------------------------------------------------------------------------------------------


class Makers:
    """The pool's work."""

    def __init__(
        self,
        warm: WarmProcesses,
        inbox: PoolInbox,
        exits: Exits,
        custody: CustodyHandle,
        *,
        may_fork: bool,
        load_deadline_s: float,
        waiting_max: int,
        log: EventLog | None,
    ) -> None:
        self.runners: set[RunnerProcess] = set()  # all that live
        self.kept = Kept()
        self._warm = warm
        self._inbox = inbox
        self._exits = exits
        self._custody = custody
        self._may_fork = may_fork
        self._load_deadline_s = load_deadline_s
        self._waiting_max = waiting_max
        self._log = log
        self._loading = trio.CapacityLimiter(LOADING_MAX)

    def begin(self, message: Acquire | ResolveFile | AwaitEnd, nursery: trio.Nursery) -> None:
        """For the pool's own task: start what a message needs, in its nursery."""
        if isinstance(message, AwaitEnd):
            for process in message.processes:
                nursery.start_soon(self._await_end, process, message.origins)
        elif isinstance(message, ResolveFile):
            zygote = self._zygote(message.interpreter, nursery)
            nursery.start_soon(self._handle_resolve, message, zygote)
        elif not os.path.isdir(message.root):
            gone = f"the project's folder {message.root} is gone"
            message.reply.fail(LoadFailed(gone, hint="restore it, then resume the run"))
        elif self._forks(message):
            slot, is_new = self._warm.template(message.key)
            if is_new:
                zygote = self._zygote(message.key[0], nursery)
                nursery.start_soon(self._live_template, slot, zygote, message)
            nursery.start_soon(self._handle_acquire, message, slot)
        else:
            zygote = self._zygote(message.key[0], nursery)
            nursery.start_soon(self._handle_fresh, message, zygote)

    def _forks(self, message: Acquire) -> bool:
        """Whether the runner comes from a template. Not every definition is safe to fork."""
        return self._may_fork and message.isolate != "spawn" and self._warm.why_unsafe(message.key) is None

    def _zygote(self, interpreter: str, nursery: trio.Nursery) -> Slot[Zygote]:
        slot, is_new = self._warm.zygote(interpreter)
        if is_new:
            nursery.start_soon(self._live_zygote, slot, interpreter)
        return slot

    # --- the tasks of zygotes and templates ---

    async def _live_zygote(self, slot: Slot[Zygote], interpreter: str) -> None:
        def tell(error: PwfError | None) -> None:
            if error is None:
                slot.fill(zygote)
            else:
                slot.fail(error)

        try:
            zygote = Zygote(interpreter, self._exits)
            await zygote.run(tell)
        except PwfError as error:
            slot.fail(error)
        finally:
            slot.fail(_stopping())

    async def _live_template(self, slot: Slot[Template], zygote: Slot[Zygote], message: Acquire) -> None:
        made = ExitStack()

        async def live(template: Template) -> None:
            made.close()
            if template.unsafe is not None:
                self._warm.note_unsafe(message.key, template.unsafe)
                slot.fill(template)
                self._warm.drop_template(message.key)
                return
            template.hurried_max = self._waiting_max
            self._warm.publish(message.key, slot, template)
            await self._keep_standing_by(slot, template)

        try:
            with made:
                made.enter_context(zygote.in_use())
                bundle = await message.load_bundle()
                origin = await zygote.get()
                environment = dict(message.key[2])
                await origin.live_template(bundle, environment, self._load_deadline_s, live)
        except PwfError as error:
            slot.fail(error)
        finally:
            slot.fail(_stopping())
            self._warm.close_retired()

    async def _keep_standing_by(self, slot: Slot[Template], template: Template) -> None:
        """Have as many stand by as may soon be wanted, until the template is closed."""
        while template.is_open:
            missing = template.missing if template.is_used else 0
            # Whether it is usable, its files say: they are asked last.
            if missing and template.is_usable and await self._fork_ahead(slot, template, missing):
                if missing > 1:  # so many were taken within the time of the hurry: it goes on
                    template.hurries_until = trio.current_time() + HURRY_S
                continue
            await template.standing_by.looked_at.wait(math.inf)
            await trio.lowlevel.checkpoint()  # the run that has just begun is told first

    async def _fork_ahead(self, slot: Slot[Template], template: Template, count: int) -> bool:
        try:
            with slot.in_use():
                for process in await self._fork(template, count):
                    template.standing_by.put(process)
        except PwfError:
            return False  # whoever needs one meets the same, and is told
        return True

    # --- the tasks of messages. Only a `PwfError` is an answer; anything else ends the daemon ---

    async def _handle_resolve(self, message: ResolveFile, slot: Slot[Zygote]) -> None:
        async def resolve(message: ResolveFile) -> Resolved:
            async with self._loading:
                with slot.in_use():
                    zygote = await slot.get()
                    return await zygote.resolve(
                        message.path, message.root, message.environment, message.deadline_s
                    )

        await self._inbox.answer(message, resolve)
        self._warm.close_retired()

    async def _handle_fresh(self, message: Acquire, slot: Slot[Zygote]) -> None:
        async def start() -> RunnerProcess:
            async with self._loading:
                with slot.in_use():
                    return await self._start_fresh(message, slot)

        await self._give(message, start)

    async def _handle_acquire(self, message: Acquire, slot: Slot[Template]) -> None:
        await self._give(message, lambda: self._fork_runner(message, slot))

    async def _give(self, message: Acquire, make: Callable[[], Awaitable[RunnerProcess]]) -> None:
        """Make the runner and answer. One that must be made in another way is put into the inbox again."""
        try:
            try:
                process = await make()
            except _Again as again:
                await self._inbox.put(again.message)
                return
        except PwfError as error:
            message.reply.fail(error)
        except BaseException:
            message.reply.fail(_stopping())
            raise
        else:
            if not message.reply.give(process):
                process.discard()
        self._warm.close_retired()

    async def _fork_runner(self, message: Acquire, slot: Slot[Template]) -> RunnerProcess:
        with slot.in_use():
            template = await slot.get()
            if template.unsafe is not None:
                self._log_unsafe(message, template.unsafe)
                raise _Again(msgspec.structs.replace(message, isolate="spawn"))
            again = msgspec.structs.replace(message, attempt=message.attempt + 1)
            if not template.is_current and message.attempt < ATTEMPTS_MAX:  # edited while it was loading
                raise _Again(again)
            self._note_demand(template)
            try:
                (process,) = await self._fork(template, 1)
            except LinkClosed:  # it died or was stopped, or made room for another, since it was last used
                if message.attempt >= ATTEMPTS_MAX:
                    raise RunnerCrashed("the template ended while it forked a runner") from None
                raise _Again(again) from None
            process.marker = message.marker
            template.standing_by.looked_at.wake()
            return process

    # --- runners ---

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
        made = [self._hold(*one, WAITING_MARKER) for one in zip(identities, sockets, strict=False)]
        for process in made:
            process.goes_back = template.standing_by.take_back
        await self._have_watched(made, (template.zygote, template))
        return made

    async def _start_fresh(self, message: Acquire, slot: Slot[Zygote]) -> RunnerProcess:
        bundle = await message.load_bundle()
        zygote = await slot.get()
        sockets = open_sockets()
        try:
            identity = await zygote.start_fresh(
                bundle, message.environment, message.marker, sockets.runner_descriptors, self._load_deadline_s
            )
        except BaseException:
            sockets.close()
            raise
        process = self._hold(identity, sockets, message.marker, isolated=True)
        await self._have_watched([process], (zygote,))
        return process

    def _hold(
        self, identity: Identity, sockets: Sockets, marker: str, *, isolated: bool = False
    ) -> RunnerProcess:
        sockets.close_runner_ends()
        return RunnerProcess(
            identity,
            marker,
            sockets.messages,
            sockets.values,
            sockets.prints,
            exits=self._exits,
            custody=self._custody,
            isolated=isolated,
        )

    async def _have_watched(self, made: list[RunnerProcess], origins: tuple[Spawner, ...]) -> None:
        """From now on they count as living, and what they came from is in use until they end."""
        for known in (self.runners, *(origin.runners for origin in origins)):
            known.update(made)
        try:
            await self._inbox.put(AwaitEnd(processes=tuple(made), origins=origins))
        except BaseException:  # the pool stops
            for process in made:
                process.discard()
            raise

    async def _await_end(self, process: RunnerProcess, origins: tuple[Spawner, ...]) -> None:
        try:
            await process.watch()
        finally:
            for known in (self.runners, *(origin.runners for origin in origins)):
                known.discard(process)
            if process.marker != WAITING_MARKER:
                self._warm.note_use(origins)
            self._warm.close_retired()

    async def read_what_is_stuck(self) -> None:
        """The task that reads, once in a while, what a runner can't read itself: its step holds the interpreter."""
        while True:
            is_busy = any(process.marker != WAITING_MARKER for process in self.runners)
            await trio.sleep(LOOK_S if is_busy else IDLE_LOOK_S)
            stuck = [process for process in self.runners if process.prints.is_stuck()]
            while stuck:
                for process in stuck:
                    process.prints.keep()
                await trio.sleep(STUCK_LOOK_S)  # what it goes on printing, it prints at once
                stuck = [process for process in stuck if process.prints.has_unread]

    def _note_demand(self, template: Template) -> None:
        """A run found nobody waiting. While this happens, and not for the first run alone, more are kept."""
        if template.is_used:
            template.hurries_until = trio.current_time() + HURRY_S
        template.is_used = True

    def _log_unsafe(self, message: Acquire, reason: str) -> None:
        if message.isolate == "keep":
            self.kept.note(message.key[1], f"its code is not safe to fork: {reason}")
        if self._log is not None:
            self._log("template.unsafe", definition_id=message.key[1], reason=reason)


class _Again(Exception):
    """A message is to be begun anew, in another way."""

    def __init__(self, message: Acquire) -> None:
        self.message = message


def _stopping() -> Unavailable:
    return Unavailable("the runner pool is stopping")
