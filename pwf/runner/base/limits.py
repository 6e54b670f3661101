"""The memory limit of a run, as the kernel's: what the runner and its children may each allocate.

Only the soft limit is set, so that the runner can lift it while it reports that a step went over it.
"""

from __future__ import annotations

import resource
import sys

# Linux counts private writable memory as data (since 4.7), which is what a step allocates; elsewhere only the
# address space can be limited.
_KIND = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS


def limit_memory(bytes_max: int | None) -> None:
    """Set the limit for this process and the children it starts; None sets none."""
    if bytes_max is None:
        return
    _, hard = resource.getrlimit(_KIND)
    soft = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(_KIND, (soft, hard))


class Lifted:
    """Within this block the limit is off."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = soft, hard = resource.getrlimit(_KIND)
        if soft != hard:
            resource.setrlimit(_KIND, (hard, hard))

    def __exit__(self, *_: object) -> None:
        soft, hard = self._before
        if soft != hard:
            resource.setrlimit(_KIND, self._before)
