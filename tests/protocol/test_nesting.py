"""Messages from outside are nested so deep and no deeper, whatever this Python's decoders would take."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pwf.errors import ProtocolError
from pwf.protocol.frames import Request, decode_client_frame
from pwf.protocol.nesting import NESTING_MAX, is_too_deep
from pwf.protocol.runner import Publish, decode_from_runner

AROUND = 1  # the message itself


def request_around(payload: bytes) -> bytes:
    return b'{"type":"request","request_id":"1","client_id":"c","operation":"o","payload":' + payload + b"}"


def update_around(data: bytes) -> bytes:
    return b'{"type":"publish","attempt":1,"kind":"k","key":"k","data":' + data + b"}"


def lists(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def objects(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize("nested", [lists, objects])
def test_the_bound_is_taken_and_one_level_more_is_refused(nested: Callable[[int], bytes]) -> None:
    fits, over = nested(NESTING_MAX - AROUND), nested(NESTING_MAX - AROUND + 1)

    assert isinstance(decode_client_frame(request_around(fits)), Request)
    assert isinstance(decode_from_runner(update_around(fits)), Publish)
    with pytest.raises(ProtocolError, match=f"more than {NESTING_MAX} deep"):
        decode_client_frame(request_around(over))
    with pytest.raises(ProtocolError, match=f"more than {NESTING_MAX} deep"):
        decode_from_runner(update_around(over))


@pytest.mark.parametrize(
    "wide",
    [
        b"[" + b",".join([b"[{}]"] * 5_000) + b"]",
        json.dumps("[" * 5_000).encode(),
        json.dumps({'"[{\\' * 5_000: '\\"' + "{" * 5_000}).encode(),
    ],
    ids=["many beside each other", "in a text", "in a text with quotes and backslashes"],
)
def test_brackets_that_are_no_levels_do_not_count(wide: bytes) -> None:
    assert not is_too_deep(wide)
    assert isinstance(decode_client_frame(request_around(wide)), Request)


def test_a_level_that_follows_a_text_with_brackets_counts() -> None:
    assert is_too_deep(b'["]]]]\\"]]]",' + lists(NESTING_MAX) + b"]")


def test_text_that_never_closes_is_answered_without_an_error_of_python() -> None:
    for broken in (b"[" * 5_000, b'"' * 5_001, b'{"a' * 5_000, b"]" * 5_000, b'"\\' * 5_000):
        with pytest.raises(ProtocolError):
            decode_client_frame(request_around(broken))
