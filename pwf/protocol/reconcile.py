"""Messages between the daemon and a process that reconciles one resource once.

It is forked like a runner, and has a runner's two sockets. On the *messages* socket the daemon sends one `Reconcile` in
the place of a `Launch`; the process answers with one `Reconciled`, its last transition, and `Leaving`. The first result
of a reconcile counts, and needs no answer: nothing in the process would come of it.

On the *values* socket the process asks, and waits for each answer: a larger value (`ReadValue`), a secret
(`ReadSecret`), a child run (`EnsureRun`, `CancelRun`), its settings and follow-ups (`ChangeChild`, `QueueForChild`,
`RemoveForChild`), an effect of the ledger (`BeginPart`, `SettlePart`, whose `attempt` is the lease's generation, and
which carry their values whole). What is answered is committed before.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec

from pwf.errors import ProtocolError
from pwf.protocol.follow_ups import FollowUpText
from pwf.protocol.nesting import NESTING_MAX, is_too_deep
from pwf.protocol.raw import OptionalRaw
from pwf.protocol.resources import ChildView, Condition, ConditionStatus
from pwf.protocol.runner import BeginPart, Leaving, ReadSecret, ReadValue, SettlePart, StepError, Value
from pwf.protocol.settings import Scope

T = TypeVar("T")

STATUS_BYTES_MAX = 1024 * 1024  # of a manager's status, and of each patch to it
CONDITIONS_MAX = 32
FINALIZERS_MAX = 32
SENT_BYTES_MAX = 4 * 1024 * 1024  # a value that the process sends whole: a child's input, an effect's result
WATCHED_MAX = 64  # paths of one resource
EVENTS_MAX = 64  # of one reconcile
EVENT_BYTES_MAX = 16 * 1024  # of each
CHILDREN_TOLD_MAX = 256  # children that a reconcile is told of, the newest

Text = Annotated[str, msgspec.Meta(max_length=256)]
Message = Annotated[str, msgspec.Meta(max_length=4_096)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    pass


# --- messages socket ------------------------------------------------------------------------------------------


class Reconcile(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="reconcile"):
    """Everything that a process needs to reconcile one resource once.

    `lease_generation` is that of the resource's owner, which the process's marker names; `generation` that of the spec.
    `deleting`: the resource is to go, and what its `finalizers` stand for is to be undone. `reasons`: what has woken
    it since the last reconcile (applied, child, requested, due, file, interval, retry, resumed, restarted).
    """

    uid: str
    manager: str
    key: str
    lease_generation: int
    generation: int
    observed_generation: int
    resource_version: int
    spec: Value
    status: Value
    conditions: tuple[Condition, ...] = ()
    finalizers: tuple[str, ...] = ()
    children: tuple[ChildView, ...] = ()
    deleting: bool = False
    reasons: tuple[str, ...] = ()
    failures: int = 0  # reconciles that failed in a row before this one
    deadline_ms: int = 60_000
    root: str = ""
    memory_bytes_max: int | None = None
    secrets: tuple[str, ...] = ()  # by name, that it may ask for
    output_folder: str = ""  # where what it prints is kept, under `lease_generation`; empty: nowhere
    output_bytes_max: int = 4 * 1024 * 1024  # of each stream
    marker: str = ""


class SaidCondition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition as the manager says it."""

    type: Text
    status: ConditionStatus
    reason: Text = ""
    message: Message = ""


class SaidEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A structured event of the manager: a constant reason, words, and data."""

    reason: Text
    message: Message = ""
    data: OptionalRaw = None


class Reconciled(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="reconciled"):
    """How the reconcile ended. `failed` has an `error`, and adds nothing but its events.

    `status`: a merge patch (RFC 7386) of the status. `conditions` replace those of the same types, and leave others.
    `finalizers` None: as they are. `watch`: paths with their marks as of before it; None: as they are. `after_ms` None
    under `requeue`: at once.
    """

    outcome: Literal["settled", "requeue", "failed"]
    after_ms: Count | None = None
    status: OptionalRaw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    conditions: Annotated[tuple[SaidCondition, ...], msgspec.Meta(max_length=CONDITIONS_MAX)] = ()
    finalizers: Annotated[tuple[Text, ...], msgspec.Meta(max_length=FINALIZERS_MAX)] | None = None
    watch: Annotated[dict[Message, Text], msgspec.Meta(max_length=WATCHED_MAX)] | None = None
    events: Annotated[tuple[SaidEvent, ...], msgspec.Meta(max_length=EVENTS_MAX)] = ()
    error: StepError | None = None


# --- values socket --------------------------------------------------------------------------------------------


class EnsureRun(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ensure_run"):
    """Have a child run under this request key: the same workflow and input, the same child; other input, `conflict`.

    `workflow`: a name or a path, as the manager's project means it.
    """

    request_key: Text
    workflow: Message
    input: msgspec.Raw


class CancelRun(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="cancel_run"):
    """Cancel the child under this request key; one that has ended stays as it is."""

    request_key: Text


class ChangeChild(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="change_child"):
    """Change settings of the child under this request key by a JSON Patch, once under `key`.

    `scope`: as of `ChangeSettings`; None: the only settings that the child has.
    """

    request_key: Text
    key: Text
    patch: msgspec.Raw
    scope: Scope | None = None


class QueueForChild(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="queue_for_child"):
    """Queue a follow-up for the session of the child under this request key, once under `key`."""

    request_key: Text
    key: Text
    text: FollowUpText


class RemoveForChild(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="remove_for_child"):
    """Remove one that the manager has queued, by its id."""

    request_key: Text
    follow_up: Text


class ChildAnswer(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="child_answer"):
    """The child as it is now, the number of the change of its settings, or the id of the follow-up.

    Or why not: an error's code, message and hint.
    """

    child: ChildView | None = None
    change: int | None = None
    follow_up: str | None = None
    code: str | None = None
    message: str = ""
    hint: str | None = None


ChildWord = ChangeChild | QueueForChild | RemoveForChild
Question = ReadValue | ReadSecret | EnsureRun | CancelRun | ChildWord | BeginPart | SettlePart

_from_reconcile = msgspec.json.Decoder(Reconciled | Leaving)
_question = msgspec.json.Decoder(Question)


def decode_from_reconcile(line: bytes) -> Reconciled | Leaving:
    """What a reconciling process said. Raises `ProtocolError` for anything else, whatever its code wrote there."""
    return _decoded(_from_reconcile, line, "a reconcile's word")


def decode_question(line: bytes) -> Question:
    """What it asks. Raises `ProtocolError` for anything else."""
    return _decoded(_question, line, "a reconcile's question")


def _decoded(decoder: msgspec.json.Decoder[T], line: bytes, what: str) -> T:
    if is_too_deep(line):
        raise ProtocolError(f"not {what}: it is nested more than {NESTING_MAX} deep")
    try:
        line.decode("utf-8")
        found = decoder.decode(line)
        msgspec.json.decode(line)  # values that pass through unread: a number may be too large for any reader
        return found
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"not {what}: {error}") from error
