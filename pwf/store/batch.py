"""What the writer does: one batch of commands in one transaction, and what follows when SQLite fails.

Owns the writer connection. Promises:
- each command fails alone; a batch is answered only after its COMMIT. Savepoints are set only when a command that
  raised has written something: then the whole batch is rolled back and run again, with one for each command;
- when SQLite itself ended the transaction, nothing more runs in that batch, and then its commands run
  one by one, each in a transaction of its own;
- a COMMIT that fails has an unknown outcome; except for busy and disk full the store is then broken;
- when the disk is full the ballast is released first, so that the second try finds room.

An unexpected exception of a handler is its caller's to bear: its savepoint is undone and the caller gets the
exception itself, so that the caller's supervision decides. Blocking calls, one thread at a time (`loop_share`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from pwf.clock import Clock
from pwf.errors import ClaimLost, DiskFull, OutcomeUnknown, PwfError, StoreBroken, Unavailable
from pwf.ids import Ids
from pwf.store.ballast import OUT_OF_SPACE, Ballast
from pwf.store.database import PAGE_BYTES, WAL_KEPT_BYTES, BusyWait, Warn, no_warning
from pwf.store.new_file import NewFile
from pwf.store.tx import NeedsUndo, Q, Tx

T = TypeVar("T")

WAL_IDLE_BYTES = 4 * 1024 * 1024  # from here on a checkpoint is made when nobody waits
WAL_BUSY_BYTES = 16 * 1024 * 1024  # from here on although somebody waits
WAL_OWED_BYTES = 2 * WAL_KEPT_BYTES  # a log that stays longer than this after a checkpoint is to be cut later
WAL_PAUSE_BYTES = 64 * 1024 * 1024  # from here on reads pause for one


class HeldClaim(NamedTuple):
    """The daemon's epoch, as the `daemon` entity has it while it is ours."""

    generation: int
    token: str


class Job(NamedTuple):
    """A command and its handler. `before_claim`: runs although the daemon's epoch isn't ours (yet)."""

    handler: Callable[[Tx, Any], Any]
    command: Any
    before_claim: bool = False


class JobResult(NamedTuple):
    """What a job came to: `error`, or else `value`."""

    value: Any = None
    error: Exception | None = None


class Batch(NamedTuple):
    """Answers in the order of the jobs. `broken`: the store can't go on without a restart."""

    answers: list[JobResult]
    changed: frozenset[str]
    disk_full: bool
    broken: StoreBroken | None = None


class _TransactionEnded(Exception):
    """SQLite rolled the whole transaction back by itself."""


class Writer:
    """Runs batches on its connection. `guarded`: commands need the daemon's claim.

    `execute` and `commit` are two calls so that a simulation can let time pass, or crash, between them.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        clock: Clock,
        ids: Ids,
        ballast: Ballast | None = None,
        guarded: bool = True,
        warn: Warn = no_warning,
    ) -> None:
        self.claim: HeldClaim | None = None
        self.tx = Tx(connection, now=clock.now(), ids=ids)
        self._connection = connection
        self._statement: Any = connection.cursor().execute
        self._clock = clock
        self._ballast = ballast
        self._guarded = guarded
        self._warn = warn
        self._wal_pages = 0
        self._is_pinned = False  # a reader kept the last checkpoint from cutting the WAL
        self._tried_pages = 0  # length of the WAL at the last checkpoint
        self._jobs: Sequence[Job] = ()
        self._answers: list[JobResult] = []
        #: A batch's transaction is open.
        self.is_open = False
        self._uncommitted: apsw.Error | None = None  # a COMMIT has failed, and nobody has dealt with it yet
        self._broken: StoreBroken | None = None
        self._changed: set[str] = set()
        self._busy = BusyWait(warn)
        connection.set_busy_handler(self._busy)
        connection.set_wal_hook(self._count_wal)
        if not self._build_ballast():
            self._note_disk_full("there is no room for the ballast")

    # --- a batch ------------------------------------------------------------------------------------------

    def execute_at_once(self, jobs: Sequence[Job], may_run: Callable[[Job], bool]) -> bool:
        """Begin without waiting, and run the first jobs, up to one that may not; whether that were all of them.

        `execute` is for the rest, also where nothing has happened: the database is locked, or something must be undone.
        """
        self._take(jobs)
        self._busy.waits = False
        self.tx.is_hurried = True
        try:
            self._begin()
            self.is_open = True
            self._run_plainly(may_run)
        except (NeedsUndo, _TransactionEnded, apsw.Error):
            self._end()
        finally:
            self._busy.waits = True
            self.tx.is_hurried = False
        if self._broken is not None:
            self._end()
        return self._is_executed

    def execute(self, jobs: Sequence[Job]) -> None:
        """Begin, or go on after `execute_at_once`, and run every job; the transaction stays open for `commit`."""
        if self._is_executed:
            return
        if not self.is_open:
            self._take(jobs)
            try:
                self._begin()
            except apsw.Error as error:
                self._answers = [JobResult(error=self._translate(error)) for _ in jobs]
                self._end()
                return
            self.is_open = True
        try:
            self._run_together()
        except (_TransactionEnded, apsw.Error) as error:
            self._translate(_cause(error))  # releases the ballast when that is what it takes
            self._end()
            self._run_one_by_one()
        if self._broken is not None:
            self._end()
            self._answers = [JobResult(error=self._unavailable()) for _ in jobs]

    def try_commit(self) -> bool:
        """Commit what is open. False: it has failed, and `commit` deals with that."""
        try:
            self._statement("COMMIT").fetchall()
        except apsw.Error as error:
            self._uncommitted = error
            return False
        self.is_open = False
        self._changed.update(self.tx.changed_keys)
        return True

    @property
    def may_commit(self) -> bool:
        """Whether a COMMIT is due. One that has failed is never tried again: its outcome is not known."""
        return self.is_open and self._uncommitted is None

    def commit(self) -> Batch:
        """Commit what `execute` left open, unless that was tried; only now may anybody be answered."""
        if self.may_commit:
            self.try_commit()
        error, self._uncommitted = self._uncommitted, None
        if error is not None:
            if _did_not_fit(error, self._connection):
                # What did not fit was the commit's own record, so it did not happen; and what follows
                # overwrites its remains.
                self._note_disk_full(str(error))
                self._end()
                self._run_one_by_one()
            else:
                unknown = self._commit_failed(error)
                self._end()
                self._answers = [JobResult(error=OutcomeUnknown(unknown)) for _ in self._jobs]
        return self.batch()

    def batch(self) -> Batch:
        """What has come of a batch that is over."""
        self.tx.changed_keys.clear()
        return Batch(self._answers, frozenset(self._changed), self.tx.disk_full, self._broken)

    def run(self, jobs: Sequence[Job]) -> Batch:
        """A whole batch."""
        self.execute(jobs)
        return self.commit()

    @property
    def _is_executed(self) -> bool:
        return self.is_open and len(self._answers) == len(self._jobs)

    def _take(self, jobs: Sequence[Job]) -> None:
        self._jobs, self._answers, self._changed = jobs, [], set()

    def _run_together(self) -> None:
        """Every job in this transaction: without savepoints, and again with them when something must be undone."""
        try:
            self._run_plainly(_always)
            return
        except NeedsUndo:
            self._statement("ROLLBACK").fetchall()
        self._begin()
        holds = self._holds_claim()
        self._answers = [self._run_part(job, holds) for job in self._jobs]

    def _run_plainly(self, may_run: Callable[[Job], bool]) -> None:
        """The jobs that have not run, without savepoints, up to one that may not run."""
        holds = self._holds_claim()
        try:
            self.tx.sets_savepoints = False
            for job in self._jobs[len(self._answers) :]:
                if not may_run(job):
                    break
                self._answers.append(self._run_part(job, holds))
        finally:
            self.tx.sets_savepoints, self.tx.needs_undo = True, False

    def _run_one_by_one(self) -> None:
        self._answers = []
        for job in self._jobs:
            if self._broken is not None:
                self._answers.append(JobResult(error=self._unavailable()))
            else:
                self._answers.append(self._run_alone(job))

    def _run_alone(self, job: Job) -> JobResult:
        try:
            self._begin()
            answer = self._run_part(job, self._holds_claim())
        except (_TransactionEnded, apsw.Error) as error:
            failure = self._translate(_cause(error))
            self._end()
            return JobResult(error=failure)
        if self._broken is not None:
            self._end()
            return JobResult(error=self._unavailable())
        try:
            self._statement("COMMIT").fetchall()
        except apsw.Error as error:
            full = _did_not_fit(error, self._connection)
            failure = self._translate(error) if full else OutcomeUnknown(self._commit_failed(error))
            self._end()
            return JobResult(error=failure)
        self._changed.update(self.tx.changed_keys)
        self.tx.changed_keys.clear()
        return answer

    def _run_part(self, job: Job, holds_claim: bool) -> JobResult:
        if not (holds_claim or job.before_claim):
            return JobResult(error=self._without_claim())
        tx = self.tx
        keys, mark = len(tx.changed_keys), tx.set_savepoint()
        try:
            value = job.handler(tx, job.command)
            if tx.needs_undo:  # whatever the handler has made of it
                raise NeedsUndo
            tx.keep()
            return JobResult(value)
        except NeedsUndo:
            raise
        except Exception as error:  # the command fails alone; its caller gets it
            if isinstance(error, UnicodeDecodeError):
                tx.let_go()
            del tx.changed_keys[keys:]
            if not tx.is_open:
                raise _TransactionEnded from _first(error)
            if not (tx.sets_savepoints or isinstance(error, PwfError)):
                raise NeedsUndo from error  # what SQLite has undone of a statement that failed is its own affair
            tx.undo(mark)
            return JobResult(error=self._translate(error))

    def _begin(self) -> None:
        self._statement("BEGIN IMMEDIATE").fetchall()
        self.tx.now = self._clock.now()
        self.tx.changed_keys.clear()

    def _end(self) -> None:
        """Roll back whatever is still open; an error here means only that SQLite did it already."""
        self.is_open = False
        self.tx.changed_keys.clear()
        if self._connection.in_transaction:
            try:
                self._statement("ROLLBACK").fetchall()
            except apsw.Error as error:
                self._break(f"a transaction could not be rolled back: {error}")

    def _holds_claim(self) -> bool:
        if not self._guarded:
            return True
        return self.claim is not None and self.tx.one(Q.holds_epoch, self.claim._asdict()) is not None

    def _without_claim(self) -> PwfError:
        if self.claim is None:
            return Unavailable("the daemon is still starting")
        return ClaimLost("another daemon has taken over this home")

    # --- failures -----------------------------------------------------------------------------------------

    def _translate(self, error: BaseException | None) -> Exception:
        """The exception that a caller gets for what a handler or SQLite raised."""
        if isinstance(error, StoreBroken):
            self._break(error.message)
            return error
        if isinstance(error, PwfError) or not isinstance(error, apsw.Error):
            return error if isinstance(error, Exception) else Unavailable()
        if _is_out_of_space(error, self._connection):
            self._note_disk_full(str(error))
            return DiskFull(f"the disk is full: {error}", hint="free some space; pwf goes on by itself")
        if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.ProtocolError):
            return Unavailable("another process keeps the database locked")
        if isinstance(error, apsw.IOError | apsw.NoMemError | apsw.CantOpenError | apsw.InterruptError):
            self._warn("store.failed", error=str(error))
            return Unavailable(f"the database could not be used: {error}")
        if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.ReadOnlyError):
            self._break(f"the database is damaged: {error}")
            return self._unavailable()
        return error  # a mistake in a handler or a broken rule of the schema: its caller's to bear

    def _commit_failed(self, error: apsw.Error) -> str:
        self._warn("store.commit_failed", error=str(error))
        if not isinstance(error, apsw.BusyError | apsw.LockedError):
            self._break(f"a commit failed: {error}")
        return f"the commit failed, and whether it happened is not known: {error}"

    def _break(self, reason: str) -> None:
        if self._broken is None:
            self._broken = StoreBroken(reason, hint="pwf recovers from the file when it starts again")

    def _unavailable(self) -> Unavailable:
        return Unavailable("the store has failed; the daemon starts again from the file")

    def _note_disk_full(self, error: str) -> None:
        released = self._ballast is not None and self._ballast.release()
        if not self.tx.disk_full or released:
            self._warn("store.disk_full", error=error, ballast_released=released)
        self.tx.disk_full = True

    # --- between batches ----------------------------------------------------------------------------------

    @property
    def wal_bytes(self) -> int:
        """Size of the WAL's content."""
        return self._wal_pages * PAGE_BYTES

    def wants_checkpoint(self, *, idle: bool) -> bool:
        """Whether `checkpoint` should run now: enough was written since the last one, whatever came of it."""
        fresh = (self._wal_pages - self._tried_pages) * PAGE_BYTES
        return fresh >= (WAL_IDLE_BYTES if idle else WAL_BUSY_BYTES)

    @property
    def wants_pause(self) -> bool:
        """Whether reads should pause for the next checkpoint, so that the WAL can be cut off."""
        return self.wal_bytes >= WAL_PAUSE_BYTES

    @property
    def owes_cut(self) -> bool:
        """Whether the WAL is long and was not cut off: it is to be tried again, though nothing more be written."""
        return self.wal_bytes >= WAL_OWED_BYTES

    def checkpoint(self, *, cut: bool = False) -> bool:
        """Copy the WAL into the database as far as readers allow. `cut`: no read is on, so cut it off, too.

        Whether all was copied, and cut off. A failure is only said: the WAL keeps everything, and a later checkpoint
        tries again.
        """
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if cut else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._busy.waits = False  # a foreign reader must not hold up the writer
        whole = False
        try:
            self._wal_pages, copied = self._connection.wal_checkpoint(mode=mode)
            whole, self._is_pinned = copied == self._wal_pages, False
        except apsw.BusyError as error:
            if not self._is_pinned:  # said once, however often it is tried
                self._warn("store.checkpoint_failed", error=str(error), wal_bytes=self.wal_bytes)
            self._is_pinned = True
        except apsw.Error as error:
            self._warn("store.checkpoint_failed", error=str(error), wal_bytes=self.wal_bytes)
        finally:
            self._busy.waits = True
        self._tried_pages = self._wal_pages
        return whole

    def rescue(self, target: Path) -> None:
        """Write all that was committed to a new file: our own may have lost their names, but we still have them open.

        Raises `OSError`, `apsw.Error` or `Conflict`; then there is no file.
        """
        with NewFile(target) as new:
            copy = new.open()
            try:
                with copy.backup("main", self._connection, "main") as pages:
                    pages.step(-1)
                copy.pragma("journal_mode", "delete")  # whole in one file
            finally:
                copy.close()
            new.finish()

    def rebuild_ballast(self) -> bool:
        """While the disk is full: try to keep space back again; True when admission may resume."""
        if self.tx.disk_full:
            self.checkpoint(cut=True)  # gives back what the WAL takes, and what a prune has freed
        if not self._build_ballast():
            return False
        if self.tx.disk_full:
            self.tx.disk_full = False
            self._warn("store.disk_has_space")
        return True

    def _build_ballast(self) -> bool:
        """False when there is no space for it. A ballast that fails otherwise is only missed."""
        try:
            return self._ballast is None or self._ballast.build()
        except OSError as error:
            self._warn("store.ballast_failed", error=str(error))
            return True

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._connection.close()

    def _count_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._wal_pages:
            self._tried_pages = 0  # the WAL has started anew
        self._wal_pages = pages
        return apsw.SQLITE_OK


def _always(_: Job) -> bool:
    return True


def _first(error: BaseException) -> BaseException:
    """What ended the transaction, when a handler's own clean-up has failed in its wake."""
    while isinstance(error.__context__, apsw.Error):
        error = error.__context__
    return error


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, _TransactionEnded) else error


def _did_not_fit(error: apsw.Error, connection: apsw.Connection) -> bool:
    """A COMMIT found no space for its own record. One that was only not synced may be found by the next start."""
    syncs = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)
    return _is_out_of_space(error, connection) and getattr(error, "extendedresult", 0) not in syncs


def _is_out_of_space(error: apsw.Error, connection: apsw.Connection) -> bool:
    if isinstance(error, apsw.FullError):
        return True
    if not isinstance(error, apsw.IOError):
        return False
    # A quota, or no room for the WAL's index, comes as an I/O error.
    shared = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    return shared or connection.system_errno in OUT_OF_SPACE
