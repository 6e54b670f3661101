"""What the lock file of a home says: who serves it, or served it last.

The daemon writes it, clients read it. It decides nothing: the kernel's lock on the file does. Readers ignore fields
that they do not know, so a later daemon may say more.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class LockRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the lock, and until when it promises to be alive. `pid` 0: nobody any more."""

    pid: int = 0
    start_tick: int = 0
    boot_id: str = ""
    session: int = 0
    socket: str = ""
    home_id: str = ""
    version: str = ""
    epoch: int = 0
    lease_until_awake_ms: int = 0


def read_record(path: Path) -> LockRecord | None:
    """What the lock file at `path` says; None when that is nothing that makes sense."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LockRecord)
    except (OSError, msgspec.MsgspecError):
        return None
