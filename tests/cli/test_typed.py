"""What people type becomes a value, or one clear error."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pwf.cli.out import UsageError
from pwf.cli.reading import run_input
from pwf.cli.typed import at_ms, duration_ms, json_argument, past_ms
from pwf.errors import PwfError, ValueTooLarge

HOSTILE: list[str] = json.loads((Path(__file__).parents[1] / "data/strings/blns.json").read_text())
NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("given", "sets", "value"),
    [
        (None, [], None),
        ('{"a": 1}', [], {"a": 1}),
        (None, ["name=Ada"], {"name": "Ada"}),
        (
            None,
            ["n=3", "b=true", "s=3x", "e=", "j=[1,2]"],
            {"n": 3, "b": True, "s": "3x", "e": "", "j": [1, 2]},
        ),
        (None, ["a.b.c=1", "a.d=2"], {"a": {"b": {"c": 1}, "d": 2}}),
        ('{"a": [{"b": 1}, 2]}', ["a.0.b=5", "a.1=x"], {"a": [{"b": 5}, "x"]}),
        (None, ["a\\.b=1"], {"a.b": 1}),
        (None, ["a=x=y"], {"a": "x=y"}),
        ('{"a": 1}', ["a=2"], {"a": 2}),
        (None, ['q="3"'], {"q": "3"}),
    ],
)
def test_input_is_what_was_given_with_each_set_put_into_it(
    given: str | None, sets: list[str], value: Any
) -> None:
    assert run_input(given, sets) == value


@pytest.mark.parametrize(
    ("given", "sets", "said"),
    [
        (None, ["novalue"], "has no KEY=VALUE"),
        (None, ["=1"], "has no KEY=VALUE"),
        (None, ["a..b=1"], "empty key"),
        ("[1]", ["5=1"], "a list of 1, which has no place '5'"),
        ("3", ["a=1"], "the whole is not an object"),
        ('{"a": 1}', ["a.b=1"], "a is not an object"),
        ("{", [], "--input is not JSON"),
        ('{"a":1,"a":2}', [], "stands twice"),
        ("NaN", [], "NaN is not JSON"),
        ("@/no/such/file", [], "can not be read"),
    ],
)
def test_a_wrong_input_is_one_clear_error(given: str | None, sets: list[str], said: str) -> None:
    with pytest.raises(PwfError) as caught:
        run_input(given, sets)
    assert said in caught.value.message
    assert caught.value.hint


SCHEMA = {
    "$ref": "#/$defs/I",
    "$defs": {
        "I": {
            "type": "object",
            "properties": {
                "version": {"type": "string"},
                "top": {"type": "integer", "default": 10},
                "share": {"type": "number"},
                "dry": {"type": "boolean"},
                "kind": {"enum": ["beta", "stable"]},
                "level": {"enum": [1, 2]},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "either": {"type": ["integer", "string"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "limits": {"type": "object", "additionalProperties": {"type": "string"}},
                "at": {"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]},
                "any": {},
            },
        },
        "P": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("version=1.4", {"version": "1.4"}),
        ("version=1.40", {"version": "1.40"}),
        ("version=true", {"version": "true"}),
        ('version="1.4"', {"version": "1.4"}),
        ("version={}", {"version": "{}"}),
        ("top=3", {"top": 3}),
        ("share=0.50", {"share": 0.5}),
        ("dry=yes", {"dry": True}),
        ("dry=FALSE", {"dry": False}),
        ("kind=beta", {"kind": "beta"}),
        ("level=2", {"level": 2}),
        ("note=null", {"note": None}),
        ("note=5", {"note": "5"}),
        ("either=5", {"either": 5}),
        ("either=5x", {"either": "5x"}),
        ('tags=["a"]', {"tags": ["a"]}),
        ("limits.cpu=4", {"limits": {"cpu": "4"}}),
        ("at.city=007", {"at": {"city": "007"}}),
        ("any=1.40", {"any": "1.40"}),
        ("any=1.4", {"any": 1.4}),
        ("any=1e400", {"any": "1e400"}),
        ("unknown=5", {"unknown": 5}),
    ],
)
def test_the_declared_type_decides_how_a_text_is_read(typed: str, value: Any) -> None:
    assert run_input(None, [typed], SCHEMA) == value


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("top=ten", "--set top: 'ten' does not fit; it takes whole number"),
        ("top=1.5", "--set top: '1.5' does not fit; it takes whole number"),
        ("dry=perhaps", "--set dry: 'perhaps' does not fit; it takes yes or no"),
        ("kind=alpha", '--set kind: \'alpha\' does not fit; it takes "beta" | "stable"'),
        ("level=3", "--set level: '3' does not fit; it takes 1 | 2"),
        ("tags=a", "--set tags: 'a' does not fit; it takes list of text"),
    ],
)
def test_a_text_that_its_type_has_no_room_for_is_refused_with_what_it_takes(typed: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_input(None, [typed], SCHEMA)
    assert caught.value.message == said
    assert (caught.value.hint or "").startswith("for example ")


def test_a_text_stays_as_it_was_typed_where_text_is_declared() -> None:
    for words in HOSTILE:
        quoted = json.dumps(words)
        assert run_input(None, [f"version={quoted}"], SCHEMA) == {"version": words}
        assert run_input(None, [f"version=x{words}"], SCHEMA) == {"version": f"x{words}"}


def test_any_text_can_be_set() -> None:
    for words in HOSTILE:
        value = run_input(None, [f"key={words}"])["key"]
        try:
            expected = json.loads(words, parse_constant=lambda name: name)
        except ValueError:
            expected = words
        assert value in (expected, words)
        assert not isinstance(value, float) or json.dumps(value) == words.strip()


def test_input_from_a_file_and_from_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.json").write_text('{"a": "é"}', "utf-8")
    assert json_argument(f"@{tmp_path / 'in.json'}", "--input") == {"a": "é"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[1]")))
    assert json_argument("-", "--input") == [1]


def test_an_input_that_is_too_large_is_refused_with_the_size_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.json"
    with path.open("wb") as file:
        file.truncate(3_000_000_000)
    with pytest.raises(ValueTooLarge, match="has 3,000,000,000 bytes; the limit is 67,108,864"):
        json_argument(f"@{path}", "--input")
    monkeypatch.setattr("pwf.cli.typed.VALUE_BYTES_MAX", 3)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[1,2]")))
    with pytest.raises(ValueTooLarge, match="has more than the limit of 3 bytes"):
        json_argument("-", "--input")


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_bytes(b'"\xff"')
    with pytest.raises(PwfError, match="not UTF-8"):
        json_argument(f"@{tmp_path / 'in.json'}", "--input")


@pytest.mark.parametrize(
    ("typed", "at"),
    [
        ("+10m", NOW + 600_000),
        ("2h30m", NOW + 9_000_000),
        ("+1.5s", NOW + 1_500),
        ("2030-01-31T08:00:00+00:00", 1_896_076_800_000),
        ("2030-01-31T10:00+02:00", 1_896_076_800_000),
    ],
)
def test_times(typed: str, at: int) -> None:
    assert at_ms(typed, NOW, print) == at


@pytest.mark.parametrize("typed", ["", "soon", "+", "10", "5x", "2030-13-01", "99999999999999d", "٣m"])
def test_what_is_no_time_is_refused(typed: str) -> None:
    with pytest.raises(PwfError, match="is not a time"):
        at_ms(typed, NOW, print)


def test_a_start_in_the_past_is_refused_and_one_that_is_just_over_is_now() -> None:
    then = datetime.fromtimestamp(NOW / 1000 - 3_600).isoformat()
    with pytest.raises(PwfError, match="is in the past: that was") as caught:
        at_ms(then, NOW, print)
    assert "leave --at out" in (caught.value.hint or "")
    just_over = datetime.fromtimestamp(NOW / 1000 - 30).isoformat()
    assert at_ms(just_over, NOW, print) == NOW - 30_000


@pytest.fixture
def clock_changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock goes from 02:00 to 03:00 on 2026-03-29, and from 03:00 to 02:00 on 2026-10-25."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("clock_changes")
def test_a_time_that_a_change_of_the_clock_leaves_out_is_refused_with_those_before_and_after() -> None:
    for read in (at_ms, partial(past_ms, option="--before")):
        with pytest.raises(PwfError, match="does not exist: the clock is put forward over it") as caught:
            read("2026-03-29T02:30", NOW, note=print)
        assert "2026-03-29T01:30:00 (before the change), 2026-03-29T03:30:00 (after it)" in (
            caught.value.hint or ""
        )


@pytest.mark.usefixtures("clock_changes")
def test_of_a_time_that_comes_twice_the_first_is_taken_and_that_is_said() -> None:
    said: list[str] = []
    first, second = 1_792_888_200_000, 1_792_891_800_000
    assert at_ms("2026-10-25T02:30", NOW, said.append) == first
    (words,) = said
    assert "comes twice" in words
    assert "the first is taken, 2026-10-25T02:30:00+02:00, not 2026-10-25T02:30:00+01:00" in words
    assert at_ms("2026-10-25T02:30+01:00", NOW, said.append) == second
    assert len(said) == 1


@pytest.mark.usefixtures("clock_changes")
@pytest.mark.parametrize(
    "typed", ["2026-03-29T01:59:59", "2026-03-29T03:00", "2026-10-25T03:00", "2026-07-01"]
)
def test_other_times_on_such_a_day_are_taken_as_they_are(typed: str) -> None:
    said: list[str] = []
    assert datetime.fromtimestamp(at_ms(typed, NOW, said.append) / 1000) == datetime.fromisoformat(typed)
    assert said == []


def test_lengths_of_time() -> None:
    assert duration_ms("30", "--timeout") == 30_000
    assert duration_ms("1m30s", "--timeout") == 90_000
    with pytest.raises(PwfError, match="--timeout '-1' is not a length of time"):
        duration_ms("-1", "--timeout")
