"""What a daemon may die of: a fault of its own disk just now, or a claim that really is another's. Nothing else.

A fault excuses what comes of it: the store answers a few batches more before everybody has learned of it. It does not
excuse what happens to the same daemon later, or to another one.
"""

from __future__ import annotations

BATCHES_MAX = 4  # from a fault to the death that it excuses
CAUSES = {
    "StoreBroken": ("io_error",),
    "OutcomeUnknown": ("io_error",),
    "StoreRefused": ("io_error", "disk_full", "locked"),
    "DiskFull": ("disk_full",),
    "Unavailable": ("io_error", "disk_full", "locked"),
    "ClaimLost": ("taken_over",),
    "IOError": ("io_error",),  # while the connections are closed
    "FullError": ("disk_full",),
}


class Wounds:
    """The faults that hit one daemon."""

    def __init__(self) -> None:
        self._batches = 0
        self._last: dict[str, int] = {}
        self.count = 0  # of all

    def batch(self) -> None:
        """One more batch has been answered."""
        self._batches += 1

    def hit(self, kind: str) -> None:
        """A fault of this kind happened to it."""
        self._last[kind] = self._batches
        self.count += 1

    def fresh(self, kind: str) -> bool:
        """Whether what happens now may come of such a fault."""
        return kind in self._last and self._batches - self._last[kind] <= BATCHES_MAX


def excused(name: str, wounds: Wounds, *, taken_over: bool) -> bool:
    """Whether the daemon may die of an error of this name now."""
    return any(taken_over if cause == "taken_over" else wounds.fresh(cause) for cause in CAUSES.get(name, ()))
