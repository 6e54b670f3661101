"""Backups: makes verified copies of the database while it is served, one at a time.

Owns the copy that is being written. Promises: neither commands nor reads wait for it, since it reads a snapshot of its
own in a thread; one that nobody waits for any more is given up, and leaves no file.
In: `make`. Out: a file. If it dies: the daemon ends; what a crash leaves, `pwf.store.new_file` says.
"""

from __future__ import annotations

from pathlib import Path

import trio

from pwf.actors.base.logging import Log
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.base.reply import Withdrawn
from pwf.clock import Clock
from pwf.store.backup import Backup, write_backup

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 16

# --- messages -------------------------------------------------------------------------------------------------


class MakeBackup(Message[Backup], frozen=True, kw_only=True, eq=False):
    """Copy the database to a new file."""

    target: Path


# --- the handle -----------------------------------------------------------------------------------------------


class BackupsHandle:
    """What others hold of it."""

    def __init__(self, inbox: Mailbox[MakeBackup]) -> None:
        self._inbox = inbox

    async def make(self, target: Path) -> Backup:
        """Write a backup to a new file. Raises as `pwf.store.backup.write_backup`. Cancelled: no file is left."""
        return await ask(self._inbox, MakeBackup(target=target))


# --- the actor ------------------------------------------------------------------------------------------------


class Backups:
    """The actor."""

    def __init__(self, database: Path, epoch: int, clock: Clock, log: Log) -> None:
        self._database = database
        self._epoch = epoch
        self._clock = clock
        self._log = log
        self._inbox: Mailbox[MakeBackup] = Mailbox(INBOX_MAX, "the maker of backups")
        self.handle = BackupsHandle(self._inbox)

    async def run(self) -> None:
        """Serve until cancelled."""
        with self._inbox.open():
            while True:
                for message in await self._inbox.take(1):
                    await self._inbox.answer(message, self._handle_make)

    async def _handle_make(self, message: MakeBackup) -> Backup:
        made = await trio.to_thread.run_sync(self._write, message)
        if message.reply.withdrawn:  # in the last instant
            message.target.unlink(missing_ok=True)
            raise Withdrawn
        self._log("backup.made", path=str(message.target), bytes=made.size, runs=made.runs)
        return made

    def _write(self, message: MakeBackup) -> Backup:
        def check_wanted() -> None:
            trio.from_thread.check_cancelled()
            message.reply.check_wanted()

        return write_backup(
            self._database,
            message.target,
            now=self._clock.now(),
            epoch=self._epoch,
            check_wanted=check_wanted,
        )
