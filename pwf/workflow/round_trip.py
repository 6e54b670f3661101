"""Whether a value survives being written as JSON and read back as its type: what is lost, and where.

`returns` may be a type that says less than the value has: a dataclass whose computed fields were changed, a base of the
value's own class, a TypedDict without one of its keys. Later steps would read something else than was returned.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from pwf.values import SHOWN_MAX, shortened


def what_is_lost(value: object, read: object) -> str | None:
    """What `read`, the value as later steps have it, lacks or has otherwise; with its path. None: nothing.

    A default that reading fills in is no loss, nor is a list that was a tuple.
    """
    if _is_record(value) and _is_record(read) and type(value) is not type(read):
        return f"it is a {type(value).__qualname__}, and would be read as a {type(read).__qualname__}"
    given, kept = _plain(value), _plain(read)
    return None if given == kept else _difference(given, kept, "$")


def _is_record(value: object) -> bool:
    return isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value)


def _plain(value: object) -> Any:
    try:
        return msgspec.to_builtins(value, order="deterministic")  # sets have no order of their own
    except TypeError:  # members of a set that have none among them either: nothing to compare
        return None


def _difference(given: Any, kept: Any, path: str) -> str | None:
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, item in given.items():
            at = f"{path}.{shortened(str(key), SHOWN_MAX)}"
            if key not in kept:
                return f"its type has no such field, so it would be lost - at `{at}`"
            found = _difference(item, kept[key], at)
            if found is not None:
                return found
        return None
    if isinstance(given, list | tuple) and isinstance(kept, list | tuple) and len(given) == len(kept):
        for index, (item, other) in enumerate(zip(given, kept, strict=True)):
            found = _difference(item, other, f"{path}[{index}]")
            if found is not None:
                return found
        return None
    if given == kept:
        return None
    shown = shortened(repr(given), SHOWN_MAX), shortened(repr(kept), SHOWN_MAX)
    return f"it is {shown[0]}, and would be read as {shown[1]} - at `{path}`"
