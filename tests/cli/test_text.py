"""Nothing that came from a run may act on the terminal."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwf.present import text
from pwf.protocol.runner import Value

HOSTILE: list[str] = json.loads((Path(__file__).parents[1] / "data/strings/blns.json").read_text())
anything = st.text(st.characters(), max_size=60) | st.sampled_from(HOSTILE)


def acts_on_terminal(words: str, allowed: str = "") -> list[str]:
    """The characters that a terminal obeys, or that reorder or hide what follows."""
    return [
        char
        for char in words
        if char not in allowed
        and (
            unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
            or char in "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
        )
    ]


def test_numbers_are_written_out() -> None:
    found = [text.number(value) for value in (5, 50_005_900.0, 2.5, 1_234.567, 0.1, float("inf"))]
    assert found == ["5", "50,005,900", "2.5", "1,234.57", "0.1", "inf"]


@given(anything)
def test_a_line_is_one_line_that_moves_nothing(words: str) -> None:
    assert acts_on_terminal(text.line(words)) == []


@given(anything)
def test_a_block_keeps_only_newlines_and_tabs(words: str) -> None:
    assert acts_on_terminal(text.block(words), allowed="\n\t") == []


@given(st.recursive(st.none() | anything, lambda inner: st.lists(inner) | st.dictionaries(anything, inner)))
def test_json_is_shown_as_the_same_value(value: object) -> None:
    data = json.dumps(value).encode()
    for shown in (text.json_line(data), text.pretty(data)):
        assert json.loads(shown) == value
        assert acts_on_terminal(shown, allowed="\n") == []


@given(anything, st.integers(1, 40))
def test_a_cut_line_fits(words: str, cells: int) -> None:
    assert text.width(text.line(words, cells)) <= cells


@given(anything)
def test_ordinary_text_is_left_as_it_is(words: str) -> None:
    if words.isascii() and words.isprintable():
        assert text.line(words) == text.block(words) == words


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b2J", "\\x9b2J"),
        ("evil\u202etxt.exe", "evil\\u202etxt.exe"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("日本語", "日本語"),
    ],
)
def test_escapes_are_visible(words: str, shown: str) -> None:
    assert text.line(words) == shown


def test_wide_characters_count_as_two_cells() -> None:
    assert text.width("日本") == 4
    assert text.cut("日本語", 4) == "日…"
    assert text.pad("日本", 6) == "日本  "


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (-5, "0ms"),
        (850, "850ms"),
        (4_250, "4.2s"),
        (59_999, "59s"),
        (187_000, "3m07s"),
        (7_500_000, "2h05m"),
        (273_600_000, "3d04h"),
    ],
)
def test_durations(ms: int, shown: str) -> None:
    assert text.duration(ms) == shown


def test_ages_and_countdowns() -> None:
    now = 1_700_000_000_000
    assert text.age(None, now) == "-"
    assert text.age(now - 500, now) == "now"
    assert text.age(now - 12_000, now) == "12s"
    assert text.age(now + 5_000, now) == "now"
    assert text.ago(now - 300_000, now) == "5m ago"
    assert text.until(now + 2_000, now) == "due in 2.0s"
    assert text.until(now - 1, now) == "due now"


def test_sizes() -> None:
    shown = [text.size(count) for count in (812, 4_200, 3 * 1024**2, 5 * 1024**4)]
    assert shown == ["812 B", "4.1 KiB", "3.0 MiB", "5120.0 GiB"]


def test_a_string_value_is_shown_as_its_text_and_a_large_one_by_its_size() -> None:
    assert text.brief(Value(json=msgspec.Raw(b'"hello\\u001b"'))) == "hello\\x1b"
    assert text.brief(Value(json=msgspec.Raw(b'{"a":1}'))) == '{"a":1}'
    assert text.brief(Value(digest="0" * 64, size=5_000)) == "4.9 KiB of JSON"
    assert text.brief(None) == ""
