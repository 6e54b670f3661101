"""A process becomes that of a run or of a reconcile: it goes to its folder, and gets its memory limit."""

from __future__ import annotations

import os
import sys

from pwf.protocol.runner import EXIT_UNFIT
from pwf.runner.base import forking, limits


def enter(root: str, memory_bytes_max: int | None) -> None:
    """Leaves with `EXIT_UNFIT`, before any step, where the folder can't be entered. An empty `root`: stay here."""
    forking.default_termination()
    if root:
        try:
            os.chdir(root)
        except OSError as error:
            sys.stderr.write(f"the project's folder {root!r} can not be entered: {error}\n")
            raise SystemExit(EXIT_UNFIT) from error
    limits.limit_memory(memory_bytes_max)
