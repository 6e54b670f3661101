"""The store in virtual time: the same code as the real executor's, in the caller's task.

It awaits a delay at `taken`, `executed`, `committed` and `replied`, so that under a virtual clock batches form, and
callers are cancelled or crash between them.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from pwf.store.batch import Batch, Job, Writer
from pwf.store.executor import StoreSpec
from pwf.store.loop_share import LoopShare
from pwf.store.reading import Reader, Reading
from pwf.store.tx import Tx

R = TypeVar("R")


class InlineExecutor:
    """The same store in virtual time. `pause(point)` is awaited at each point; see `seeded_pause`.

    A pause may raise to crash the store there: an open transaction is rolled back when the context is left. `share`:
    what it says is done as in the event loop's thread, without a pause; None: everything as in the writer's.
    """

    def __init__(
        self,
        spec: StoreSpec,
        pause: Callable[[str], Awaitable[None]] | None = None,
        share: LoopShare | None = None,
    ) -> None:
        self._spec = spec
        self._share = share
        self._pause = pause if pause is not None else _no_pause
        self._writer: Writer
        self._reader: Reader

    async def __aenter__(self) -> Self:
        self._writer = self._spec.writer()
        try:
            self._reader = self._spec.reader()
        except BaseException:
            self._writer.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()
        self._writer.close()

    async def run(self, jobs: Sequence[Job]) -> Batch:
        with trio.CancelScope(shield=True):
            await self._pause("taken")
            batch = self._share.run(self._writer, jobs) if self._share is not None else None
            if batch is None:
                self._writer.execute(jobs)
                await self._pause("executed")
                batch = self._writer.commit() if self._share is None else self._share.commit(self._writer)
            await self._pause("committed")
        return batch

    async def call(self, function: Callable[[Writer], R]) -> R:
        with trio.CancelScope(shield=True):
            await self._pause("taken")
        return function(self._writer)

    async def read(self, handler: Callable[[Tx, Any], R], query: object, *, limit_s: float) -> R:
        await self._pause("read")
        return self._reader.run(handler, query, Reading(limit_s))

    async def glance(self, handler: Callable[[Tx, Any], R], query: object, *, limit_s: float) -> R:
        return await self.read(handler, query, limit_s=limit_s)

    async def read_apart(self, handler: Callable[[Tx, Any], R], query: object, *, limit_s: float) -> R:
        return await self.read(handler, query, limit_s=limit_s)

    async def cut(self) -> bool:
        return self._writer.checkpoint(cut=True)

    async def settle(self, *, idle: bool) -> bool:
        if self._writer.wants_checkpoint(idle=idle):
            self._writer.checkpoint(cut=self._writer.wants_pause)
        with trio.CancelScope(shield=True):
            await self._pause("replied")
        return self._writer.owes_cut


def always_in_loop() -> LoopShare:
    """Every command is short, and the disk has been found to be fast: to this clock all takes no time."""
    share = LoopShare(clock=lambda: 0.0, may_run=lambda job: True)
    share.pace.in_loop = True
    return share


def run_from_loop(writer: Writer, jobs: Sequence[Job]) -> Batch:
    """A batch as the real executor has it done, the loop's share being all that may be in it."""
    share = always_in_loop()
    batch = share.run(writer, jobs)
    if batch is None:
        writer.execute(jobs)
        batch = share.commit(writer)
    return batch


def seeded_pause(source: random.Random, most_s: float = 0.02) -> Callable[[str], Awaitable[None]]:
    """Pauses of a length that the seed decides; one in three is only a turn of the scheduler."""

    async def pause(point: str) -> None:
        await trio.sleep(0.0 if source.random() < 1 / 3 else source.random() * most_s)

    return pause


async def _no_pause(point: str) -> None:
    await trio.lowlevel.checkpoint()
