"""Sessions of agents: an agent's own conversation that owns interactive runs and does the steps that they ask of it.

A session is attached to one connection at a time, and what acts for it counts on that connection only: no payload names
the session that acts. An attach gives the next epoch, which fences the connection before it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pwf.protocol.bounds import Name
from pwf.protocol.operation import Operation
from pwf.protocol.runner import StepError, Value
from pwf.protocol.transcripts import Recorded, RecordPayload, Transcript, TranscriptPayload
from pwf.protocol.views import RequestView, RunSummary, Status

BRANCH_MAX = 1_000  # messages that one report names: those that are still pending are enough
SESSIONS_PAGE = 100

#: `step`, `terminal` and `follow_up` start a turn of the model; others are only shown. `proposal`: a person decides.
MessageKind = Literal["step", "terminal", "follow_up", "notification", "proposal"]
STARTS_TURN: frozenset[MessageKind] = frozenset({"step", "terminal", "follow_up"})
MessageStatus = Literal["pending", "sent", "cancelled"]
#: Why there is a step message: its request was made, its run resumed, what was submitted rejected, the turn lost, or
#: the turn has ended without a submission.
StepReason = Literal["initial", "resumed", "rejected", "lost", "reminder"]
#: What a turn counts for: `active`: go on. `settled`: for nothing any more, stop it. `absent`: its message is none of
#: this session's.
Standing = Literal["active", "settled", "absent"]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


# --- what a session sees ----------------------------------------------------------------------------------------


class RunEnd(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a terminal message says, as data: it has no instructions."""

    workflow: str
    status: Status
    output: Value | None = None
    error: StepError | None = None
    reason: str | None = None


class MessageView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one message that is next, or that the session's turn is about.

    `pending`: send it once the session is idle. `sent`: the session was seen to have it, and its turn is not over.
    `cancelled`: it was sent, and counts for nothing any more: stop its turn, and report that.
    """

    message_id: str
    kind: MessageKind
    status: MessageStatus
    run_id: str
    revision: int  # of the run
    reason: StepReason | None = None  # of a step
    why: str | None = None  # what a rejected submission is to correct
    request_id: str | None = None
    request_revision: int | None = None
    end: RunEnd | None = None  # of a terminal message
    text: Value | None = None  # of a notification or a follow-up
    starts_turn: bool = True


class TurnView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A turn that the session has reported, and not ended yet."""

    turn_id: str
    message_id: str
    started_ms: int
    active_ms: int = 0  # of the step's request, in all its turns


class SessionView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`session.view`. `run`: the one that goes on, or the last one for as long as its end is news.

    `reported`: since it was attached. Before its first report no message is named: what it has seen is not known.
    """

    session_id: str
    epoch: int
    connected: bool
    reported: bool = False
    run: RunSummary | None = None
    request: RequestView | None = None  # that is open
    message: MessageView | None = None
    turn: TurnView | None = None


class SessionLine(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of `session.list`. `seen_ms`: when it was attached, detached or heard of last."""

    session_id: str
    epoch: int
    connected: bool
    client: str = ""
    idle: bool = False
    run_id: str | None = None  # that goes on
    run_status: Status | None = None
    created_ms: int
    seen_ms: int


class SessionList(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one that was made last comes first. `next_cursor`: where the next page begins."""

    sessions: tuple[SessionLine, ...]
    next_cursor: int | None = None


# --- what a session says ----------------------------------------------------------------------------------------


class AttachPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`session_id`: chosen by the agent, and the same whenever it comes back. `client`: what it is, for people.

    `host_pid`: the process that is the agent, where it has started the one that attaches: what it starts gives no
    person's word either.
    """

    session_id: Name
    client: Name = ""
    host_pid: int | None = None


class SessionAttached(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`epoch`: of this connection. From now on it sees and changes the session's own runs only."""

    session_id: str
    epoch: int


class SessionListPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`connected`: only those that are."""

    connected: bool = False
    limit: int = SESSIONS_PAGE
    cursor: int | None = None


class SessionRef(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of `session.view`. None: the connection's own, the only one that a session sees."""

    session_id: Name | None = None


class ReportPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the session is now. `branch`: ids of messages that its active branch holds, which is what says that they
    were sent; those that have been reported before may be left out.

    `idle`: no turn goes on; then a turn that is open here, and is not `turn`, is lost. `input_pending`: what was
    typed or queued begins a turn before any message.
    """

    branch: Annotated[tuple[Name, ...], msgspec.Meta(max_length=BRANCH_MAX)] = ()
    idle: bool = False
    input_pending: bool = False
    turn: Name | None = None


class TurnPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A turn of the model, by an id that the session chooses, about a message."""

    turn_id: Name
    message_id: Name
    state: Literal["started", "ended", "aborted"]


class TurnReported(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`run_id`: whose message it is about."""

    standing: Standing
    run_id: str | None = None
    revision: int | None = None


class ClearPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run that is dismissed from the session's view. It must have ended."""

    run_id: Name


class Cleared(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run_id: str


SESSION_OPERATIONS: dict[str, Operation] = {
    "session.attach": Operation(AttachPayload, SessionAttached, writes=True),
    "session.list": Operation(SessionListPayload, SessionList),
    "session.view": Operation(SessionRef, SessionView),
    "session.report": Operation(ReportPayload, SessionView, writes=True),
    "session.turn": Operation(TurnPayload, TurnReported, writes=True),
    "session.record": Operation(RecordPayload, Recorded, writes=True),
    "session.transcript": Operation(TranscriptPayload, Transcript, needs_run=True),
    "session.clear": Operation(ClearPayload, Cleared, writes=True),
}
