"""Wake-ups by key: the store's changes, handed to whoever waits for a run.

Owns its map of waiters; it is called in the store's task and has none of its own. Promises: a commit that changed
`run:<id>` wakes the waiters of that run, at a cost that does not grow with the others; a wake-up may be doubled, so
a waiter reads the store again. Must never carry facts.
In: the keys of each commit. Out: wake-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import trio

K = TypeVar("K")

REREAD_S = 5.0  # a lost wake-up costs at most this
ANY_RUN = "runs"  # to watch: a change of any run


class ChangeSource(Protocol):
    """The part of the store's handle that this needs."""

    def on_change(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Call `listener` with the keys that each commit has changed."""
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


class Woken(Generic[K]):
    """Which of several have published something new since one reader looked: each once, so there is room for all.

    `wake` wakes the reader, and may be lost when it is awake anyway.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._woken: dict[K, None] = {}

    def wake(self, who: K) -> None:
        """What `who` publishes has changed."""
        self._woken[who] = None
        self._wake()

    def take(self) -> tuple[K, ...]:
        """For the reader: who it was, in order."""
        woken = tuple(self._woken)
        self._woken.clear()
        return woken


class Changes:
    """For everyone: `watch` to wait for a key, `calling` to be called."""

    def __init__(self, source: ChangeSource) -> None:
        self._wakes: dict[str, dict[object, Callable[[], None]]] = {}
        source.on_change(self._wake)

    @contextmanager
    def watch(self, key: str) -> Iterator[Watch]:
        """Listen for one key; begin before the state is read, so that no change falls between."""
        watch = Watch()
        with self.calling(key, watch.wake):
            yield watch

    @contextmanager
    def calling(self, key: str, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` at each change of a key. It must only wake others: it runs in the store's task."""
        me = object()
        self._wakes.setdefault(key, {})[me] = wake
        try:
            yield
        finally:
            waiting = self._wakes[key]
            del waiting[me]
            if not waiting:
                del self._wakes[key]

    def _wake(self, keys: frozenset[str]) -> None:
        for key in keys:
            for wake in self._wakes.get(key, {}).values():
                wake()
        if ANY_RUN in self._wakes and any(key.startswith("run:") for key in keys):
            for wake in self._wakes[ANY_RUN].values():
                wake()
