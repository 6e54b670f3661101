"""What a step returned, before it is encoded: is it a value at all, and can it possibly fit?

A step may return gigabytes. The walk here adds up a lower bound of the JSON's size and gives up above the
limit, so that the runner never makes a second copy of what it will refuse.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Awaitable, Iterator
from types import AsyncGeneratorType, CoroutineType, GeneratorType

import msgspec

from pwf.errors import InvalidValue, ValueTooLarge
from pwf.values import DEPTH_MAX

_END = object()
_PLAIN = frozenset({dict, list, str, int, float, bool, type(None)})


def refuse_large(value: object, limit: int, what: str) -> None:
    """Raise `ValueTooLarge`, with size and limit, when the JSON of `value` surely exceeds `limit` bytes."""
    least = least_bytes(value, limit)
    if least > limit:
        raise ValueTooLarge(f"{what} has at least {least:,} bytes; the limit is {limit:,}")


def refuse_unrun(value: object, what: str) -> None:
    """Raise `InvalidValue` for a coroutine or a generator: code that has not run."""
    if type(value) in _PLAIN:
        return
    if isinstance(value, CoroutineType):
        value.close()  # no "never awaited" warning beside the error
        raise InvalidValue(f"{what} is a coroutine", hint="await it in an `async def` function")
    if isinstance(value, GeneratorType | AsyncGeneratorType):
        raise InvalidValue(f"{what} is a generator", hint="return a list, and use ctx.publish for progress")
    if isinstance(value, Awaitable):
        kind = type(value).__name__
        raise InvalidValue(f"{what} is a {kind}", hint="await it in an `async def` function")


def least_bytes(value: object, limit: int) -> int:
    """A lower bound of the size of the JSON of `value`; counting ends soon after `limit` is passed.

    It ends early too below the depth that canonical JSON allows (a cycle, most likely): encoding refuses that at
    its first step down.
    """
    total = 0
    pending: list[Iterator[object]] = [iter((value,))]
    while pending and total <= limit and len(pending) <= DEPTH_MAX + 2:
        item = next(pending[-1], _END)
        if item is _END:
            pending.pop()
            continue
        size, inner = _measure(item)
        total += size
        if inner is not None:
            pending.append(inner)
    return total


def _measure(item: object) -> tuple[int, Iterator[object] | None]:
    """The least bytes of the item itself, and what is inside it."""
    if isinstance(item, str):
        return len(item) + 2, None
    if isinstance(item, dict):
        return 1 + 2 * len(item), itertools.chain.from_iterable(item.items())
    if isinstance(item, list | tuple | set | frozenset):
        return 1 + len(item), iter(item)
    if isinstance(item, bytes | bytearray | memoryview):
        return 1 + len(item), None
    if isinstance(item, msgspec.Struct):
        return 1, (getattr(item, name, None) for name in item.__struct_fields__)
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return 1, (getattr(item, field.name, None) for field in dataclasses.fields(item))
    return 1, None
