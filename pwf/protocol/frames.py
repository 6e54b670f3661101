"""Frames of `pwf.client.v1`: NDJSON, one object of at most 1 MiB a line.

Sans-I/O: `FrameSplitter` turns bytes into lines, `decode_*` turns a line into a struct. A request whose fields have
wrong types is a `Misfit`, which is answered. Anything else than a known frame raises `ProtocolError`; who reads
decides to close the connection.
"""

from __future__ import annotations

import contextlib
from typing import Literal, NamedTuple

import msgspec

from pwf.errors import FrameTooLarge, ProtocolError, PwfError
from pwf.protocol.bounds import Name, PathText
from pwf.protocol.nesting import NESTING_MAX, is_too_deep
from pwf.protocol.raw import OptionalRaw, empty
from pwf.protocol.uploads import Contents

PROTOCOL = "pwf.client.v1"
FRAME_BYTES_MAX = 1024 * 1024
OPEN_REQUESTS_MAX = 64  # per connection; then reading stops

ResponseOutcome = Literal[
    "accepted", "adopted", "rejected", "conflict", "not_found", "claim_lost", "unavailable"
]
EMPTY = msgspec.Raw(b"{}")


class _Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class Hello(_Frame, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hello"):
    """First frame of each side. The daemon's says who it is; the client's names itself.

    `home` is for people. `home_identity` (device and inode of the folder) says which home is served. `stopping`: the
    daemon was told to stop, and answers until its running steps have reached a boundary.
    """

    protocol: str
    version: Name
    client_id: Name = ""
    epoch: int = 0
    home: str = ""
    home_identity: str = ""
    pid: int = 0
    stopping: bool = False


class Request(
    _Frame, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="request", omit_defaults=True
):
    """One operation. What is as by default isn't sent, so that a daemon from before a field was made understands it.

    `run_id` may be an id, a unique prefix, `@last` or `@last-failed`; `@last:ROOT` is that of a project.

    `contents`: fields of the payload whose values were sent before, by digest (`pwf/protocol/uploads.py`).
    """

    request_id: Name
    client_id: Name
    operation: Name
    run_id: PathText | None = None
    expected_revision: int | None = None
    idempotency_key: Name | None = None
    payload: msgspec.Raw = msgspec.field(default_factory=empty)
    contents: Contents = {}


class _RequestUnread(_Frame, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="request"):
    """The fields of a request whatever their types, but for its id."""

    request_id: Name
    client_id: OptionalRaw = None
    operation: OptionalRaw = None
    run_id: OptionalRaw = None
    expected_revision: OptionalRaw = None
    idempotency_key: OptionalRaw = None
    payload: OptionalRaw = None
    contents: OptionalRaw = None


class Misfit(NamedTuple):
    """A request of known id with a field that is missing or of a wrong type: it can be answered."""

    request_id: str
    why: str


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`code` is stable; `message` and `hint` are for people; `details` is machine data of that code."""

    code: str
    message: str
    hint: str | None = None
    details: OptionalRaw = None


class Response(
    _Frame, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="response"
):
    """The answer to one request, found by `request_id`."""

    request_id: str
    outcome: ResponseOutcome
    revision: int | None = None
    receipt: str | None = None
    error: ErrorBody | None = None
    result: OptionalRaw = None


class Event(_Frame, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="event"):
    """A subscription's news: a whole `snapshot`, or a JSON merge `patch` (RFC 7386) on revision `revision - 1`.

    `end` closes the subscription from the daemon's side.
    """

    subscription: str
    kind: Literal["snapshot", "patch", "end"]
    revision: int
    body: msgspec.Raw = msgspec.field(default_factory=empty)


class ErrorFrame(_Frame, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="error"):
    """Sent once before the daemon closes a connection that broke the protocol."""

    error: ErrorBody


ClientFrame = Hello | Request
DaemonFrame = Hello | Response | Event | ErrorFrame

_encoder = msgspec.json.Encoder()
_client = msgspec.json.Decoder(ClientFrame)
_unread = msgspec.json.Decoder(_RequestUnread)
_daemon = msgspec.json.Decoder(DaemonFrame)


def error_body(error: PwfError) -> ErrorBody:
    """An exception as it stands on the wire."""
    details = None if error.details is None else msgspec.Raw(msgspec.json.encode(error.details))
    return ErrorBody(code=error.code, message=error.message, hint=error.hint, details=details)


def encode(frame: ClientFrame | DaemonFrame) -> bytes:
    """One line, newline included. Raises `FrameTooLarge` when it would exceed the limit."""
    data = _encoder.encode(frame) + b"\n"
    if len(data) > FRAME_BYTES_MAX:
        raise FrameTooLarge(f"a frame of {len(data):,} bytes exceeds the limit of {FRAME_BYTES_MAX:,}")
    return data


def decode_client_frame(line: bytes) -> ClientFrame | Misfit:
    """What a client sent. `ProtocolError` for what can not be answered by id."""
    if is_too_deep(line):
        raise ProtocolError(f"not a {PROTOCOL} frame: it is nested more than {NESTING_MAX} deep")
    try:
        return _client.decode(_text(line))
    except (msgspec.MsgspecError, RecursionError) as error:
        if isinstance(error, msgspec.ValidationError):
            with contextlib.suppress(msgspec.MsgspecError):
                return Misfit(_unread.decode(line).request_id, str(error))
        raise ProtocolError(f"not a {PROTOCOL} frame: {error}") from error


def compact(frame: ClientFrame | Misfit) -> ClientFrame | Misfit:
    """The same request without the white space of its payload, and without a hold on the line that it stood in."""
    if not isinstance(frame, Request):
        return frame
    payload = msgspec.json.format(
        bytes(frame.payload), indent=-1
    )  # JSON it is: it was decoded with its frame
    return msgspec.structs.replace(frame, payload=msgspec.Raw(payload))


def decode_daemon_frame(line: bytes) -> DaemonFrame:
    """What the daemon sent."""
    try:
        return _daemon.decode(_text(line))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"not a {PROTOCOL} frame: {error}") from error


def _text(line: bytes) -> bytes:
    # msgspec.Raw is passed through unread, so the bytes inside a payload must be proved to be UTF-8 here.
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the frame is not UTF-8: {error}") from error
    return line


class FrameSplitter:
    """Bytes in, complete lines out. Keeps at most `limit` bytes of an unfinished line."""

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; return the lines that are now complete, without their newlines."""
        *lines, rest = data.split(b"\n")
        found: list[bytes] = []
        for line in lines:
            self._rest += line
            self._check()
            found.append(bytes(self._rest))
            self._rest.clear()
        self._rest += rest
        self._check()
        return found

    @property
    def pending(self) -> int:
        """Bytes of the unfinished line."""
        return len(self._rest)

    def _check(self) -> None:
        if len(self._rest) >= self._limit:
            raise FrameTooLarge(f"a frame exceeds the limit of {self._limit:,} bytes")
