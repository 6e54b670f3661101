"""Talking to the daemon.

`connect()` is an async context manager on anyio (trio and asyncio alike); `connect_sync()` is the blocking
one; `open_session()` attaches an agent's session. None is imported before it is named, so that short commands load no
event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pwf.client.aio import Client, connect
    from pwf.client.session import Session, open_session
    from pwf.client.sync import SyncClient, connect_sync

__all__ = ["Client", "Session", "SyncClient", "connect", "connect_sync", "open_session"]

_HOMES = {
    "Client": "pwf.client.aio",
    "connect": "pwf.client.aio",
    "Session": "pwf.client.session",
    "open_session": "pwf.client.session",
    "SyncClient": "pwf.client.sync",
    "connect_sync": "pwf.client.sync",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
