"""Canonical JSON: the work grows with the text and not faster, and a fault is named by its path in few words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from pwf.errors import InvalidValue
from pwf.values import DEPTH_MAX, canonical, canonical_texts, parse_canonical
from tests.scaling import growth

TIMES = 32
MOST = TIMES * 6  # linear is 32, and the caches of a processor cost something; quadratic is 1,024


def doubled_last(count: int) -> bytes:
    return b"{" + b"".join(b'"%x":1,' % number for number in range(count)) + b'"%x":2}' % (count - 1)


def deep_and_wide(count: int) -> bytes:
    """Most of the text is keys on the way down, and many elements lie at the end of that way."""
    key = b"k" * count
    return b'{"%s":' % key * 10 + b"[" + b"[]," * count + b"[]]" + b"}" * 10


def many_objects(count: int) -> bytes:
    return b"[" + b'{"a":1},' * count + b"{}]"


@pytest.mark.serial
@pytest.mark.parametrize("text", [doubled_last, deep_and_wide, many_objects])
def test_no_value_needs_more_work_than_its_length_asks_for(text: Callable[[int], bytes]) -> None:
    def act(data: bytes) -> None:
        with contextlib.suppress(InvalidValue):
            parse_canonical(data)

    assert growth(act, text(1_000), text(1_000 * TIMES)) < MOST


def test_a_doubled_key_is_named_wherever_it_stands() -> None:
    with pytest.raises(InvalidValue, match="'9f' stands twice"):
        parse_canonical(doubled_last(160))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, {"b": float("nan")}]}, r"value\.a\[1\]\.b is nan"),
        ({"a": {"b": b""}}, r"value\.a\.b is bytes"),
        ([["\ud800"]], r"value\[0\]\[0\] has a lone surrogate"),
        ({"a": {"\ud800": 1}}, r"value\.a has a lone surrogate"),
        ({"a": {1: 1}}, r"value\.a has a key that is not a string: 1"),
        (float("inf"), r"value is inf"),
    ],
)
def test_a_fault_is_named_by_its_path(value: object, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        canonical(value)


def test_texts_have_the_same_canonical_form_and_the_same_faults() -> None:
    texts = ["a", None, 'with "quotes" and é', ""]
    assert canonical_texts(texts) == canonical(texts)
    with pytest.raises(InvalidValue, match=r"start\[1\]"):
        canonical_texts(["a", "\ud800"], what="start")


def test_what_is_nested_too_deep_is_refused_and_one_level_less_is_not() -> None:
    text = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert parse_canonical(text) == text
    with pytest.raises(InvalidValue, match=rf"\[0\] is nested more than {DEPTH_MAX} deep"):
        parse_canonical(b"[" + text + b"]")


def test_a_message_shows_only_the_beginning_of_a_long_name() -> None:
    long = "k" * 100_000
    for value in ({long: float("nan")}, {long: {1: 1}}):
        with pytest.raises(InvalidValue) as caught:
            canonical(value)
        assert len(caught.value.message) < 200
    with pytest.raises(InvalidValue) as caught:
        parse_canonical(f'{{"{long}":1,"{long}":2}}'.encode())
    assert len(caught.value.message) < 200
