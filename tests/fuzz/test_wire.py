"""Every wire struct goes over the wire and back; what is damaged is refused by the one error that readers handle."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwf.errors import FrameTooLarge, ProtocolError
from pwf.protocol import crashlab, frames, runner, spawn, views
from pwf.protocol.frames import FrameSplitter, decode_client_frame, decode_daemon_frame, encode
from pwf.protocol.graph import WorkflowDefinition, WorkflowGraph
from pwf.protocol.operations import OPERATIONS
from tests.fuzz.strategies import PATIENT, damaged, instances


def parts(union: Any) -> list[type[Any]]:
    return list(typing.get_args(union)) or [union]


def by_name(types: Iterable[type[Any]]) -> list[type[Any]]:
    return sorted(types, key=lambda one: one.__name__)


JSON_STRUCTS = dict.fromkeys(  # each once
    [
        *parts(frames.ClientFrame),
        *parts(frames.DaemonFrame),
        *parts(runner.ToRunner),
        *parts(runner.FromRunner),
        runner.ReadValue,
        runner.ValueChunk,
        runner.ReadSecret,
        runner.SecretAnswer,
        *by_name({body for one in OPERATIONS.values() for body in (one.payload, one.result)}),
        *by_name(
            one for one in vars(views).values() if isinstance(one, type) and issubclass(one, msgspec.Struct)
        ),
        WorkflowGraph,
        WorkflowDefinition,
        crashlab.LabPlan,
        crashlab.LabRecord,
    ]
)
SPAWN_STRUCTS = [*parts(spawn.ToSpawner), *parts(spawn.FromSpawner)]


def name(type_: type[Any]) -> str:
    return type_.__name__


def same(one: Any, other: Any) -> bool:
    """Equal, with the texts of `Raw` fields compared as JSON."""
    return bool(msgspec.to_builtins(one) == msgspec.to_builtins(other)) and type(one) is type(other)


@pytest.mark.parametrize("type_", JSON_STRUCTS, ids=name)
def test_a_struct_is_the_same_after_the_wire_and_has_no_other_fields(
    type_: type[Any],
) -> None:
    @PATIENT
    @given(instances(type_))
    def check(value: Any) -> None:
        data = msgspec.json.encode(value)
        assert msgspec.json.decode(data, type=type_) == value
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(_with_another_field(data), type=type_)

    check()


def _with_another_field(data: bytes) -> bytes:
    return data.removesuffix(b"}") + (b"" if data == b"{}" else b",") + b'"not_a_field":1}'


@pytest.mark.parametrize("type_", SPAWN_STRUCTS, ids=name)
def test_a_spawn_message_is_the_same_after_the_wire(type_: type[Any]) -> None:
    decoder = spawn.to_spawner if type_ in parts(spawn.ToSpawner) else spawn.from_spawner

    @PATIENT
    @given(instances(type_))
    def check(value: Any) -> None:
        assert decoder.decode(spawn.encoder.encode(value)) == value

    check()


def json_of(*types: type[Any]) -> st.SearchStrategy[bytes]:
    return st.one_of([instances(one) for one in types]).map(msgspec.json.encode)


@PATIENT
@given(damaged(json_of(*parts(frames.ClientFrame))))
def test_a_damaged_client_frame_is_a_protocol_error_or_a_frame(data: bytes) -> None:
    try:
        frame = decode_client_frame(data)
    except ProtocolError:
        return
    assert decode_client_frame(encode(frame)[:-1]) == frame


@PATIENT
@given(damaged(json_of(*parts(frames.DaemonFrame))))
def test_a_damaged_daemon_frame_is_a_protocol_error_or_a_frame(data: bytes) -> None:
    try:
        frame = decode_daemon_frame(data)
    except ProtocolError:
        return
    assert decode_daemon_frame(encode(frame)[:-1]) == frame


@PATIENT
@given(damaged(json_of(*parts(runner.FromRunner))))
def test_a_damaged_runner_message_is_a_protocol_error_or_a_message(data: bytes) -> None:
    try:
        message = runner.decode_from_runner(data)
    except ProtocolError:
        return
    sent = runner.encode_line([message])
    assert runner.decode_from_runner(sent) == message
    assert sent.decode("utf-8")


@PATIENT
@given(damaged(json_of(runner.ReadValue, runner.ValueChunk, runner.ReadSecret, runner.SecretAnswer)))
def test_a_damaged_value_message_is_a_validation_error_or_a_message(data: bytes) -> None:
    for decoder in (runner.call_decoder, runner.value_answer):
        try:
            decoder.decode(data)
        except msgspec.MsgspecError:
            continue


@PATIENT
@given(damaged(st.one_of([instances(one) for one in SPAWN_STRUCTS]).map(spawn.encoder.encode)))
def test_a_damaged_spawn_message_is_a_validation_error_or_a_message(data: bytes) -> None:
    for decoder in (spawn.to_spawner, spawn.from_spawner):
        try:
            message = decoder.decode(data)
        except msgspec.MsgspecError:
            continue
        assert decoder.decode(spawn.encoder.encode(message)) == message


@PATIENT
@given(st.sampled_from(sorted(OPERATIONS)), st.data())
def test_a_damaged_payload_is_a_validation_error_or_a_payload(operation: str, data: st.DataObject) -> None:
    payload = OPERATIONS[operation].payload
    text = data.draw(damaged(instances(payload).map(msgspec.json.encode)))
    try:
        found = msgspec.json.decode(text, type=payload)
    except msgspec.MsgspecError:
        return
    assert msgspec.json.decode(msgspec.json.encode(found), type=payload) == found


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_nesting_without_end_is_the_error_that_readers_handle(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    frame = b'{"type":"request","request_id":"1","client_id":"c","operation":"o","payload":' + nested + b"}"
    with pytest.raises(ProtocolError):
        decode_client_frame(frame)
    step = b'{"type":"publish","attempt":1,"kind":"k","key":"k","data":' + nested + b"}"
    with pytest.raises(ProtocolError):
        runner.decode_from_runner(step)


def test_text_that_is_not_utf_8_is_refused_even_where_it_is_passed_through_unread() -> None:
    with pytest.raises(ProtocolError):
        runner.decode_from_runner(b'{"type":"publish","attempt":1,"kind":"k","key":"k","data":"\xff"}')


# --- lines --------------------------------------------------------------------------------------------------

LIMIT = 32


@PATIENT
@given(st.lists(st.binary(max_size=12).filter(lambda data: b"\n" not in data), max_size=12), st.data())
def test_lines_come_out_as_they_went_in_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    splitter, found = FrameSplitter(LIMIT), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert found == lines
    assert splitter.pending == 0


@PATIENT
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_line_over_the_limit_comes_out_or_is_kept(pieces: list[bytes]) -> None:
    splitter = FrameSplitter(LIMIT)
    try:
        for piece in pieces:
            assert all(len(line) < LIMIT for line in splitter.feed(piece))
            assert splitter.pending < LIMIT
    except FrameTooLarge:
        assert any(len(line) >= LIMIT for line in b"".join(pieces).split(b"\n"))
    else:
        assert all(len(line) < LIMIT for line in b"".join(pieces).split(b"\n"))
