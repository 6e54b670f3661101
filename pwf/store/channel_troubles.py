"""What keeps channels from showing a question, in words for people."""

from __future__ import annotations

from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)


def troubles(tx: Tx, request_id: str) -> tuple[str, ...]:
    """Which channels do not show a question, and why, for people."""
    found = []
    for name, state, trouble, message, why in tx.all(Q.of_request, {"request_id": request_id}):
        if message in ("refused", "ambiguous"):
            found.append(f"channel {name}: {message}: {why}" if why else f"channel {name}: {message}")
        elif message in ("due", "sending") and state == "down":
            found.append(f"channel {name} is down: {trouble}")
        elif message == "due" and why:
            found.append(f"channel {name} is tried again: {why}")
    return tuple(found)
