"""The committed JSON Schema is what the structs say, and it takes what they write."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from pwf.protocol.frames import ErrorBody, Event, Hello, Request, Response, encode
from pwf.protocol.operations import OPERATIONS
from pwf.protocol.wire_schema import wire_schema, wire_text

FILE = Path(__file__).parents[2] / "docs" / "protocol.schema.json"


def test_the_committed_schema_is_the_structs_schema() -> None:
    assert FILE.read_text(encoding="utf-8") == wire_text(), (
        "python -m pwf.protocol.wire_schema > docs/protocol.schema.json"
    )


def test_every_operation_is_in_the_schema() -> None:
    assert wire_schema()["x-operations"].keys() == OPERATIONS.keys()


FRAMES = [
    Hello(protocol="pwf.client.v1", version="1"),
    Request(request_id="1", client_id="c", operation="run.list", payload=msgspec.Raw(b'{"limit": 3}')),
    Response(request_id="1", outcome="rejected", error=ErrorBody(code="rejected", message="no")),
    Event(subscription="s", kind="patch", revision=2, body=msgspec.Raw(b"[1]")),
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_the_schema_takes_what_pwf_sends_and_no_unknown_field(frame: msgspec.Struct) -> None:
    validator = jsonschema_rs.validator_for(wire_schema())
    sent = json.loads(encode(frame))  # type: ignore[arg-type]
    validator.validate(sent)
    with pytest.raises(jsonschema_rs.ValidationError):
        validator.validate({**sent, "surprise": 1})
