"""Time as a parameter. Nothing else in pwf asks the system for the time.

Three readings, all in whole milliseconds:
- `awake` stops while the machine sleeps: leases and active time;
- `elapsed` counts sleep, within one boot: relative waits;
- `wall` is what people see, and may step: absolute times, and relative waits across boots.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple, Protocol


class Now(NamedTuple):
    """One reading of all clocks. `boot_id` says within which boot `awake_ms` and `elapsed_ms` mean anything."""

    wall_ms: int
    elapsed_ms: int
    awake_ms: int
    boot_id: str


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> Now:
        """Read all clocks at once."""
        ...


class SystemClock:
    """The real clocks of this machine."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        # macOS: CLOCK_MONOTONIC counts sleep and CLOCK_UPTIME_RAW does not; Linux: the other way round.
        if sys.platform == "darwin":
            self._elapsed, self._awake = time.CLOCK_MONOTONIC, time.CLOCK_UPTIME_RAW
        else:
            self._elapsed, self._awake = time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC

    def now(self) -> Now:
        return Now(
            wall_ms=time.time_ns() // 1_000_000,
            elapsed_ms=time.clock_gettime_ns(self._elapsed) // 1_000_000,
            awake_ms=time.clock_gettime_ns(self._awake) // 1_000_000,
            boot_id=self._boot_id,
        )
