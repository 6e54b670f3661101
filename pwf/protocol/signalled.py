"""The note that a step was about to send a signal to its daemon: the file `signalled` in the home.

The runner writes it before, since a daemon that is killed learns nothing. The next daemon reads it once: then it knows
that the earlier one did not end by a signal of others. What a step has another program do leaves no note, unless the
program's words name the daemon's pid.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

NAME = "signalled"  # as `Places.signalled`
BYTES_MAX = 32


def note_signalled(output_folder: str, pid: int) -> None:
    """Note it, for the daemon of this pid, in the home that the run's output folder stands in."""
    home = os.path.dirname(os.path.dirname(output_folder))
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.join(home, NAME), flags, 0o600)
        try:
            os.write(descriptor, str(pid).encode())
        finally:
            os.close(descriptor)


def take_signalled(path: Path) -> int:
    """The pid that was noted, once; 0 where there is no note."""
    try:
        with path.open("rb") as file:
            noted = file.read(BYTES_MAX)
        path.unlink()
        return int(noted)
    except (OSError, ValueError):
        return 0
