"""Pruner: retention and compaction; what may take long and must hold up nobody.

Owns: the walk over ended runs, one at a time, and over what living resources need no more. Promises: a tree of runs
goes whole, in a transaction of its own, and other commands take their turn between two of them; while runs execute the
walk goes on at a bounded pace, so that a daemon that is never idle is pruned too; what is looked for is looked for on
the reader, and only what was found is written. Must never hold up admission, and never remove by a clock that has just
jumped ahead.
In: time; `prune` of clients. Out: commands to the store.
If it dies: the daemon ends. Every command is safe to repeat, and the next pass goes on where the last one stopped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio

from pwf.actors.base.logging import Log
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.upkeep import output_files
from pwf.clock import Clock
from pwf.errors import InvalidArgument, OutcomeUnknown, Unavailable
from pwf.protocol.operations import PruneResult
from pwf.store import retention
from pwf.store.once import Done
from pwf.store.receipts import (
    ReceiptKey,
    drop_receipts,
    find_receipt,
    old_receipts,
)
from pwf.store.resource_retention import KEPT_MS, anything_old, drop_old_effects, trim_events
from pwf.store.retention import PrunedTree, PruneTree, RecordPrune, plan_prune, prune_tree, record_prune
from pwf.store.space import STEP_PAGES, compact, space, to_give_back
from pwf.store.uploads import drop_uploads
from pwf.store.values import UnusedValues, drop_values, unused_values

R = TypeVar("R")

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 16
FIRST_S = 60.0  # after the start: recovery goes first
EVERY_S = 3_600.0
RETRY_S = 60.0  # after the store could not take a command
CLEAN_S = 24 * 3_600.0  # between two looks for what nothing refers to, when no run was removed
BUSY_PAUSE_S = 0.25  # between two commands while runs execute: four trees a second
DROP_BYTES = 16 * 1024 * 1024  # of values in one command
DROP_VALUES = 100
STEPPED_MS = 3_600_000  # the wall clock has gone ahead of elapsed time by more: it was set
TRUSTED_AGAIN_MS = 24 * 3_600_000  # of elapsed time


# --- messages -------------------------------------------------------------------------------------------------


class Prune(Message[Done[PruneResult]], frozen=True, kw_only=True, eq=False):
    """Remove what ended before a time."""

    before_ms: int
    actor: str
    receipt: ReceiptKey | None


# --- the handle -----------------------------------------------------------------------------------------------


class PrunerHandle:
    """What others hold of it."""

    def __init__(self, inbox: Mailbox[Prune], store: StoreHandle, clock: Clock) -> None:
        self._inbox = inbox
        self._store = store
        self._clock = clock

    async def prune(
        self, before_ms: int, *, dry_run: bool, actor: str, receipt: ReceiptKey | None
    ) -> Done[PruneResult]:
        """Remove what ended before that time, at once; or say what would be removed.

        Cancelled: the walk ends between two trees, and what is gone is gone.
        """
        if before_ms > self._clock.now().wall_ms:
            raise InvalidArgument("the time is in the future", hint="name a moment that has passed")
        if dry_run:
            return Done(await self._plan(before_ms))
        return await ask(self._inbox, Prune(before_ms=before_ms, actor=actor, receipt=receipt))

    async def _plan(self, before_ms: int) -> PruneResult:
        result = PruneResult(before_ms=before_ms, dry_run=True)
        query: PruneTree | None = PruneTree(before_ms=before_ms)
        while query is not None:
            found = await self._store.read(plan_prune, query)
            result, query = _added(result, found), _next(query, found)
        return result


# --- the actor ------------------------------------------------------------------------------------------------


class Pruner:
    """The actor."""

    def __init__(
        self,
        *,
        store: StoreHandle,
        is_idle: Callable[[], bool],
        disk_bytes: Callable[[], int],
        epoch: int,
        retention_days: int,
        clock: Clock,
        log: Log,
        output: Path | None = None,
    ) -> None:
        self._store = store
        self._output = output  # the folder of what steps print
        self._is_idle = is_idle
        self._disk_bytes = disk_bytes
        self._epoch = epoch
        self._retention_ms = retention_days * retention.DAY_MS
        self._clock = clock
        self._log = log
        self._clean_at = 0.0  # trio's clock
        self._trusted = clock.now()
        self._inbox: Mailbox[Prune] = Mailbox(INBOX_MAX, "the pruner")
        self.handle = PrunerHandle(self._inbox, store, clock)

    async def run(self, *, by_age: bool = True) -> None:
        """Serve until cancelled; with `by_age` also prune by itself, now and then."""
        due = trio.current_time() + FIRST_S if by_age else math.inf
        with self._inbox.open():
            while True:
                message = await self._inbox.take_one(due)
                if message is not None:
                    await self._inbox.answer(message, self._handle_prune)
                else:
                    due = trio.current_time() + await self._by_age()

    async def _by_age(self) -> float:
        """One pass; how long until the next."""
        try:
            await self.keep()
        except OutcomeUnknown:
            raise
        except Unavailable as error:
            self._log.warning("pruner.unavailable", code=error.code)
            return RETRY_S
        return EVERY_S

    async def keep(self) -> PruneResult:
        """For the actor's task: what the retention rule says, then what nothing refers to."""
        before_ms = self._clock.now().wall_ms - self._retention_ms
        result, taken = PruneResult(before_ms=before_ms), self._disk_bytes()
        if self._retention_ms and self._clock_is_trusted():
            result = await self._trees(before_ms, self._pause)
            await self._keep_less(min(before_ms, self._clock.now().wall_ms - KEPT_MS))
        if result.trees or trio.current_time() >= self._clean_at:
            result = await self._clean(result, self._pause, taken)
        if result.trees:
            command = RecordPrune(result=result, actor="daemon", epoch=self._epoch)
            await self._store.write(record_prune, command)
            self._log("pruner.pruned", trees=result.trees, runs=result.runs, values=result.values)
        return result

    # --- handlers ---

    async def _handle_prune(self, message: Prune) -> Done[PruneResult]:
        if message.receipt is not None and (done := await self._done_before(message.receipt)) is not None:
            return done

        async def pause() -> None:
            await trio.lowlevel.checkpoint()
            message.reply.check_wanted()

        taken = self._disk_bytes()
        result = await self._trees(message.before_ms, pause)
        result = await self._clean(result, pause, taken)
        command = RecordPrune(result=result, actor=message.actor, epoch=self._epoch, receipt=message.receipt)
        done = await self._store.write(record_prune, command)
        self._log(
            "pruner.pruned", trees=result.trees, runs=result.runs, values=result.values, actor=message.actor
        )
        return done

    async def _done_before(self, receipt: ReceiptKey) -> Done[PruneResult] | None:
        found = await self._store.read(find_receipt, receipt)
        if found is None or found.outcome != "accepted":
            return None
        return Done(msgspec.json.decode(found.response, type=PruneResult), adopted=True)

    # --- trees ---

    async def _trees(self, before_ms: int, pause: Callable[[], Awaitable[None]]) -> PruneResult:
        """Remove every tree that may go, one by one."""
        result = PruneResult(before_ms=before_ms)
        query: PruneTree | None = PruneTree(before_ms=before_ms)
        while query is not None:
            ahead = await self._store.read(plan_prune, query)
            if not ahead.trees:  # nothing to write here: go on past it, on the reader
                result, query = _added(result, ahead), _next(query, ahead)
                continue
            for _ in range(ahead.trees):
                found = await self._store.write(prune_tree, query)
                result, following = _added(result, found), _next(query, found)
                await pause()
                if following is None:
                    return result
                query = following
        return result

    async def _keep_less(self, before_ms: int) -> None:
        """Of resources that live on: effects that nobody asks for any more, and what is too old of a long history."""
        if not await self._store.read(anything_old, before_ms):
            return
        effects = events = 0
        while gone := await self._store.write(drop_old_effects, before_ms):
            effects += gone
            await self._pause()
        while (trimmed := await self._store.write(trim_events, before_ms)) is not None:
            events += trimmed
            await self._pause()
        self._log("pruner.kept_less", effects=effects, events=events)

    async def _pause(self) -> None:
        """Nobody waits for the automatic walk: while runs execute it goes slowly. Unless a client's prune does."""
        if self._is_idle() or not self._inbox.empty:
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep(BUSY_PAUSE_S)

    def _clock_is_trusted(self) -> bool:
        """Whether the wall clock has not just been set ahead: by such a clock everything is old."""
        now, then = self._clock.now(), self._trusted
        elapsed_ms = now.elapsed_ms - then.elapsed_ms
        if (now.wall_ms - then.wall_ms) - elapsed_ms <= STEPPED_MS:
            return True
        if elapsed_ms < TRUSTED_AGAIN_MS:
            self._log.warning("pruner.clock_set", ahead_ms=now.wall_ms - then.wall_ms - elapsed_ms)
            return False
        self._trusted = now
        return True

    # --- what nothing refers to ---

    async def _clean(
        self, result: PruneResult, pause: Callable[[], Awaitable[None]], taken: int
    ) -> PruneResult:
        """Drop definitions, environments, values and receipts that nobody needs; give space back if it pays.

        `taken`: what the files took before.
        """
        await self._drop(retention.unused_definitions, retention.drop_definitions, pause)
        await self._drop(retention.unused_environments, retention.drop_environments, pause)
        await self._store.write(drop_uploads, None)
        values = await self._drop_values(pause)
        await self._drop_output(pause)
        if self._clock_is_trusted():
            await self._drop_receipts(pause)
        compacted = await self._compact(pause)
        # The file is cut when the log has been brought into it.
        owed = 0 if await self._store.cut_log() else compacted
        freed = max(0, taken - self._disk_bytes())
        self._clean_at = trio.current_time() + CLEAN_S
        return msgspec.structs.replace(result, values=values, freed_bytes=freed, owed_bytes=owed)

    async def _drop(
        self,
        look: Callable[[Any, str], retention.UnusedPage],
        drop: Callable[[Any, tuple[str, ...]], int],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        after: str | None = ""
        while after is not None:
            page = await self._store.read(look, after)
            after = page.after
            if page.ids:
                await self._store.write(drop, page.ids)
                await pause()

    async def _drop_values(self, pause: Callable[[], Awaitable[None]]) -> int:
        dropped = 0
        after: str | None = ""
        while after is not None:
            page = await self._store.read(unused_values, UnusedValues(after=after))
            after = page.after
            for digests in slices(page.values):
                dropped += await self._store.write(drop_values, digests)
                await pause()
        return dropped

    async def _drop_output(self, pause: Callable[[], Awaitable[None]]) -> None:
        """Remove what gone runs and resources have printed. Folders first: a run is there before its folder."""
        if self._output is None or not self._output.is_dir():
            return
        for names in await output_files.run_folders(self._output):
            gone = await self._store.read(retention.gone_runs, names)
            await output_files.remove(self._output, gone)
            await pause()
        await output_files.remove_put_aside(self._output)

    async def _drop_receipts(self, pause: Callable[[], Awaitable[None]]) -> None:
        after: tuple[int, int] | None = (-1, 0)
        while after is not None:
            page = await self._store.read(old_receipts, after)
            after = page.after
            if page.keys:
                await self._store.write(drop_receipts, page.keys)
                await pause()

    async def _compact(self, pause: Callable[[], Awaitable[None]]) -> int:
        found = await self._store.read(space, None)
        left = to_give_back(found, disk_full=self._store.disk_full)
        freed = 0
        while left > 0:
            gone = await self._store.write(compact, min(STEP_PAGES, left))
            if gone <= 0:
                break
            freed, left = freed + gone, left - gone
            await pause()
        return freed * found.page_bytes


def slices(values: Iterable[tuple[str, int]]) -> list[tuple[str, ...]]:
    """Digests in groups whose removal is one command: bounded in number and bytes."""
    groups: list[tuple[str, ...]] = []
    group: list[str] = []
    size = 0
    for digest, bytes_ in values:
        if group and (len(group) >= DROP_VALUES or size + bytes_ > DROP_BYTES):
            groups.append(tuple(group))
            group, size = [], 0
        group.append(digest)
        size += bytes_
    return [*groups, tuple(group)] if group else groups


def _added(result: PruneResult, found: PrunedTree) -> PruneResult:
    return msgspec.structs.replace(
        result,
        trees=result.trees + found.trees,
        runs=result.runs + found.runs,
        kept=dict(Counter(result.kept) + Counter(found.kept)),
    )


def _next(query: PruneTree, found: PrunedTree) -> PruneTree | None:
    return None if found.after is None else msgspec.structs.replace(query, after=found.after)
