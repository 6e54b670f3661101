"""What happens when the daemon dies of an error: its cause in one line, and the guard against dying in a loop.

Owns the file `deaths.json` in the home. Promises: after `LOOP_DEATHS` deaths in a row with one cause, each
soon after a start, the next start is degraded: it admits nothing, serves reads, and says why. An ordered
stop, or a daemon that lived long, ends the row. A process that was killed from outside leaves no cause and
is not counted: killing it three times must not degrade anything. While a run is suspected of the deaths, the store
sees to it (it is admitted alone, then held), and the row may be longer.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import msgspec
import trio

from pwf.actors.base.logging import Log
from pwf.clock import Clock
from pwf.errors import PwfError
from pwf.ownership import open_own

LOOP_DEATHS = 3
LOOP_DEATHS_SUSPECTED = 9  # more than a suspected run may cause before it is held
SOON_MS = 10 * 60 * 1000  # a daemon that lived longer did not die of its start
KEPT = 10
CRASHED = "Fatal Python error: "  # what `faulthandler` writes
LAST_WORDS_BYTES = 4_000  # of what a daemon has printed: what one record holds


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """One end by an error of the process `pid`. `lived_ms` since its start."""

    at_ms: int
    cause: str
    lived_ms: int
    pid: int = 0


class Deaths:
    """The record. A file that can not be read or written guards nothing, and stops nothing."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._path = home / "deaths.json"
        self._clock = clock
        self._started_ms = clock.now().elapsed_ms

    def why_degraded(self, *, suspected: bool = False) -> str | None:
        """The common cause of the last deaths, when they make a loop. `suspected`: some run may be to blame."""
        most = LOOP_DEATHS_SUSPECTED if suspected else LOOP_DEATHS
        last = self._read()[-most:]
        causes = {death.cause for death in last if death.lived_ms < SOON_MS}
        if len(last) < most or len(causes) != 1 or any(death.lived_ms >= SOON_MS for death in last):
            return None
        return f"it died {most} times in a row of the same cause: {causes.pop()}"

    def has(self, pid: int) -> bool:
        """Whether the last one that died of an error was this process."""
        return any(death.pid == pid for death in self._read()[-1:])

    def note(self, error: BaseException) -> None:
        """This daemon dies of `error`."""
        now = self._clock.now()
        death = Death(
            at_ms=now.wall_ms,
            cause=cause_of(error),
            lived_ms=max(0, now.elapsed_ms - self._started_ms),
            pid=os.getpid(),
        )
        self._write([*self._read(), death][-KEPT:])

    def forget(self) -> None:
        """End the row: this daemon stops in order, or has lived long."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return

    async def outlive(self) -> None:
        """The task of a daemon that serves: after so long it has not died of its start, however it will end."""
        await trio.sleep(SOON_MS / 1_000)
        self.forget()

    def _read(self) -> list[Death]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Death])
        except (OSError, msgspec.MsgspecError):
            return []

    def _write(self, deaths: list[Death]) -> None:
        beside = self._path.with_suffix(".new")
        try:
            beside.unlink(missing_ok=True)
            with open(open_own(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(msgspec.json.encode(deaths))
            os.replace(beside, self._path)
        except (OSError, PwfError):
            return


def log_last_words(path: Path, log: Log) -> bool:
    """Put what an earlier daemon's process has printed into the log, as one record, and empty that file.

    Whether these are the words of an interpreter that crashed.
    """
    try:
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LAST_WORDS_BYTES))
            said = file.read().decode("utf-8", "replace").strip()
            file.truncate(0)
    except OSError:
        return False
    if said:
        log.warning("daemon.last_words", text=said, bytes=size)
    return CRASHED in said


def leaves(error: BaseException) -> list[BaseException]:
    """The errors inside groups of errors, in order."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def cause_of(error: BaseException) -> str:
    """Kind and place of the first error: the same for the same way of dying. No text that varies, no data."""
    first = leaves(error)[0]
    frames = traceback.extract_tb(first.__traceback__)
    own = [frame for frame in frames if f"{os.sep}pwf{os.sep}" in frame.filename] or list(frames)
    kind = first.code if isinstance(first, PwfError) else type(first).__name__
    if not own:
        return kind
    where = own[-1].filename.rpartition(f"{os.sep}pwf{os.sep}")[2]
    return f"{kind} in {where}, {own[-1].name}"


def described(error: BaseException) -> str:
    """The whole traceback, groups included, for the log."""
    return "".join(traceback.format_exception(error))
