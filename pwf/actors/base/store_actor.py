"""StoreActor: runs every transaction, one at a time and in order, and says what changed.

Owns: the executor, and with it the SQLite connections.
Promises: a command is answered after its commit and never before; what waits together is committed together; a
caller that is cancelled before its command was taken leaves no trace, and one that is cancelled later learns the
outcome first; after each commit the changed keys go to every listener.
In: commands (`StoreHandle.write`) and reads (`StoreHandle.read`). Out: answers, changed keys.
If it dies: waiting callers get `Unavailable`, and the daemon ends and recovers from the file. It dies of
`StoreBroken` (a commit that failed other than by busy or a full disk, or a damaged file).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import trio

from pwf.actors.base.mailbox import Mailbox, Message
from pwf.errors import PwfError, Unavailable
from pwf.store.batch import HeldClaim, Job, JobResult
from pwf.store.executor import Executor
from pwf.store.reading import READ_LIMIT_S
from pwf.store.tx import Tx

C = TypeVar("C")
R = TypeVar("R")

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 1024
BATCH_MAX = 256
BALLAST_RETRY_S = 5.0
CUT_RETRY_S = 5.0  # a foreign reader that has ended is noticed within this
PATIENCE_S = 0.02  # that what nobody waits for waits for company


# --- messages -------------------------------------------------------------------------------------------------


class Write(Message[Any], frozen=True, kw_only=True, eq=False):
    """A command on its way."""

    job: Job

    def settle(self, answer: JobResult) -> None:
        """Answer whoever waits."""
        if answer.error is not None:
            self.reply.fail(answer.error)
        else:
            self.reply.give(answer.value)


# --- the handle -----------------------------------------------------------------------------------------------


class StoreHandle:
    """What other actors hold of the store."""

    def __init__(self, inbox: Mailbox[Write], executor: Executor) -> None:
        self._inbox = inbox
        self._executor = executor
        self._patient: list[Write] = []
        self._listeners: list[Callable[[frozenset[str]], None]] = []
        self.disk_full = False  # admission and uploads stop while it is

    async def write(self, handler: Callable[[Tx, C], R], command: C, *, before_claim: bool = False) -> R:
        """Run `handler(tx, command)` in a transaction; its result, once that is committed.

        Raises what the handler raised (then nothing of it was written), `Unavailable`, `DiskFull`, or
        `OutcomeUnknown` when the commit failed. Every command must be safe to repeat under its fence or
        receipt. Cancelled while it waits for its turn, it never runs; cancelled later, the caller gets the
        outcome first. `before_claim`: for the claim itself, which no other command may precede.
        """
        entry = Write(job=Job(handler, command, before_claim))
        await self._inbox.put(entry)
        result: R = await entry.reply.wait()
        return result

    async def write_along(self, handler: Callable[[Tx, C], R], command: C) -> R:
        """The same for what nobody waits for: it goes with the next batch that there is, alone after `PATIENCE_S`."""
        entry = Write(job=Job(handler, command))
        self._patient.append(entry)
        with trio.move_on_after(PATIENCE_S):
            result: R = await entry.reply.wait()
            return result
        return await self.write(handler, command)  # nobody came, and it was withdrawn

    def take_patient(self) -> list[Write]:
        """For the actor: what goes with the batch that it has begun."""
        taken, self._patient = self._patient, []
        return taken

    async def read(self, handler: Callable[[Tx, C], R], query: C, *, limit_s: float = READ_LIMIT_S) -> R:
        """Run `handler(tx, query)` on one snapshot of what is committed. Can't write.

        Raises what the handler raised, or `Unavailable` when it took longer than `limit_s` (raise that only for
        what a person asked for and waits for). A cancelled caller stops it.
        """
        return await self._executor.read(handler, query, limit_s=limit_s)

    async def glance(self, handler: Callable[[Tx, C], R], query: C) -> R:
        """The same for a row or two by their keys: done at once, in this thread, when it can be. No checkpoint then."""
        return await self._executor.glance(handler, query, limit_s=READ_LIMIT_S)

    async def read_apart(self, handler: Callable[[Tx, C], R], query: C, *, limit_s: float) -> R:
        """The same on a connection of its own: for what reads everything, which nobody else should wait for."""
        return await self._executor.read_apart(handler, query, limit_s=limit_s)

    async def cut_log(self) -> bool:
        """Bring everything into the database's file and cut its log off: the files then have the size that they need.

        Whether that could be done: another process that reads the database prevents it until it has ended.
        """
        return await self._executor.cut()

    async def rescue(self, target: Path) -> bool:
        """Write all that was committed to a new file: the database's own have lost their names. Whether it could be."""
        try:
            await self._executor.call(lambda writer: writer.rescue(target))
        except (OSError, apsw.Error, PwfError):
            return False
        return True

    def on_change(self, listener: Callable[[frozenset[str]], None]) -> None:
        """From now on, `listener` gets the keys that each commit has changed, in the store's own task.

        It must only wake others: neither raise nor take long.
        """
        self._listeners.append(listener)

    def tell(self, changed: frozenset[str]) -> None:
        """For the actor: these keys have changed."""
        if changed:
            for listener in self._listeners:
                listener(changed)

    async def hold_claim(self, claim: HeldClaim) -> None:
        """From now on every batch first checks that the daemon's epoch is still this one.

        Until then a guarded store takes only commands that are flagged `before_claim`.
        """

        def hold(writer: Any) -> None:
            writer.claim = claim

        await self._executor.call(hold)


# --- the actor ------------------------------------------------------------------------------------------------


class StoreActor:
    """The one task that hands batches to the executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._inbox: Mailbox[Write] = Mailbox(INBOX_MAX, "the store")
        self._retry_space_at = math.inf
        self._cut_at = math.inf  # the log is long, and somebody's read kept it from being cut
        self.handle = StoreHandle(self._inbox, executor)

    async def run(self, *, task_status: trio.TaskStatus[StoreHandle] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the store, then serve until cancelled. Raises `StoreRefused` at the start, `StoreBroken` later."""
        with self._inbox.open():
            async with self._executor:
                self._note_space(await self._executor.call(lambda writer: writer.tx.disk_full))
                task_status.started(self.handle)
                while True:
                    await self._serve()

    async def _serve(self) -> None:
        entries: list[Write] = []
        due = min(self._retry_space_at, self._cut_at)
        if due == math.inf:
            entries = await self._inbox.take(BATCH_MAX, gathers=True)
        else:
            with trio.CancelScope(deadline=due):
                entries = await self._inbox.take(BATCH_MAX, gathers=True)
        if trio.current_time() >= self._cut_at:
            cut = await self._executor.cut()
            self._cut_at = math.inf if cut else trio.current_time() + CUT_RETRY_S
        if self.handle.disk_full and trio.current_time() >= self._retry_space_at:
            regained = await self._executor.call(lambda writer: writer.rebuild_ballast())
            self._note_space(not regained)
        taken = [entry for entry in (*entries, *self.handle.take_patient()) if entry.reply.take()]
        if taken:
            await self._run_batch(taken)

    def _note_space(self, disk_full: bool, *, again: bool = True) -> None:
        if disk_full != self.handle.disk_full:
            self.handle.disk_full = disk_full
            self.handle.tell(frozenset({"daemon"}))
        elif not again:
            return
        self._retry_space_at = trio.current_time() + BALLAST_RETRY_S if disk_full else math.inf

    async def _run_batch(self, entries: list[Write]) -> None:
        try:
            batch = await self._executor.run([entry.job for entry in entries])
        except BaseException:
            for entry in entries:
                entry.settle(JobResult(error=Unavailable("the store has stopped")))
            raise
        for entry, answer in zip(entries, batch.answers, strict=True):
            entry.settle(answer)
        self.handle.tell(batch.changed)
        self._note_space(batch.disk_full, again=False)
        if batch.broken is not None:
            raise batch.broken
        # Those who were answered go first, and may have more for the next batch: whether there is one shows then.
        await trio.lowlevel.checkpoint()
        owed = await self._executor.settle(idle=self._inbox.empty)
        self._cut_at = min(self._cut_at, trio.current_time() + CUT_RETRY_S) if owed else math.inf
