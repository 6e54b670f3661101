"""Channels as rows: what the configuration names, and how the process of each one's adapter stands.

Promises: an adapter's epoch is its channel's generation, which grows with each process; what an earlier one was sending
is ambiguous from then on; and nothing that bears another epoch is taken.
"""

from __future__ import annotations

import msgspec

from pwf.errors import ClaimLost
from pwf.store.queries import load_queries
from pwf.store.tx import Row, Tx

Q = load_queries(__file__)

KIND = "channel"
MESSAGES_KEY = "channel_messages"  # something is to be shown or closed
CHANNELS_KEY = "channels"
#: Shown to audiences that name the channel, and to no other; what was shown goes with the adapter's process.
BY_NAME = frozenset({"mcp"})
LOST = "the adapter or the daemon ended while it was being sent"
GONE = "it went with the adapter's process, and is shown anew"
REMOVED = "the channel was taken out of the configuration"


class StoredChannel(msgspec.Struct, frozen=True):
    """A row of `channels`, with its generation."""

    channel_no: int
    name: str
    kind: str
    tells: tuple[str, ...]
    state: str
    trouble: str | None
    changed_wall_ms: int
    cursor: str | None
    generation: int


class ConfiguredChannel(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says of one."""

    name: str
    kind: str
    tells: tuple[str, ...]


def stored_channels(tx: Tx, _: None = None) -> tuple[StoredChannel, ...]:
    """All that ever were configured."""
    return tuple(map(_channel, tx.all(Q.channels)))


def configure(tx: Tx, wanted: tuple[ConfiguredChannel, ...]) -> dict[str, int]:
    """Have exactly these; their numbers by name. Those that went show nothing more; what they have shown stays."""
    known = {one.name: one for one in stored_channels(tx)}
    numbers: dict[str, int] = {}
    for one in wanted:
        facts = {"kind": one.kind, "tells": msgspec.json.encode(one.tells), "now": tx.now.wall_ms}
        if one.name in known:
            numbers[one.name] = known[one.name].channel_no
            tx.run(Q.configure, {"channel_no": numbers[one.name], "state": "starting", **facts})
        else:
            number = numbers[one.name] = tx.create_entity(KIND, one.name)
            tx.run(Q.add, {"channel_no": number, "name": one.name, **facts})
            tx.event(number, 1, "configured", "daemon", 0, {"kind": one.kind})
    for gone in known.values():
        if gone.name not in numbers:
            if gone.state != "off":
                facts = {"kind": gone.kind, "tells": b"[]", "state": "off", "now": tx.now.wall_ms}
                tx.run(Q.configure, {"channel_no": gone.channel_no, **facts})
            tx.run(Q.drop_due, {"channel_no": gone.channel_no, "why": REMOVED})
            lose_sends(tx, gone.channel_no)
    tx.changed(CHANNELS_KEY)
    return numbers


def lose_sends(tx: Tx, channel_no: int) -> None:
    """Whoever was sending is gone: a person finds out whether it arrived."""
    tx.run(Q.lost_effects, {"channel_no": channel_no})
    tx.run(Q.lost_messages, {"channel_no": channel_no, "why": LOST})


def begin_epoch(tx: Tx, channel_no: int) -> StoredChannel:
    """A new process is to work for the channel."""
    tx.run(Q.new_epoch, {"channel_no": channel_no})
    lose_sends(tx, channel_no)
    tx.run(Q.stand, {"channel_no": channel_no, "state": "starting", "trouble": None, "now": tx.now.wall_ms})
    tx.changed(CHANNELS_KEY)
    return load_channel(tx, channel_no)


class ChannelStands(msgspec.Struct, frozen=True, kw_only=True):
    """How an adapter stands now."""

    channel_no: int
    epoch: int
    state: str
    trouble: str | None = None


def channel_stands(tx: Tx, said: ChannelStands) -> None:
    """Store it."""
    owned(tx, said.channel_no, said.epoch)
    facts = {"state": said.state, "trouble": said.trouble, "now": tx.now.wall_ms}
    tx.run(Q.stand, {"channel_no": said.channel_no, **facts})
    if said.state == "down":
        lose_sends(tx, said.channel_no)
    tx.changed(CHANNELS_KEY)


def load_channel(tx: Tx, channel_no: int) -> StoredChannel:
    """The row."""
    row = tx.one(Q.channel, {"channel_no": channel_no})
    assert row is not None, "a channel's row stays"
    return _channel(row)


def owned(tx: Tx, channel_no: int, epoch: int) -> StoredChannel:
    """The row, for the adapter of this epoch. Raises `ClaimLost` where another one works for it."""
    channel = load_channel(tx, channel_no)
    if channel.generation != epoch or channel.state == "off":
        raise ClaimLost(f"channel {channel.name} has the epoch {channel.generation} now, not {epoch}")
    return channel


def move_cursor(tx: Tx, channel_no: int, cursor: str) -> None:
    """So much of what people sent is read."""
    tx.run(Q.move_cursor, {"channel_no": channel_no, "cursor": cursor})


def _channel(row: Row) -> StoredChannel:
    number, name, kind, tells, *rest = row
    return StoredChannel(number, name, kind, msgspec.json.decode(tells, type=tuple[str, ...]), *rest)
