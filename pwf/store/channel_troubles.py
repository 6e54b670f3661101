"""What keeps channels from showing a question, in words for people."""

from __future__ import annotations

import msgspec

from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)


class ChannelProblems(msgspec.Struct, frozen=True, kw_only=True):
    """In words."""

    problems: tuple[str, ...] = ()


def channel_problems(tx: Tx, _: None = None) -> ChannelProblems:
    """What people should know of channels without asking for them."""
    found = [
        f"channel {name} is down: {trouble}" if state == "down" else f"channel {name}: {trouble}"
        for name, state, trouble in tx.all(Q.in_trouble)
    ]
    found += [
        f"channel {name}: nobody knows whether message {message_id} arrived"
        for name, message_id in tx.all(Q.ambiguous)
    ]
    return ChannelProblems(problems=tuple(found))


def is_channel(tx: Tx, name: str) -> bool:
    """Whether a channel was ever called so."""
    return tx.one(Q.named, {"name": name}) is not None


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
