"""A node's output is what later steps read, or the step fails at once, with path and reason (X6)."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from pwf.errors import InvalidValue
from pwf.workflow.workflow import Workflow


@dataclass
class Doubled:
    number: int = 3
    double: int = field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.number


class Base(msgspec.Struct):
    name: str = "base"


class Wide(Base):
    size: int = 77


class Same(Base):
    pass


class Holder(msgspec.Struct):
    items: list[Base]


class Typed(TypedDict):
    name: str


class Pair(NamedTuple):
    left: int
    right: int


class Colour(enum.Enum):
    RED = "red"


class Many(msgspec.Struct, eq=False, omit_defaults=True, rename="camel"):
    when_it_was: dt.datetime
    gap: dt.timedelta
    mark: uuid.UUID
    price: Decimal
    names: set[str]
    both: frozenset[int | str] = frozenset()
    colour: Colour | None = None
    rate: float = 1.5
    pair: Pair | None = None
    any_: Any = None
    maybe: int | msgspec.UnsetType = msgspec.UNSET


def encode(returns: Any, value: object) -> bytes:
    flow: Workflow[Any] = Workflow("w")

    def step(ctx: Any) -> Any:
        return None

    step.__annotations__["return"] = returns
    flow.compute(step)
    flow.to_graph()
    return flow.nodes["step"].output_bytes(value)


def changed(double: int) -> Doubled:
    doubled = Doubled()
    doubled.double = double
    return doubled


@pytest.mark.parametrize(
    ("returns", "value", "fault"),
    [
        (Doubled, changed(77), r"it is 77, and would be read as 6 - at `\$.double`"),
        (list[Doubled], [Doubled(), changed(77)], r"would be read as 6 - at `\$\[1\].double`"),
        (Base, Wide(), "it is a Wide, and would be read as a Base"),
        (Base, Same(), "it is a Same, and would be read as a Base"),
        (Holder, Holder([Wide()]), r"no such field, so it would be lost - at `\$.items\[0\].size`"),
        (Typed, {"name": "a", "more": 1}, r"no such field, so it would be lost - at `\$.more`"),
        (dict[str, Typed], {"k": {"name": "a", "more": 1}}, r"at `\$.k.more`"),
        (Base, {"name": "a", "size": 1}, r"at `\$.size`"),
    ],
)
def test_what_its_type_would_read_otherwise_is_refused_with_path_and_reason(
    returns: Any, value: object, fault: str
) -> None:
    with pytest.raises(InvalidValue, match=fault) as caught:
        encode(returns, value)
    assert "node 'step'" in caught.value.message


@pytest.mark.parametrize(
    ("returns", "value"),
    [
        (Doubled, Doubled(4)),
        (Base, Base("b")),
        (Base, {}),  # a default is filled in
        (Typed, {"name": "a"}),
        (list[int], (1, 2)),
        (tuple[int, int], [1, 2]),
        (float, 1),
        (Literal["a"], "a"),
        (Colour, Colour.RED),
        (Pair, Pair(1, 2)),
        (set[str], {"a", "b", "c"}),
        (
            Many,
            Many(
                when_it_was=dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone(dt.timedelta(hours=2))),
                gap=dt.timedelta(days=1, microseconds=3),
                mark=uuid.UUID(int=7),
                price=Decimal("1.10"),
                names={f"n{number}" for number in range(50)},
                both=frozenset([1, "a", 2, "b"]),
                colour=Colour.RED,
                rate=2,
                pair=Pair(1, 2),
                any_={"b": [1, None]},
            ),
        ),
        (Many, Many(dt.datetime(2026, 1, 1), dt.timedelta(0), uuid.UUID(int=1), Decimal("NaN"), set())),
        (Any, Wide()),  # any JSON: nothing is read into a type
    ],
)
def test_what_is_read_as_it_was_is_accepted(returns: Any, value: object) -> None:
    encode(returns, value)
