"""Where the store's blocking calls run: what is short in the event loop's thread, the rest in two of the store's own.

`ThreadExecutor` is the real one. The writer's connection is used in the loop's thread by the rule of `loop_share`, and
else in the writer's; another thread owns the reader's. A third connection is the event loop's own, for reads that
cost less than a hop.
`Executor` is the port: under a virtual clock the tests run the same code in the caller's task
(`tests/store/inline_executor.py`), and one suite runs on both.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast

import trio

from pwf.clock import Clock
from pwf.errors import Unavailable
from pwf.ids import Ids
from pwf.store.ballast import Ballast
from pwf.store.batch import Batch, Job, Writer
from pwf.store.database import Warn, no_warning, open_reader, open_writer
from pwf.store.loop_share import LoopShare
from pwf.store.reading import Reader, Reading
from pwf.store.tx import Tx

R = TypeVar("R")

GLANCE_S = 0.005  # a read in the event loop's own thread may take so long
READS_OPEN_MAX = 256  # queued or running; further callers wait
PAUSE_S_MAX = 1.0  # how long the writer waits for the read in progress before it does without a pause


@dataclass(frozen=True)
class StoreSpec:
    """How to open a store. `synchronous="OFF"` and `vfs` are for simulations and fault tests."""

    path: Path
    clock: Clock
    ids: Ids = field(default_factory=Ids)
    ballast: Ballast | None = None
    guarded: bool = True
    create: bool = True  # an empty database where there is none
    warn: Warn = no_warning
    synchronous: str = "FULL"
    vfs: str | None = None

    def writer(self) -> Writer:
        """Open the writer; raises `StoreRefused`."""
        connection = open_writer(
            self.path, create=self.create, synchronous=self.synchronous, vfs=self.vfs, warn=self.warn
        )
        return Writer(
            connection,
            clock=self.clock,
            ids=self.ids,
            ballast=self.ballast,
            guarded=self.guarded,
            warn=self.warn,
        )

    def reader(self, *, waits: bool = True) -> Reader:
        """Open a reader, after the writer."""
        return Reader(open_reader(self.path, vfs=self.vfs, waits=waits), clock=self.clock, ids=self.ids)


class Executor(Protocol):
    """Runs what the store actor hands over. An async context manager: entering opens the connections."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, jobs: Sequence[Job]) -> Batch:
        """Run a batch to its commit. Shielded: once begun, its outcome will be known. Perhaps no checkpoint."""
        ...

    async def call(self, function: Callable[[Writer], R]) -> R:
        """Run a function on the writer between batches. Shielded."""
        ...

    async def read(self, handler: Callable[[Tx, Any], R], query: object, *, limit_s: float) -> R:
        """Run a read on its own snapshot; a cancelled caller interrupts it."""
        ...

    async def glance(self, handler: Callable[[Tx, Any], R], query: object, *, limit_s: float) -> R:
        """A read of a row or two: the hand-over to a thread would cost more than it."""
        ...

    async def read_apart(self, handler: Callable[[Tx, Any], R], query: object, *, limit_s: float) -> R:
        """The same on a connection of its own, so that a long read holds up no other."""
        ...

    async def settle(self, *, idle: bool) -> bool:
        """The batch's callers have their answers: make a checkpoint if one is due. Whether a `cut` is owed."""
        ...

    async def cut(self) -> bool:
        """Copy the WAL into the database and cut it off; whether it could be done. A foreign reader may prevent it."""
        ...


class ThreadExecutor:
    """The real executor."""

    def __init__(self, spec: StoreSpec, share: LoopShare | None = None) -> None:
        self._spec = spec
        self._share = share or LoopShare()
        self._write_thread = _Worker("pwf-store-writer")
        self._read_thread = _Worker("pwf-store-reader")
        self._gate = _Gate()
        self._reads_open = trio.Semaphore(READS_OPEN_MAX)
        self._writer: Writer
        self._reader: Reader
        self._near: Reader  # for glances, in the event loop's own thread

    async def __aenter__(self) -> Self:
        self._write_thread.start()
        self._read_thread.start()
        try:
            self._writer = await self._write_thread.call(self._spec.writer)
            try:
                self._near = self._spec.reader(waits=False)
                try:
                    self._reader = await self._read_thread.call(self._spec.reader)
                except BaseException:
                    self._near.close()
                    raise
            except BaseException:
                await self._write_thread.call(self._writer.close)
                raise
        except BaseException:
            self._stop_threads()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The readers first: the last connection to close moves the WAL into the file.
        self._near.close()
        await self._read_thread.call(self._reader.close)
        await self._write_thread.call(self._writer.close)
        self._stop_threads()

    async def run(self, jobs: Sequence[Job]) -> Batch:
        if self._write_thread.is_idle:
            batch = self._share.run(self._writer, jobs)
            if batch is not None:
                return batch
        return await self._write_thread.call(lambda: self._run_on(jobs))

    async def call(self, function: Callable[[Writer], R]) -> R:
        writer = self._writer
        return await self._write_thread.call(lambda: function(writer))

    async def read(self, handler: Callable[[Tx, Any], R], query: object, *, limit_s: float) -> R:
        reading = Reading(limit_s)
        try:
            self._reads_open.acquire_nowait()  # acquire() is a checkpoint even when it need not wait
        except trio.WouldBlock:
            await self._reads_open.acquire()
        try:
            return await self._read_thread.call(
                lambda: self._read_now(handler, query, reading), given_up=reading.stop
            )
        finally:
            self._reads_open.release()

    async def glance(self, handler: Callable[[Tx, Any], R], query: object, *, limit_s: float) -> R:
        if not self._gate.is_closed:
            try:
                return self._near.run(handler, query, Reading(GLANCE_S))
            except Unavailable:  # it takes longer, or the file is locked for a moment
                pass
        return await self.read(handler, query, limit_s=limit_s)

    async def read_apart(self, handler: Callable[[Tx, Any], R], query: object, *, limit_s: float) -> R:
        reading = Reading(limit_s)

        def read() -> R:
            reader = self._spec.reader()
            try:
                return reader.run(handler, query, reading)
            finally:
                reader.close()

        try:
            return await trio.to_thread.run_sync(read, abandon_on_cancel=True)
        except trio.Cancelled:
            reading.stop()
            raise

    async def settle(self, *, idle: bool) -> bool:
        # Only attributes are read here; they change in batches and checkpoints, and none is running.
        if self._writer.wants_checkpoint(idle=idle):
            await self._write_thread.call(self._checkpoint)
        return self._writer.owes_cut

    async def cut(self) -> bool:
        return await self._write_thread.call(self._cut)

    def _run_on(self, jobs: Sequence[Job]) -> Batch:
        self._writer.execute(jobs)
        return self._share.commit(self._writer)

    def _read_now(self, handler: Callable[[Tx, Any], R], query: object, reading: Reading) -> R:
        with self._gate.reading():
            return self._reader.run(handler, query, reading)

    def _checkpoint(self) -> None:
        if not self._writer.wants_pause:
            self._writer.checkpoint()
        else:
            self._cut()

    def _cut(self) -> bool:
        with self._gate.paused(PAUSE_S_MAX) as alone:
            return self._writer.checkpoint(cut=alone) and alone

    def _stop_threads(self) -> None:
        self._read_thread.stop()
        self._write_thread.stop()


class _Gate:
    """Lets the writer's thread hold up the reader's: no read begins while it waits or works."""

    def __init__(self) -> None:
        self._in_use = threading.Lock()
        self._open = threading.Event()
        self._open.set()

    @property
    def is_closed(self) -> bool:
        """Whether no read may begin now. One that takes no part in the gate heeds this, and is short."""
        return not self._open.is_set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A read is on."""
        self._open.wait()
        with self._in_use:
            yield

    @contextmanager
    def paused(self, wait_s: float) -> Iterator[bool]:
        """No read begins; whether the one that was on has ended within `wait_s`."""
        self._open.clear()
        alone = self._in_use.acquire(timeout=wait_s)
        try:
            yield alone
        finally:
            self._open.set()
            if alone:
                self._in_use.release()


class _Worker:
    """A thread that runs one function after another for tasks of one trio program."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._token: trio.lowlevel.TrioToken
        self._owed = 0  # calls whose end the loop has not heard of

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do, and begins nothing before the next `call`. Asked by the loop's thread."""
        return self._owed == 0

    def start(self) -> None:
        """Start the thread. It dies with the process, and ends at `stop`."""
        self._token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Let the thread end after the calls that are queued."""
        self._calls.put(None)

    async def call(self, function: Callable[[], R], *, given_up: Callable[[], None] | None = None) -> R:
        """Run `function` there; its value or exception.

        Without `given_up` the wait is shielded. With it, a cancelled caller leaves at once, `given_up` is
        called, and the result is dropped.
        """
        call = _Call(function, trio.lowlevel.current_task())

        def abort(_: object) -> trio.lowlevel.Abort:
            if given_up is None:
                return trio.lowlevel.Abort.FAILED
            call.task = None
            given_up()
            return trio.lowlevel.Abort.SUCCEEDED

        self._owed += 1
        self._calls.put(call)
        await trio.lowlevel.wait_task_rescheduled(abort)
        if call.error is not None:
            raise call.error
        return cast("R", call.value)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.value = call.function()
            except BaseException as error:  # noqa: BLE001 - carried over to the task that called
                call.error = error
            with suppress(trio.RunFinishedError):  # nobody is left to tell
                self._token.run_sync_soon(self._end, call)
            del call

    def _end(self, call: _Call) -> None:
        self._owed -= 1
        if call.task is not None:
            trio.lowlevel.reschedule(call.task)


class _Call:
    __slots__ = ("error", "function", "task", "value")

    def __init__(self, function: Callable[[], Any], task: trio.lowlevel.Task) -> None:
        self.function = function
        self.task: trio.lowlevel.Task | None = task
        self.value: Any = None
        self.error: BaseException | None = None
