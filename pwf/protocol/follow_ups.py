"""Follow-ups: prompts that are queued for the session of a run, for after its success."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pwf.protocol.bounds import Name
from pwf.protocol.operation import Operation

FOLLOW_UP_BYTES_MAX = 64 * 1024
FOLLOW_UPS_MAX = 64  # queued of one run

FollowUpText = Annotated[str, msgspec.Meta(min_length=1, max_length=FOLLOW_UP_BYTES_MAX)]

#: `dropped`: it counts for nothing any more, and `why` says so.
FollowUpStatus = Literal["queued", "sent", "dropped"]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class FollowUpView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of a run's. `summary`: the start of its text, at most 200 characters."""

    follow_up_id: str
    status: FollowUpStatus
    summary: str
    queued_by: str
    created_ms: int
    sent_ms: int | None = None
    why: str | None = None


class FollowUps(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest of a run's, in order."""

    run_id: str
    follow_ups: tuple[FollowUpView, ...]


class QueueFollowUp(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run is the frame's."""

    text: FollowUpText


class RemoveFollowUp(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the frame's run, by its id or its number in the order of the queue, from 1."""

    follow_up: Name


class FollowUpChanged(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`session`: who is to get it."""

    run_id: str
    follow_up_id: str
    session: str
    revision: int


FOLLOW_UP_OPERATIONS = {
    "follow_up.queue": Operation(QueueFollowUp, FollowUpChanged, needs_run=True, changes=True),
    "follow_up.remove": Operation(RemoveFollowUp, FollowUpChanged, needs_run=True, changes=True),
}
