"""FileWatch: wakes resources when the files that they watch have changed.

Owns the one process that watches, which is there while anything is watched. Promises: what differs from what a
resource's last reconcile has seen wakes it, also when it changed while no daemon or no process watched; what does not
differ wakes nobody. While nothing changes it does nothing.
In: the store's key "watched"; what the process tells. Out: one command to the store for all that has changed together.
If it dies: the daemon ends. If its process dies: another compares all anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

from pwf.actors.base.changes import Changes, Watch
from pwf.actors.base.logging import Log
from pwf.actors.base.retry import Retries
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.resources.watcher_process import Watcher
from pwf.errors import OutcomeUnknown, RunnerCrashed, Unavailable
from pwf.store.resource_watch import WATCHED_KEY, FilesChanged, wake_watching, watching

# --- limits ---------------------------------------------------------------------------------------------------

REREAD_S = 60.0  # the store's own keys are complete; this only bounds a bug

UNKNOWN = ""  # a mark that no file has: so the process tells the one of now

OpenWatcher = Callable[[], AbstractAsyncContextManager[Watcher]]


# --- the actor ------------------------------------------------------------------------------------------------


class FileWatch:
    """The actor."""

    def __init__(
        self,
        store: StoreHandle,
        changes: Changes,
        open_watcher: OpenWatcher,
        wake_scheduler: Callable[[], object],
        log: Log,
    ) -> None:
        self._store = store
        self._changes = changes
        self._open = open_watcher
        self._wake_scheduler = wake_scheduler
        self._log = log
        self._who: dict[str, set[int]] = {}  # by path
        self._marks: dict[str, str] = {}

    async def run(self) -> None:
        """Serve until cancelled."""
        retries = Retries()
        with self._changes.watch(WATCHED_KEY) as news:
            while True:
                try:
                    await self._read()
                    if self._marks:
                        await self._watch(news)
                    await news.wait(REREAD_S)
                    retries.worked()
                except (RunnerCrashed, Unavailable) as error:
                    if isinstance(error, OutcomeUnknown):
                        raise
                    self._log.warning("file_watch.failed", code=error.code, error=error.message)
                    await trio.sleep(retries.failed())

    async def _watch(self, news: Watch) -> None:
        """While anything is watched."""
        async with self._open() as watcher:
            await watcher.watch(self._marks)
            ended: list[RunnerCrashed | Unavailable] = []
            async with trio.open_nursery() as nursery:

                async def until_it_ends(work: Callable[[], Awaitable[None]]) -> None:
                    try:
                        await work()
                    except (RunnerCrashed, Unavailable) as error:
                        ended.append(error)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(until_it_ends, lambda: self._listen(watcher))
                nursery.start_soon(until_it_ends, lambda: self._keep_up(watcher, news))
            if ended:
                raise ended[0]

    async def _listen(self, watcher: Watcher) -> None:
        """Wake whom a change concerns, for ever."""
        while True:
            marks = await watcher.changed()
            numbers = sorted(set().union(*(self._who.get(path, set()) for path in marks)))
            command = FilesChanged(resource_nos=tuple(numbers), marks=marks)
            if await self._store.write(wake_watching, command):
                self._wake_scheduler()

    async def _keep_up(self, watcher: Watcher, news: Watch) -> None:
        """Have watched what is to be watched, until nothing is."""
        while self._marks:
            if await news.wait(REREAD_S):
                before = self._marks
                await self._read()
                if self._marks != before:
                    await watcher.watch(self._marks)

    async def _read(self) -> None:
        """Who watches what now. A path that two have seen differently is told in any case."""
        who: dict[str, set[int]] = {}
        marks: dict[str, str] = {}
        after = 0
        while page := await self._store.read(watching, after):
            for one in page:
                for path, mark in one.marks.items():
                    who.setdefault(path, set()).add(one.resource_no)
                    marks[path] = mark if marks.get(path, mark) == mark else UNKNOWN
            after = page[-1].resource_no
        self._who, self._marks = who, marks
