"""Strategies: JSON values, instances of msgspec types, and bytes that were nearly right."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec import inspect

#: A shared machine may be slow, and the first text costs Hypothesis a table of all characters.
PATIENT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=12
)

names = st.text("abcxyz", min_size=1, max_size=4)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
integers = st.integers(-(2**63), 2**64 - 1) | st.integers(-3, 3)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | integers | floats | texts

json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | texts, inner, max_size=3),
    max_leaves=8,
)
raws = json_values.map(lambda value: msgspec.Raw(msgspec.json.encode(value)))


def instances(type_: Any) -> st.SearchStrategy[Any]:
    """Values of a msgspec type, within the bounds of its annotations."""
    return _of(inspect.type_info(type_))


def _of(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.StructType():
            return _struct(info)
        case inspect.UnionType():
            return st.one_of([_of(one) for one in info.types])
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.IntType():
            low = info.ge if info.ge is not None else -(2**63)
            high = info.le if info.le is not None else 2**63 - 1
            return st.integers(low, high) | st.integers(max(low, 0), min(high, 3))
        case inspect.StrType(pattern=str() as pattern):
            return st.from_regex(pattern, fullmatch=True)
        case inspect.FloatType():
            return st.floats(info.ge, info.le, allow_nan=False, allow_infinity=False)
        case inspect.StrType(min_length=int() as least):
            return st.text("0123456789abcdef", min_size=least, max_size=info.max_length or least)
        case inspect.DictType():
            return st.dictionaries(_of(info.key_type), _of(info.value_type), max_size=3)
        case inspect.VarTupleType():
            return st.lists(_of(info.item_type), max_size=3).map(tuple)
        case inspect.ListType():
            return st.lists(_of(info.item_type), max_size=3)
        case inspect.TupleType():
            return st.tuples(*(_of(one) for one in info.item_types))
        case inspect.NamedTupleType():
            return st.builds(info.cls, *(_of(field.type) for field in info.fields))
        case inspect.Metadata():
            return _of(info.type)
    simple: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
        inspect.StrType: texts,
        inspect.BoolType: st.booleans(),
        inspect.NoneType: st.none(),
        inspect.BytesType: st.binary(max_size=20),
        inspect.RawType: raws,
        inspect.AnyType: json_values,
    }
    return simple[type(info)]


def _struct(info: inspect.StructType) -> st.SearchStrategy[Any]:
    """Fields that have a default are sometimes left out; so is what stands for an absent value."""

    @st.composite
    def built(draw: st.DrawFn) -> Any:
        given = {
            field.name: draw(_of(field.type))
            for field in info.fields
            if field.required or draw(st.booleans())
        }
        return info.cls(**given)

    return built()


@st.composite
def damaged(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were sound: cut, doubled, or with a few of them changed. Or any bytes at all."""
    data = bytearray(draw(sound | st.binary(max_size=64)))
    for _ in range(draw(st.integers(0, 3))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                data[at] = draw(st.integers(0, 255))
            case 1:
                del data[at:]
            case 2:
                data[at:at] = draw(
                    st.sampled_from([b"[", b'"', b"{", b"\xff", b"\xed\xa0\x80", b"1e999", b",", b"\n"])
                )
            case _:
                data += data[at:]
    return bytes(data)
