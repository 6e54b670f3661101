"""Operations on channels: how they stand, a test, what is not known of a message, and the configuration read anew."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pwf.protocol.bounds import Name, Words
from pwf.protocol.channel_port import ChannelEvent
from pwf.protocol.operation import Operation
from pwf.protocol.runner import REF_CHARS_MAX

MessageState = Literal["due", "sending", "shown", "refused", "ambiguous", "closing", "closed", "void"]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ChannelNothing(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No fields."""


class ChannelLine(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A channel. `off`: the configuration names it no more. `messages`: of the newest thousand, by state."""

    name: str
    kind: str
    state: Literal["off", "starting", "up", "down"]
    since_ms: int
    tells: tuple[str, ...] = ()
    trouble: str | None = None
    messages: dict[str, int] = {}


class MessageLine(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message. `why`: what is wrong with it."""

    message_id: str
    channel: str
    event: ChannelEvent
    state: MessageState
    created_ms: int
    tries: int = 0
    run_id: str | None = None
    request_id: str | None = None
    ref: str | None = None
    due_ms: int | None = None
    why: str | None = None


class ChannelList(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All channels; and the messages that are not settled or went wrong, newest first, at most a hundred."""

    channels: tuple[ChannelLine, ...]
    messages: tuple[MessageLine, ...] = ()


class ChannelRef(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    channel: Name


class MessageRef(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    message_id: Name


class RecoverMessage(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's word on a message of which nobody knows whether it arrived. The id may be a unique prefix.

    `confirm`: it did (`ref`: what the service calls it, so that it can be closed later). `retry`: it is sent again, and
    may arrive twice.
    """

    message_id: Name
    word: Literal["confirm", "retry"]
    ref: Annotated[str, msgspec.Meta(max_length=REF_CHARS_MAX)] | None = None
    note: Words | None = None


CHANNEL_OPERATIONS: dict[str, Operation] = {
    "channel.list": Operation(ChannelNothing, ChannelList),
    "channel.message": Operation(MessageRef, MessageLine),
    "channel.test": Operation(ChannelRef, MessageLine, changes=True),
    "channel.recover": Operation(RecoverMessage, MessageLine, changes=True),
    "channel.reload": Operation(ChannelNothing, ChannelList),
}
