"""Wake-ups by key: one subscription to the store's changes, handed to whoever waits for a run.

Owns its map of waiters. Promises: a commit that changed `run:<id>` wakes the waiters of that run, at a cost
that does not grow with the others; a wake-up may be doubled, so a waiter reads the store again. Must never
carry facts.
In: the store's change sets. Out: wake-ups. If it dies, the daemon ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import trio

REREAD_S = 5.0  # a lost wake-up costs at most this (design, section 3)
EVERYTHING = "*"  # from the store: some keys were dropped, so anything may have changed
ANY_RUN = "runs"  # to watch: a change of any run


class ChangeSubscription(Protocol):
    """What the store gives its subscribers."""

    async def wait(self) -> frozenset[str]:
        """The keys changed since the last call; `EVERYTHING` among them when some were dropped."""
        ...


class ChangeSource(Protocol):
    """The part of the store's handle that this actor needs."""

    def subscribe(self, *prefixes: str) -> AbstractContextManager[ChangeSubscription]:
        """Begin to listen, to the keys that begin with one of the prefixes."""
        ...


class Watch:
    """One waiter's place: remembers that something has happened since it last looked."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        """Something has changed."""
        self._event.set()

    async def wait(self, at_most_s: float = REREAD_S) -> bool:
        """Until the next change, or the bound; whether there was one. What came before counts too."""
        with trio.move_on_after(at_most_s):
            await self._event.wait()
        woken = self._event.is_set()
        if woken:
            self._event = trio.Event()
        return woken


class Changes:
    """The actor and its handle in one: `run` is its task, `watch` is for everyone."""

    def __init__(self, source: ChangeSource) -> None:
        self._source = source
        self._watches: dict[str, set[Watch]] = {}

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        with self._source.subscribe() as subscription:
            task_status.started()
            while True:
                self._wake(await subscription.wait())

    @contextmanager
    def watch(self, key: str) -> Iterator[Watch]:
        """Listen for one key; begin before the state is read, so that no change falls between."""
        watch = Watch()
        self._watches.setdefault(key, set()).add(watch)
        try:
            yield watch
        finally:
            waiting = self._watches[key]
            waiting.discard(watch)
            if not waiting:
                del self._watches[key]

    def _wake(self, keys: frozenset[str]) -> None:
        if EVERYTHING in keys:
            keys = frozenset(self._watches)
        elif any(key.startswith("run:") for key in keys):
            keys |= {ANY_RUN}
        for key in keys:
            for watch in self._watches.get(key, ()):
                watch.wake()
