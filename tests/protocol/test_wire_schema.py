"""The committed JSON Schema is what the structs say, and it takes what they write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema_rs
import msgspec
import msgspec.inspect as inspect
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


def _without_bound(kind: inspect.Type, path: str) -> Iterator[str]:
    """The texts and collections of a payload that may be as long as the frame."""
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from _without_bound(field.type, f"{path}.{field.name}")
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _without_bound(one, path)
    elif (
        isinstance(kind, inspect.StrType | inspect.DictType | inspect.CollectionType)
        and kind.max_length is None
    ):
        yield path


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_text_and_no_list_of_a_payload_is_as_long_as_the_client_likes(name: str) -> None:
    assert list(_without_bound(inspect.type_info(OPERATIONS[name].payload), name)) == []


#: Fields of a hello that only the daemon's has; a client's is read and forgotten.
OF_THE_DAEMON = {".protocol", ".home", ".home_identity"}


@pytest.mark.parametrize("frame", [Hello, Request])
def test_no_text_of_a_clients_frame_is_as_long_as_the_client_likes(frame: type) -> None:
    left = [path for path in _without_bound(inspect.type_info(frame), "") if path not in OF_THE_DAEMON]
    assert left == []
