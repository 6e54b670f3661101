"""The memory limit of a run, as the kernel's: what the runner and its children may each allocate.

Only the soft limit is set, so that the runner can lift it while it reports that a step went over it.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Iterator

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


@contextlib.contextmanager
def lifted() -> Iterator[None]:
    """Within this block the limit is off."""
    soft, hard = resource.getrlimit(_KIND)
    if soft == hard:
        yield
        return
    resource.setrlimit(_KIND, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(_KIND, (soft, hard))
