"""The lock file: the kernel's lock on it decides which process serves a home, its text says who that is.

Owns the open descriptor. Promises: the file is never removed by us, its descriptor is closed on exec and passed
to no child, so that the lock is free exactly when its holder's process is gone; a holder that neither
answers nor renews is killed only after it is proved to be the process that wrote the file (pid, start tick,
boot id), so a stranger with a recycled pid is never touched. Must never decide anything by the text alone
while the lock is free.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from pwf.actors.base.logging import Log
from pwf.clock import Clock
from pwf.errors import AlreadyServing, HomeRefused
from pwf.host.identity import Identity
from pwf.ownership import open_own
from pwf.protocol.frames import FRAME_BYTES_MAX, Hello, decode_daemon_frame
from pwf.protocol.lock_record import LockRecord, read_record

RECORD_BYTES = 2_048  # padded to one length, so that a reader never sees half of a longer text
ANSWER_S_MAX = 1.0
POLL_S = 0.1
NAMELESS_S_MAX = 5.0  # a holder that has not yet written who it is
KILL_S_MAX = 5.0


class Processes(Protocol):
    """What is needed of `pwf.host`."""

    def process_identity(self, pid: int) -> Identity | None:
        """The process that has this pid now."""

    def kill_identity(self, identity: Identity, signum: int = signal.SIGKILL) -> bool:
        """Signal exactly this process; False when it is gone."""


class LockFile:
    """Our held lock. Somebody may remove the file all the same: then clients find nobody, and another process may lock
    the one that it makes, so each `write` makes it again."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    def write(self, record: LockRecord) -> None:
        """Say who holds the lock. A full disk loses nothing: the block is there since the first write."""
        text = msgspec.json.encode(record) + b"\n"
        with contextlib.suppress(OSError):
            if not _is_at(self._path, self._descriptor):
                self._make_again()
            os.pwrite(self._descriptor, text.rjust(RECORD_BYTES), 0)
            os.ftruncate(self._descriptor, RECORD_BYTES)

    def _make_again(self) -> None:
        """Lock a new file at the path. Whoever has locked it first finds out from the database that we serve."""
        with contextlib.suppress(HomeRefused):
            descriptor = _open(self._path)
            if _lock(descriptor):
                os.dup2(descriptor, self._descriptor, inheritable=False)
            os.close(descriptor)

    def close(self) -> None:
        """Let the lock go."""
        os.close(self._descriptor)


def take_if_free(path: Path) -> LockFile:
    """Take the lock of a home that nobody serves. Raises `AlreadyServing` naming the holder; ends nobody."""
    descriptor = _open(path)
    if not _lock(descriptor):
        os.close(descriptor)
        raise serving(read_record(path) or LockRecord())
    return LockFile(descriptor, path)


class LockTaker:
    """Takes the lock of a home, from a dead or a frozen holder if need be."""

    def __init__(self, path: Path, *, clock: Clock, processes: Processes, log: Log) -> None:
        self._path = path
        self._clock = clock
        self._processes = processes
        self._log = log

    async def take(self) -> LockFile:
        """Wait as long as the holder's silence may still be explained.

        Raises `AlreadyServing` naming the holder, when it answers, or goes on renewing its lease.
        """
        while True:
            descriptor = _open(self._path)
            try:
                await self._wait_for(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            if _is_at(self._path, descriptor):
                return LockFile(descriptor, self._path)
            os.close(descriptor)  # the file was removed while we waited: somebody else may hold another

    async def _wait_for(self, descriptor: int) -> None:
        first: LockRecord | None = None
        began = trio.current_time()
        while not _lock(descriptor):
            holder = read_record(self._path)
            if holder is None or self._identity_of(holder) is None:
                # Between its lock and its first write, or between its end and the release by the kernel.
                if trio.current_time() - began > NAMELESS_S_MAX:
                    raise AlreadyServing(f"a process that did not say who it is holds {self._path}")
            elif await self._speaks(holder):
                raise serving(holder)
            elif first is None or holder.pid != first.pid:  # another one may have come while we waited
                first = holder
                self._log.warning("claim.waiting", pid=holder.pid, left_ms=self._left_ms(holder))
            elif holder.lease_until_awake_ms > first.lease_until_awake_ms:
                raise serving(holder, "; it is alive but does not answer")
            if first is not None and holder == first and self._left_ms(first) <= 0:
                await self._kill(first, descriptor)
                return
            await trio.sleep(POLL_S)

    def _identity_of(self, holder: LockRecord) -> Identity | None:
        """The live process that wrote the record; None when its pid is free or a stranger's by now."""
        if not holder.pid:
            return None
        wanted = Identity(
            pid=holder.pid, start_tick=holder.start_tick, boot_id=holder.boot_id, session=holder.session
        )
        found = self._processes.process_identity(holder.pid)
        return wanted if wanted.is_same(found) else None

    def _left_ms(self, holder: LockRecord) -> int:
        now = self._clock.now()
        return holder.lease_until_awake_ms - now.awake_ms if holder.boot_id == now.boot_id else 0

    async def _speaks(self, holder: LockRecord) -> bool:
        """Whether the holder greets whoever connects. By now another process may listen where it did."""
        with trio.move_on_after(ANSWER_S_MAX):
            try:
                stream = await trio.open_unix_socket(holder.socket)
            except (OSError, ValueError):
                return False
            async with stream:
                received = b""
                while b"\n" not in received and len(received) < FRAME_BYTES_MAX:
                    try:
                        more = await stream.receive_some()
                    except trio.BrokenResourceError:
                        return False
                    if not more:
                        return False
                    received += more
                frame = decode_daemon_frame(received.split(b"\n")[0])
                return isinstance(frame, Hello) and frame.pid == holder.pid
        return False

    async def _kill(self, holder: LockRecord, descriptor: int) -> None:
        identity = self._identity_of(holder)
        if identity is not None:
            self._log.warning("claim.takeover", pid=holder.pid, epoch=holder.epoch)
            self._processes.kill_identity(identity)
        with trio.move_on_after(KILL_S_MAX):
            while True:
                if _lock(descriptor):
                    return
                await trio.sleep(POLL_S / 10)
        raise AlreadyServing(
            f"pid {holder.pid} holds {self._path}, is silent, and could not be ended",
            hint=f"look at it: ps -o pid,stat,wchan,cmd -p {holder.pid}",
        )


def serving(holder: LockRecord, more: str = "") -> AlreadyServing:
    """The refusal that names who serves."""
    return AlreadyServing(
        f"pid {holder.pid} already serves this home{more}",
        hint="pwf status shows it; pwf stop ends it",
        details={"pid": holder.pid, "socket": holder.socket},
    )


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one at the path."""
    try:
        found, ours = path.lstat(), os.fstat(descriptor)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


def _open(path: Path) -> int:
    try:
        return open_own(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise HomeRefused(
            f"the lock file {path} can not be opened: {error.strerror}", hint=f"check it: ls -l {path}"
        ) from error


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise HomeRefused(
            f"the file system does not lock files: {error.strerror}", hint="set PWF_HOME to a local folder"
        ) from error
    return True
