"""Values made from schemas fit them."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec
import pytest

from pwf.crashlab.samples import choices, sample, stray
from pwf.protocol.graph import Case, NodeSpec, Way
from pwf.workflow.schema import schema_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct):
    number: Annotated[int, msgspec.Meta(gt=5, multiple_of=4)]
    tags: Annotated[list[str], msgspec.Meta(min_length=2)]


class Ship(msgspec.Struct, tag_field="verdict", tag="ship"):
    where: str


class Fix(msgspec.Struct, tag_field="verdict", tag="fix"):
    note: Annotated[str, msgspec.Meta(min_length=3)]


class Outer(msgspec.Struct):
    when: datetime.datetime
    day: datetime.date
    price: decimal.Decimal
    inner: Inner
    either: Inner | None
    color: Color
    pair: tuple[int, str]
    id: uuid.UUID
    maybe: str = "x"


TYPES: list[Any] = [
    int,
    str,
    bool,
    float,
    None,
    list[int],
    dict[str, int],
    Literal["a", "b"],
    Literal[3],
    Color,
    Inner,
    Outer,
    Ship | Fix,
    int | None,
    Annotated[int, msgspec.Meta(ge=-9, lt=-3)],
    Annotated[float, msgspec.Meta(gt=0, le=0.5)],
    tuple[int, Color, None],
    list[Outer],
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_sample_fits_its_schema_and_its_type(type_: Any) -> None:
    schema = schema_of(type_)
    value = sample(schema)
    jsonschema_rs.validator_for(schema).validate(value)
    msgspec.convert(value, type_)


def ask(type_: Any, on: str | None, *cases: Any) -> NodeSpec:
    ways = (
        Way(outcome="completed", on=on, cases=tuple(Case(value=value, target="next") for value in cases)),
    )
    schema = None if type_ is None else schema_of(type_)
    return NodeSpec(id="ask", kind="checkpoint", returns=schema, ways=ways)


def test_each_case_of_a_tagged_union_gets_a_whole_answer() -> None:
    found = choices(ask(Ship | Fix, "verdict", "ship", "fix"))
    assert found == [{"verdict": "ship", "where": ""}, {"verdict": "fix", "note": "xxx"}]


def test_without_a_type_an_answer_is_the_case_itself() -> None:
    assert choices(ask(None, None, True, 1, "x")) == [True, 1, "x"]
    assert choices(ask(None, "verdict", "x")) == [{"verdict": "x"}]
    assert choices(NodeSpec(id="ask", kind="checkpoint")) == [None]


def test_a_stray_answer_fits_no_case() -> None:
    assert stray(ask(None, None, "a")) not in ("a",)
    assert stray(ask(Ship | Fix, "verdict", "ship", "fix"))["verdict"] not in ("ship", "fix")


def test_a_type_that_holds_itself_has_an_end() -> None:
    schema = {
        "$ref": "#/$defs/A",
        "$defs": {"A": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/A"}}},
    }
    assert sample(schema) is not None
