"""A declared type means the same to the daemon (JSON Schema, jsonschema-rs) and to the runner (msgspec)."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import itertools
import typing
import uuid
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pwf.actors.code.schemas import WHOLE_MAX, Schemas, as_kept
from pwf.errors import InvalidArgument, InvalidInput
from pwf.values import canonical
from pwf.workflow.schema import decoder_of, schema_of
from tests.fuzz.strategies import PATIENT, json_values, names, texts

_numbers = itertools.count()

scalars: st.SearchStrategy[Any] = st.sampled_from([int, str, bool, float, type(None), Any])
times: st.SearchStrategy[Any] = st.sampled_from(
    [
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        Annotated[datetime.datetime, msgspec.Meta(tz=True)],
        Annotated[datetime.datetime, msgspec.Meta(tz=False)],
        uuid.UUID,
        decimal.Decimal,
        bytes,
    ]
)
bounded: st.SearchStrategy[Any] = st.one_of(
    st.tuples(st.integers(-5, 5), st.integers(0, 5)).map(
        lambda pair: Annotated[int, msgspec.Meta(ge=pair[0], le=pair[0] + pair[1])]
    ),
    st.integers(0, 3).map(lambda least: Annotated[str, msgspec.Meta(min_length=least)]),
    st.integers(0, 3).map(lambda most: Annotated[list[int], msgspec.Meta(max_length=most)]),
    st.sampled_from([2, 3]).map(lambda step: Annotated[int, msgspec.Meta(multiple_of=step)]),
    st.sampled_from([0.5, 1.5]).map(lambda least: Annotated[float, msgspec.Meta(gt=least)]),
    st.sampled_from(["^a", "b$"]).map(lambda pattern: Annotated[str, msgspec.Meta(pattern=pattern)]),
)
literals: st.SearchStrategy[Any] = st.lists(
    st.integers(-3, 3) | names, min_size=1, max_size=3, unique_by=lambda value: (type(value), value)
).map(lambda values: Literal[tuple(values)])  # type: ignore[misc]


@st.composite
def enums(draw: st.DrawFn) -> Any:
    values = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    return enum.Enum(f"E{next(_numbers)}", {f"M{number}": value for number, value in enumerate(values)})


def tagged(inner: list[Any]) -> Any:
    """A union of structs that are told apart by a tag."""
    found = [
        msgspec.defstruct(f"T{next(_numbers)}", [("a", type_)], tag=f"t{number}", tag_field="kind")
        for number, type_ in enumerate(inner)
    ]
    return found[0] | found[1]


@st.composite
def records(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Any:
    """A struct, a dataclass or a TypedDict, with and without defaults and unknown fields."""
    fields = draw(st.dictionaries(names, inner, min_size=1, max_size=3))
    name = f"R{next(_numbers)}"
    match draw(st.integers(0, 2)):
        case 0:
            optional = draw(st.sets(st.sampled_from(sorted(fields))))
            made = [
                (field, type_, msgspec.field(default=None)) if field in optional else (field, type_)
                for field, type_ in fields.items()
            ]
            options = {"kw_only": True, "forbid_unknown_fields": draw(st.booleans())}
            return msgspec.defstruct(name, made, **options)
        case 1:
            return dataclasses.make_dataclass(name, list(fields.items()), kw_only=True)
        case _:
            return TypedDict(name, fields, total=draw(st.booleans()))  # type: ignore[operator]


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda type_: list[type_]),
        inner.map(lambda type_: dict[str, type_]),
        inner.map(lambda type_: type_ | None if type_ is not None else None),
        inner.map(lambda type_: tuple[type_, ...]),
        inner.map(lambda type_: dict[int, type_]),
        st.sampled_from([set[int], frozenset[str], set[bool]]),
        st.tuples(inner, inner).map(lambda pair: tuple[pair[0], pair[1]]),
        st.lists(inner, min_size=2, max_size=2).map(tagged),
        records(inner),
    )


types = st.recursive(scalars | bounded | literals | enums() | times, containers, max_leaves=5)


def near(type_: Any) -> st.SearchStrategy[Any]:
    """JSON values that fit the type, or nearly."""
    return st.one_of(json_values, _fitting(type_), _fitting(type_).flatmap(_spoiled))


def _fitting(type_: Any) -> st.SearchStrategy[Any]:
    from msgspec import inspect

    return _of(inspect.type_info(type_))


def _of(info: Any) -> st.SearchStrategy[Any]:
    from msgspec import inspect

    match info:
        case inspect.StructType(tag=tag, tag_field=str() as name):
            return _record(info).map(lambda value: {**value, name: tag})
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
            return _record(info)
        case inspect.UnionType():
            return st.one_of([_of(one) for one in info.types])
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.EnumType():
            return st.sampled_from([one.value for one in info.cls])
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            return st.lists(_of(info.item_type), max_size=3)
        case inspect.DictType():
            return st.dictionaries(texts | st.integers(-2, 2).map(str), _of(info.value_type), max_size=2)
        case inspect.TupleType():
            return st.tuples(*(_of(one) for one in info.item_types)).map(list)
        case inspect.IntType():
            return st.integers(-9, 9) | st.sampled_from([2**63, 2**64, 1.0, 2.5, -(2**63) - 1])
        case inspect.FloatType():
            return st.floats(-3, 3) | st.integers(-3, 3)
        case inspect.StrType():
            return st.text("ab", max_size=4)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
    return json_values | st.sampled_from(WORDS)


def _record(info: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {field.encode_name: _of(field.type) for field in info.fields if field.required},
        optional={field.encode_name: _of(field.type) for field in info.fields if not field.required},
    )


def _holds_large_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_large_float, value.values()))
    if isinstance(value, list):
        return any(map(_holds_large_float, value))
    return isinstance(value, float) and abs(value) >= WHOLE_MAX


WORDS = (
    "2030-01-31T02:00:00Z",
    "2030-01-31T02:00:00",
    "2030-01-31t02:00:00+25:00",
    "2030-02-30",
    "2030-02-28",
    "12:00:60",
    "12:00:00",
    "12:00:00Z",
    "PT1S",
    "P1D",
    "P1Y",
    "-PT1.5S",
    "00000000-0000-0000-0000-000000000000",
    "00000000000000000000000000000000",
    "1.5",
    "1e5",
    "NaN",
    "YWI=",
    "YWI",
    "a b",
)


def _spoiled(value: Any) -> st.SearchStrategy[Any]:
    if isinstance(value, dict) and value:
        key = sorted(value)[0]
        without = {name: item for name, item in value.items() if name != key}
        return st.sampled_from([without, {**value, "extra": 1}, {**value, key: None}, {**value, key: "b"}])
    if isinstance(value, list):
        return st.sampled_from([value[:-1], [*value, 1], [*value, "a"]])
    return st.sampled_from([value, [value], str(value)])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any]:
    """A type, and a value that fits it or nearly."""
    type_ = draw(types)
    return type_, draw(near(type_))


@PATIENT
@given(cases())
def test_the_daemon_takes_exactly_what_the_runner_can_decode(pair: tuple[Any, Any]) -> None:
    type_, value = pair
    try:
        schema = schema_of(type_)
    except InvalidArgument:
        assume(False)
    data = as_kept(schema, canonical(value))
    try:
        data = Schemas().check_input("w", schema, data)  # null may become {}
        taken = True
    except InvalidInput:
        taken = False
    try:
        decoder_of(type_).decode(data)
        decoded = True
    except msgspec.ValidationError:
        decoded = False
    if taken and not decoded and _holds_large_float(value):
        return  # 1e300 is an integer to JSON Schema
    if decoded and not taken and any(word in repr(schema) for word in ("uniqueItems", "decimal")):
        return  # the daemon wants each item of a set once, and a decimal as text
    assert taken == decoded, f"{type_} / {schema}: the daemon says {taken}, the runner {decoded}, of {data!r}"


# --- what was found -----------------------------------------------------------------------------------------


def refused(type_: Any, text: bytes) -> bool:
    try:
        Schemas().check_input("w", schema_of(type_), as_kept(schema_of(type_), text))
    except InvalidInput:
        return True
    return False


@pytest.mark.parametrize("type_", [int, Literal[3], float, Any, dict[str, int | None]])
def test_a_whole_number_written_with_a_fraction_is_kept_as_what_it_is(type_: Any) -> None:
    text = b'{"a":3.0}' if typing.get_origin(type_) is dict else b"3.0"
    kept = as_kept(schema_of(type_), text)
    assert kept == text.replace(b".0", b"")
    assert not refused(type_, text)
    decoder_of(type_).decode(kept)
    assert as_kept(None, text) == text  # nobody said what it is


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (datetime.datetime, b'"tomorrow"'),
        (Annotated[datetime.datetime, msgspec.Meta(tz=True)], b'"2030-01-31T02:00:00"'),
        (datetime.date, b'"2030-02-30"'),
        (datetime.timedelta, b'"an hour"'),
        (uuid.UUID, b'"1"'),
        (decimal.Decimal, b'"1,5"'),
        (bytes, b'"?"'),
        (dict[int, str], b'{"one":"x"}'),
        (list[datetime.datetime | None], b'[null,"now"]'),
    ],
)
def test_a_text_that_its_type_can_not_decode_is_refused_before_the_run_exists(
    type_: Any, text: bytes
) -> None:
    assert refused(type_, text)
    with pytest.raises(msgspec.ValidationError):
        decoder_of(type_).decode(text)
