"""What names a process beyond doubt, and what a scan of the process table tells about one.

A pid alone names nothing: it is used again. Pid, the kernel's own start tick and the boot id together name
one process for ever. The session is the one it belonged to when it was looked at, and no part of sameness.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process, so that no other is ever taken for it: pid, the kernel's start tick, boot id, session id."""

    pid: int
    start_tick: int
    boot_id: str
    session: int

    def is_same(self, other: Identity | None) -> bool:
        """Whether both name one process, whatever session it is in by now."""
        return (
            other is not None
            and self.pid == other.pid
            and self.start_tick == other.start_tick
            and self.boot_id == other.boot_id
        )


class Process(NamedTuple):
    """One row of the process table. `dead`: it executes nothing any more and only waits to be reaped."""

    identity: Identity
    parent: int
    dead: bool


class Bearer(NamedTuple):
    """A living process with the value that one variable had in its start environment, if it had it."""

    identity: Identity
    parent: int
    marker: str | None
