"""The frame decoder against public JSON test texts, and at its own limits."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pwf.errors import FrameTooLarge, PwfError
from pwf.protocol.frames import (
    FRAME_BYTES_MAX,
    FrameSplitter,
    Hello,
    Request,
    compact,
    decode_client_frame,
    encode,
)
from pwf.values import canonical, parse
from tests.fuzz.strategies import json_values

TEXTS = sorted((Path(__file__).parents[1] / "data" / "json-parsing" / "test_parsing").glob("*.json"))


def frame_around(text: bytes) -> bytes:
    return b'{"type":"request","request_id":"1","client_id":"c","operation":"o","payload":' + text + b"}\n"


def decode_all(data: bytes) -> list[object]:
    return [decode_client_frame(line) for line in FrameSplitter().feed(data)]


def as_one_line(text: bytes) -> bytes:
    # A line break in JSON that is sound stands between tokens, where any other white space does as well.
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def texts(letter: str) -> list[Path]:
    """Those that are JSON (`y`), that are not (`n`), or that a parser may choose on (`i`)."""
    return [path for path in TEXTS if path.name.startswith(f"{letter}_")]


def test_the_public_texts_are_all_there() -> None:
    assert len(TEXTS) == 318 == sum(len(texts(letter)) for letter in "yni")


def test_a_payload_that_is_json_is_accepted_and_kept_as_it_was_sent() -> None:
    for path in texts("y"):
        text = as_one_line(path.read_bytes())
        (frame,) = decode_all(frame_around(text))
        assert isinstance(frame, Request), path
        assert bytes(frame.payload).strip() == text.strip(), path


def test_what_a_request_has_by_default_is_not_sent_so_that_an_older_daemon_understands_it() -> None:
    sent = msgspec.json.decode(encode(Request(request_id="r", client_id="c", operation="daemon.stop")))
    assert sent.keys() == {"type", "request_id", "client_id", "operation", "payload"}


def test_a_payload_that_is_not_json_is_refused() -> None:
    for path in texts("n"):
        with pytest.raises(PwfError) as caught:
            decode_all(frame_around(path.read_bytes()))
        assert (caught.value.code, bool(caught.value.message)) == ("protocol_rejected", True), path


def test_a_payload_that_a_parser_may_choose_on_is_taken_or_refused_but_never_crashes() -> None:
    for path in texts("i"):
        with contextlib.suppress(PwfError):
            for frame in decode_all(frame_around(path.read_bytes())):
                assert isinstance(frame, Request), path
                short = compact(frame)
                assert isinstance(short, Request), path
                assert canonical(parse(bytes(short.payload))) == canonical(parse(bytes(frame.payload))), path


def test_no_text_that_is_not_json_is_a_frame_by_itself() -> None:
    taken = []
    for path in texts("n"):
        with contextlib.suppress(PwfError):
            decode_all(path.read_bytes().strip(b"\n") + b"\n")
            taken.append(path)
    assert taken == []


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"null",
        b'{"type":"request"}',
        b'{"type":"nonsense"}',
        b'{"type":"hello","protocol":"pwf.client.v1","version":"1","extra":1}',
        b'{"type":"hello","protocol":7,"version":"1"}',
        b'{"type":"response","request_id":"1","outcome":"accepted"}',
    ],
)
def test_a_line_that_is_not_exactly_a_client_frame_is_refused(line: bytes) -> None:
    with pytest.raises(PwfError, match="not a pwf"):
        decode_client_frame(line)


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_bytes_that_are_not_utf8_are_refused_even_inside_a_payload(bad: bytes) -> None:
    with pytest.raises(PwfError, match="not UTF-8"):
        decode_client_frame(frame_around(b'"' + bad + b'"').strip())


def test_deep_nesting_is_refused_not_a_crash() -> None:
    with pytest.raises(PwfError):
        decode_client_frame(frame_around(b"[" * 200_000 + b"]" * 200_000).strip())


def test_a_line_that_grows_over_the_limit_is_refused_before_its_end_has_come() -> None:
    splitter = FrameSplitter()

    with pytest.raises(FrameTooLarge):
        for _ in range(FRAME_BYTES_MAX // 4096 + 1):
            splitter.feed(b"x" * 4096)


def test_the_largest_frame_fits_and_one_byte_more_does_not() -> None:
    frame = Hello(protocol="p", version="")
    room = FRAME_BYTES_MAX - len(encode(frame))

    largest = encode(Hello(protocol="p", version="v" * room))

    assert len(largest) == FRAME_BYTES_MAX
    assert FrameSplitter().feed(largest) == [largest[:-1]]
    with pytest.raises(FrameTooLarge):
        encode(Hello(protocol="p", version="v" * (room + 1)))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), max_size=8), st.data())
def test_however_the_bytes_arrive_the_lines_are_the_same(lines: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    splitter, found = FrameSplitter(), []

    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        found += splitter.feed(sent[start:end])

    assert found == lines
    assert splitter.pending == 0


@given(json_values, st.integers(0, 3), st.booleans())
def test_a_request_without_the_white_space_of_its_payload_asks_the_same(
    value: object, indent: int, ascii: bool
) -> None:
    text = as_one_line(json.dumps(value, indent=indent or None, ensure_ascii=ascii).encode())
    frame = decode_client_frame(frame_around(b"  " + text + b"  ").strip())

    short = compact(frame)

    assert isinstance(frame, Request)
    assert isinstance(short, Request)
    assert canonical(parse(bytes(short.payload))) == canonical(parse(bytes(frame.payload)))
    assert msgspec.structs.replace(short, payload=frame.payload) == frame
