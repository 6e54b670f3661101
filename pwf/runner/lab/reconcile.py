"""A reconcile in a crash lab: its process ends at a planned boundary.

Only `pwf crashlab` makes one do so, by the resource's environment and a plan that names the home. Promises: boundaries
are counted over the whole life of a resource, so each is come to once, whichever process comes to it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import msgspec

from pwf.protocol.crashlab import LAB_VARIABLE, LabFolder, decode_manager_plan
from pwf.protocol.reconcile import Reconcile


def reach_of(told: Reconcile) -> Callable[[], None]:
    """What a reconcile calls at each boundary; it does nothing for every resource of a real home."""
    path = os.environ.get(LAB_VARIABLE)
    if not path:
        return lambda: None
    folder = LabFolder(path)
    try:
        plan = decode_manager_plan(folder.plan(told.key).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return lambda: None
    if plan.home_id != told.marker.partition(":")[0]:
        return lambda: None
    counter = folder.passed(told.key)

    def reach() -> None:
        with open(counter, "ab", buffering=0) as file:  # each is a byte, and one process at a time counts
            file.write(b".")
            if file.tell() == plan.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    return reach
