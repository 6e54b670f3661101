"""What clients have sent and not been answered, and been answered and not read: bounded in bytes.

Owns the count for each connection and for all together. Promises: a connection with `SHARE_BYTES_MAX` of it begins no
further request, and is read no further, until it has read; when all together have more than `TOTAL_BYTES_MAX`, the
connection that has most is dropped. So a client that reads keeps its connection, and many that do not read can't fill
the daemon's memory. Counted are the frames themselves; what a handler makes of one is a few times as large.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import trio

SHARE_BYTES_MAX = 2 * 1024 * 1024
TOTAL_BYTES_MAX = 64 * 1024 * 1024


class Unread:
    """For all connections of a listener."""

    def __init__(self) -> None:
        self._shares: set[Share] = set()
        self._bytes = 0

    def share(self, drop: Callable[[int], None]) -> Share:
        """The part of one connection, for as long as it is entered. `drop` ends the connection; it must not wait."""
        return Share(self, drop)

    def enter(self, share: Share) -> None:
        """For the share itself, as are the next two."""
        self._shares.add(share)

    def leave(self, share: Share) -> None:
        if share in self._shares:
            self._shares.remove(share)
            self._bytes -= share.bytes

    def count(self, share: Share, change: int) -> None:
        if share not in self._shares:  # it was dropped, and ends
            return
        self._bytes += change
        if change > 0 and self._bytes > TOTAL_BYTES_MAX:
            most = max(self._shares, key=lambda one: one.bytes)
            self.leave(most)
            most.dropped()


class Share:
    """What one connection holds: answers that are not sent, texts of open requests, and the beginning of a frame."""

    def __init__(self, all_of_them: Unread, drop: Callable[[int], None]) -> None:
        self._all = all_of_them
        self._drop = drop
        self._answers = self._texts = self._begun = 0
        self._less: trio.Event | None = None  # while somebody waits

    def __enter__(self) -> Share:
        self._all.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.leave(self)

    @property
    def bytes(self) -> int:
        """All of it."""
        return self._answers + self._texts + self._begun

    def answer(self, change: int) -> None:
        """Bytes of answers and events that wait to be sent, and have been sent, or never will be."""
        self._answers += change
        self._change(change)

    def text(self, change: int) -> None:
        """Bytes of requests that have begun, and have ended."""
        self._texts += change
        self._change(change)

    def begun(self, size: int) -> None:
        """Bytes of the frame whose end has not come."""
        change, self._begun = size - self._begun, size
        if change:
            self._change(change)

    def dropped(self) -> None:
        """End the connection."""
        self._drop(self.bytes)

    async def wait_until_read(self) -> None:
        """Until its client has read enough that another request may begin."""
        while self._answers > SHARE_BYTES_MAX:
            await self._wait_for_less()

    async def wait_until_free(self) -> None:
        """Until enough is read and done that another request may be read."""
        while self._answers + self._texts > SHARE_BYTES_MAX:
            await self._wait_for_less()

    async def _wait_for_less(self) -> None:
        if self._less is None:
            self._less = trio.Event()
        await self._less.wait()

    def _change(self, change: int) -> None:
        if change < 0 and self._less is not None:
            self._less.set()
            self._less = None
        self._all.count(self, change)
