"""What people see of channels, and their word on a message of which nobody knows whether it arrived."""

from __future__ import annotations

from collections import Counter

import msgspec

from pwf.errors import Conflict, NotFound
from pwf.protocol.channels import ChannelLine, ChannelList, MessageLine, RecoverMessage
from pwf.store.channel_messages import add_test, is_open, move, remind, settle_effect, shown
from pwf.store.channel_rows import StoredChannel, stored_channels
from pwf.store.channel_times import Showing
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.tx import Row, Tx

Q = load_queries(__file__)

LISTED_MAX = 100
SETTLED = frozenset({"shown", "closed", "void"})


# --- looking --------------------------------------------------------------------------------------------------


def channel_list(tx: Tx, _: None = None) -> ChannelList:
    """All channels, and the messages that people may want to know of."""
    lines: list[ChannelLine] = []
    told: list[MessageLine] = []
    for channel in stored_channels(tx):
        rows = tx.all(Q.newest, {"channel_no": channel.channel_no})
        lines.append(_line(channel, Counter(state for _, state in rows)))
        told += [_one(tx, message_id) for message_id, state in rows if state not in SETTLED][:LISTED_MAX]
    told.sort(key=lambda one: -one.created_ms)
    return ChannelList(channels=tuple(lines), messages=tuple(told[:LISTED_MAX]))


def _line(channel: StoredChannel, states: Counter[str]) -> ChannelLine:
    return ChannelLine(
        name=channel.name,
        kind=channel.kind,
        state=channel.state,  # type: ignore[arg-type]  # the table's CHECK
        since_ms=channel.changed_wall_ms,
        tells=channel.tells,
        trouble=channel.trouble,
        messages=dict(states),
    )


def message_of(tx: Tx, message_id: str) -> MessageLine:
    """One message, by a unique prefix of its id."""
    rows = tx.all(Q.by_prefix, {"low": message_id, "high": message_id + "\U0010ffff"})
    if not rows or not message_id:
        raise NotFound(f"there is no message {message_id!r}", hint="pwf channel status lists them")
    if len(rows) > 1 and rows[0][0] != message_id:
        raise NotFound(f"several messages begin with {message_id!r}", hint="type more of it")
    return _one(tx, rows[0][0])


def _one(tx: Tx, message_id: str) -> MessageLine:
    row: Row | None = tx.one(Q.one, {"message_id": message_id})
    assert row is not None, "it was found just now"
    names = (
        "message_id",
        "channel",
        "event",
        "state",
        "created_ms",
        "tries",
        "run_id",
        "request_id",
        "ref",
        "due_ms",
        "why",
    )
    return MessageLine(**dict(zip(names, row, strict=True)))


# --- words ----------------------------------------------------------------------------------------------------


class ProbeChannel(msgspec.Struct, frozen=True, kw_only=True):
    """Send a message that says that the channel works."""

    channel: str
    receipt: ReceiptKey | None = None


def probe_channel(tx: Tx, command: ProbeChannel) -> Done[MessageLine]:
    """The message, which is due. Earlier tests go, whatever became of them; one that is being sent is waited for."""
    return once(tx, command.receipt, MessageLine, lambda: (_test(tx, command.channel), False))


def _test(tx: Tx, name: str) -> MessageLine:
    row = tx.one(Q.by_name, {"name": name})
    if row is None:
        raise NotFound(f"there is no channel {name!r}", hint="pwf channel status lists them")
    sending = tx.one(Q.sending_test, {"channel_no": row[0]})
    if sending is not None:
        raise Conflict(f"channel {name} is sending a test", hint="pwf channel status")
    tx.run(Q.drop_tests, {"channel_no": row[0]})
    tx.run(Q.drop_test_effects, {"channel_no": row[0]})
    return _one(tx, add_test(tx, row[0]))


class Recover(msgspec.Struct, frozen=True, kw_only=True):
    """A person's word. `audiences`: who is reminded of what it is about."""

    said: RecoverMessage
    audiences: dict[str, Showing] = {}
    actor: str
    receipt: ReceiptKey | None = None


def recover_message(tx: Tx, command: Recover) -> Done[MessageLine]:
    """Settle a message that is ambiguous, or have it sent again."""
    return once(tx, command.receipt, MessageLine, lambda: (_recover(tx, command), False))


def _recover(tx: Tx, command: Recover) -> MessageLine:
    said = command.said
    message = message_of(tx, said.message_id)
    if message.state not in ("ambiguous", "refused") or (
        message.state == "refused" and said.word == "confirm"
    ):
        raise Conflict(
            f"message {message.message_id} is {message.state}: there is nothing to {said.word}",
            hint="pwf channel status",
        )
    row = tx.one(Q.channel_of, {"message_id": message.message_id})
    assert row is not None
    channel_no: int = row[0]
    if said.word == "retry" and row[1] == "off":
        raise Conflict(
            f"channel {message.channel} is not configured: it sends nothing",
            hint=f"add [channels.{message.channel}] again, then: pwf channel reload",
        )
    if said.word == "confirm":
        settle_effect(tx, channel_no, message.message_id, "applied", ref=said.ref, by=command.actor)
        shown(tx, message.message_id, message.request_id)
        remind(tx, channel_no, command.audiences, message.request_id)
        return _one(tx, message.message_id)
    if not is_open(tx, message.request_id):
        raise Conflict(
            f"what message {message.message_id} asks is settled: it is not sent again",
            hint=f"pwf channel recover {message.message_id} confirm",
        )
    settle_effect(
        tx, channel_no, message.message_id, "rejected", why="sent again by a person", by=command.actor
    )
    move(tx, message.message_id, "due", due=tx.now.wall_ms, anew=True)
    return _one(tx, message.message_id)
