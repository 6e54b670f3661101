"""What the daemon and the process of a channel's adapter say to each other: a JSON object a line, over a socket pair.

Everything that the adapter says bears the epoch that it was made with, so that nothing of an earlier one counts. A
`Show` and a `Close` are answered once, by their `attempt`; an `Answered` is answered by a `Verdict` after its commit.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pwf.host.identity import Identity
from pwf.protocol.decision_spec import ChoiceSpec, Shown

LINE_BYTES_MAX = 1024 * 1024
RETRY_AFTER_S_MAX = 3_600.0

ChannelEvent = Literal["decide", "remind", "waiting", "held", "failed", "ended", "notice", "test"]


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="say"):
    pass


class ChannelMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is told. `title` is one line, `words` says what to type; the rest is there where the event has it.

    `token`: what an answer from the channel brings; empty where none is asked for.
    """

    message_id: str
    event: ChannelEvent
    title: str
    words: str
    text: str | None = None  # of a notice, where the title has not all of it
    run_id: str | None = None
    workflow: str | None = None
    node: str | None = None
    request_id: str | None = None
    audience: str | None = None
    shown: Shown | None = None
    choices: tuple[ChoiceSpec, ...] = ()
    deadline_ms: int | None = None
    default: str | None = None
    token: str = ""
    link: str | None = None  # to a page that decides it, once
    at_ms: int = 0


# --- what the daemon says -------------------------------------------------------------------------------------


class Begin(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="begin"):
    """First. `settings`: the channel's section. `config`: the file that says where secrets are, which it reads."""

    epoch: int
    name: str
    kind: str
    settings: msgspec.Raw
    config: str
    cursor: str | None = None


class Show(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="show"):
    """Send it."""

    attempt: int
    message: ChannelMessage


class Close(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="close"):
    """What was sent as `ref` is settled: edit it, or do what the service has for it. Safe to repeat."""

    attempt: int
    ref: str
    message_id: str
    title: str
    said: str


class Verdict(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="verdict"):
    """What became of an answer, stored before this is said. `taken`: it has won, or had."""

    number: int
    said: str
    taken: bool
    asks: str | None = None  # the choice needs a text: this is asked for it


ToAdapter = Begin | Show | Close | Verdict


# --- what the adapter says ------------------------------------------------------------------------------------


class Ready(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ready"):
    """It has what it needs."""

    epoch: int


class Sent(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sent"):
    """What came of a `Show` or a `Close`. `unknown`: it may have been sent. `final`: no use to try again.

    `early`: refused, since nobody was reached or the service is busy, which says nothing of the message.
    `retry_after_s`: until then nothing of the channel is sent.
    """

    epoch: int
    attempt: int
    message_id: str
    outcome: Literal["done", "refused", "unknown"]
    ref: str | None = None
    why: str | None = None
    final: bool = False
    early: bool = False
    retry_after_s: Annotated[float, msgspec.Meta(ge=0, le=RETRY_AFTER_S_MAX)] | None = None


class Answered(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="answered"):
    """A person's answer. `cursor`: how far is read with it, stored in the same commit. No token: only that.

    `with_text`: the person wants to be asked for the text of the choice, also where it may be left out.
    `peer`: the process of this machine that brings it, where one does: it is judged, also where it brings no token yet.
    """

    epoch: int
    number: int
    token: str = ""
    choice: str = ""
    choice_no: int | None = None  # in place of `choice`
    text: str | None = None
    with_text: bool = False
    who: str = ""
    cursor: str | None = None
    peer: Identity | None = None


class Trouble(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="trouble"):
    """Something keeps it from its work; None: no more. `what_to_do` is for people."""

    epoch: int
    why: str | None
    what_to_do: str | None = None


FromAdapter = Ready | Sent | Answered | Trouble

to_adapter = msgspec.json.Decoder(ToAdapter)
from_adapter = msgspec.json.Decoder(FromAdapter)


def line_of(said: msgspec.Struct) -> bytes:
    """One line of the port."""
    return msgspec.json.encode(said) + b"\n"
