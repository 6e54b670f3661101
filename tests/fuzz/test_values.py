"""Canonical JSON: one text for one value, whatever it was written as; everything else is refused by its own error."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwf.errors import InvalidValue, ValueTooLarge
from pwf.values import canonical, digest, parse, parse_canonical
from tests.fuzz.strategies import PATIENT, damaged, json_values

anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary(max_size=4)
    | st.dates()
    | st.just(object()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3)
        | st.sets(st.integers(), max_size=2)
    ),
    max_leaves=6,
)


@PATIENT
@given(anything)
def test_any_object_is_canonical_json_or_an_error_that_names_it(value: Any) -> None:
    refused: InvalidValue | None = None
    try:
        data = canonical(value, what="it")
    except InvalidValue as error:
        refused = error
    if refused is None:
        assert parse_canonical(data) == data
        assert data.decode("utf-8")
    else:
        assert refused.message.startswith("it")


@PATIENT
@given(json_values, st.integers(0, 4), st.booleans())
def test_however_a_value_is_written_its_canonical_form_is_one(value: Any, indent: int, ascii: bool) -> None:
    data = canonical(value)
    written = json.dumps(value, indent=indent or None, ensure_ascii=ascii)
    assert parse_canonical(written.encode()) == data
    assert digest(parse_canonical(written.encode())) == digest(data)
    assert msgspec.json.decode(data) == json.loads(data)


@PATIENT
@given(damaged(json_values.map(lambda value: json.dumps(value).encode())))
def test_any_bytes_are_canonical_json_or_an_invalid_value(data: bytes) -> None:
    try:
        found = parse_canonical(data)
    except InvalidValue:
        return
    assert parse_canonical(found) == found
    assert canonical(parse(data)) == found
    assert msgspec.json.decode(found) == json.loads(found)


@PATIENT
@given(json_values, st.integers(0, 40))
def test_a_limit_is_a_limit_on_the_bytes(value: Any, limit: int) -> None:
    size = len(canonical(value))
    if size <= limit:
        assert len(canonical(value, limit=limit)) == size
    else:
        with pytest.raises(ValueTooLarge, match=f"{size:,} bytes"):
            canonical(value, limit=limit)
