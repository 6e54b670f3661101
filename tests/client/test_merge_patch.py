"""Merge patches follow RFC 7386, and a difference is only sent as one when nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwf.protocol.merge_patch import apply, diff
from tests.scaling import growth

# The table of RFC 7386, appendix A.
RFC_CASES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "json"]), inner),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from(["a", "b", "c", "json"]), json_values)


@pytest.mark.parametrize(("document", "patch", "result"), RFC_CASES)
def test_the_table_of_the_rfc_holds(document: Any, patch: Any, result: Any) -> None:
    assert apply(document, patch) == result


def _without_field_nulls(value: Any, opaque: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_field_nulls(item, opaque or key == "json")
            for key, item in value.items()
            if opaque or key == "json" or item is not None
        }
    return value


@given(documents, documents)
def test_a_patch_makes_the_new_document_out_of_the_old_up_to_null_fields(old: Any, new: Any) -> None:
    patch = diff(old, new)
    if patch is not None:
        assert _without_field_nulls(apply(old, patch)) == _without_field_nulls(new)


@given(documents)
def test_no_change_is_an_empty_patch(document: Any) -> None:
    assert diff(document, document) == {}


def test_a_null_in_what_people_wrote_can_not_be_a_patch() -> None:
    assert diff({"output": None}, {"output": {"json": {"a": None}}}) is None
    assert diff({"output": {"json": {"a": 1}}}, {"output": {"json": {"a": None}}}) is None
    assert diff({"output": {"json": 1}}, {"output": {"json": None}}) is None


def test_a_null_in_an_array_is_kept_whole() -> None:
    new = {"output": {"json": [{"a": None}]}}
    patch = diff({"output": None}, new)
    assert apply({"output": None}, patch) == new


def test_true_is_not_one() -> None:
    assert diff({"a": True}, {"a": 1}) == {"a": 1}


def nested(count: int) -> dict[str, Any]:
    """A difference at the end of a long way, below which most lies."""
    found: dict[str, Any] = {"many": [[] for _ in range(count)], "last": count}
    for _ in range(80):
        found = {"a": found}
    return found


@pytest.mark.serial
def test_a_difference_is_found_in_one_walk_however_deep_it_lies() -> None:
    def act(depth: int) -> None:
        old, new = nested(20_000), nested(20_000)
        for _ in range(80 - depth):
            old, new = old["a"], new["a"]
        inner = new
        for _ in range(depth):
            inner = inner["a"]
        inner["last"] = 0
        diff(old, new)

    assert growth(act, 1, 80) < 10  # 80, if each level is compared anew
