"""`ctx.publish` on its way out: at most twenty sendings a second, the newest of each key kept in between.

What waits is bounded by number and so, with the bound of each update, in bytes; when it is full, the
publisher waits for the socket. A step's end flushes. Updates have no reply: one that a crash swallows is
replaced by the next.

A bare lock and bare threads: `threading` has work to do in each fork, some 100 pages of it.
"""

from __future__ import annotations

import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Iterable

import msgspec

from pwf.errors import InvalidArgument, Rejected
from pwf.protocol.masking import Masks
from pwf.protocol.runner import UPDATES_MAX, Publish
from pwf.runner.base.wire import DaemonGone, Wire

INTERVAL_S = 0.05
PENDING_MAX = 64


class Updates:
    """Coalesces and sends updates. Any thread may publish."""

    def __init__(
        self, wire: Wire, current: Iterable[tuple[str, str]] = (), masks: Masks | None = None
    ) -> None:
        self._wire = wire
        self._masks = masks
        self._current = set(current)  # kind and key of each item of the run
        self._pending: dict[tuple[str, str], Publish] = {}
        self._lock = allocate_lock()
        self._last_sent = -INTERVAL_S
        self._sends_later = False  # a thread does, as long as something waits
        self._sleep = allocate_lock()  # of that thread: let go, it wakes at once
        self._sleep.acquire()

    def publish(self, attempt: int, kind: str, key: str, data: bytes) -> None:
        """Send now, or when the interval is over. `data` is canonical JSON. Raises `Rejected` for one item too many."""
        for text in (kind, key):
            if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
                raise InvalidArgument(f"the update {kind!r} {key!r} is named by a lone surrogate")
        if self._masks:
            kind, key, data = self._masks.text(kind), self._masks.text(key), self._masks.json(data)
        with self._lock:
            self._current.add((kind, key))
            if len(self._current) > UPDATES_MAX:
                self._current.remove((kind, key))
                raise Rejected(
                    f"the update {kind!r} {key!r} would be one more than the {UPDATES_MAX} current ones of this run",
                    hint="publish under a type and key that are there already: the record replaces that one",
                )
            self._pending[kind, key] = Publish(attempt=attempt, kind=kind, key=key, data=msgspec.Raw(data))
            if len(self._pending) >= PENDING_MAX or time.monotonic() >= self._last_sent + INTERVAL_S:
                self._send_pending()
                return
            if not self._sends_later:
                start_new_thread(self._send_later, ())
                self._sends_later = True

    def flush(self) -> None:
        """Send what waits, in order of first publication. Nothing is left to be sent later, nor a thread for it."""
        if self._pending or self._sends_later:
            with self._lock:
                self._send_pending()
                if self._sends_later and self._sleep.locked():
                    self._sleep.release()

    def _send_pending(self) -> None:
        pending, self._pending = self._pending, {}
        if pending:
            self._last_sent = time.monotonic()
        for update in pending.values():
            self._wire.send(update)

    def _send_later(self) -> None:
        """The thread: sends what waits when the interval is over, and ends when nothing waits."""
        try:
            while True:
                rest = self._last_sent + INTERVAL_S - time.monotonic()
                if rest > 0:
                    self._sleep.acquire(timeout=rest)
                with self._lock:
                    if not self._pending:
                        self._sends_later = False
                        return
                    if time.monotonic() >= self._last_sent + INTERVAL_S:  # else another has sent meanwhile
                        self._send_pending()
        except DaemonGone:
            return  # the hang-up watcher ends the process
