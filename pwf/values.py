"""Canonical JSON: the one form in which inputs, outputs, answers and errors are kept and compared.

Keys sorted, no white space, UTF-8. Refused, with the path to the fault: NaN and infinities, lone surrogates, bytes,
keys that are doubled or not strings, nesting over `DEPTH_MAX` (msgspec alone would turn NaN into null and bytes into
text). Digests are SHA-256 of the canonical bytes, as lower-case hex.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pwf.errors import InvalidValue, ValueTooLarge

DEPTH_MAX = 100
INLINE_BYTES_MAX = 4 * 1024  # up to here a value stands in its row
VALUE_BYTES_MAX = 64 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
SHOWN_MAX = 80  # characters of a name that a message shows

_SOUND = frozenset({int, bool, type(None)})  # is JSON, whatever its value
_encoder = msgspec.json.Encoder(order="deterministic")


def canonical(value: object, *, limit: int = VALUE_BYTES_MAX, what: str = "value") -> bytes:
    """Encode a Python value (dataclasses and msgspec structs included) as canonical JSON.

    Raises `InvalidValue` naming the path, or `ValueTooLarge` naming size and limit.
    """
    try:
        plain = msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), str_keys=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"{what} can not be written as JSON: {error}") from error
    fault = _fault(plain, 0)
    if fault is not None:
        raise InvalidValue(f"{what}{''.join(reversed(fault.steps))} {fault.why}")
    try:
        data = _encoder.encode(plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"{what} can not be written as JSON: {error}") from error
    return check_size(data, limit=limit, what=what)


def canonical_texts(texts: Sequence[str | None], *, what: str = "value") -> bytes:
    """`canonical` for a short list of texts, at a third of its cost. Raises `InvalidValue`."""
    try:
        return _encoder.encode(texts)
    except ValueError:  # a lone surrogate
        return canonical(texts, what=what)


def shortened(text: str, characters: int) -> str:
    """`text` in at most so many characters; one that is longer ends with a mark that says how long it was."""
    if len(text) <= characters:
        return text
    mark = f"… ({len(text):,} characters)"
    return text[: max(0, characters - len(mark))] + mark


def check_size(data: bytes, *, limit: int, what: str) -> bytes:
    """Return `data` when it fits, else raise `ValueTooLarge` with both numbers."""
    if len(data) > limit:
        raise ValueTooLarge(f"{what} has {len(data):,} bytes; the limit is {limit:,}")
    return data


def parse_canonical(text: bytes, *, limit: int = VALUE_BYTES_MAX, what: str = "value") -> bytes:
    """Turn JSON text from outside into canonical JSON, refusing what canonical JSON has no room for."""
    check_size(text, limit=limit, what=what)
    return canonical(parse(text, what=what), limit=limit, what=what)


def parse(text: bytes | str, *, what: str = "value") -> Any:
    """Parse JSON text strictly: doubled keys, NaN, infinities and bad UTF-8 raise `InvalidValue`."""
    try:
        as_text = text if isinstance(text, str) else text.decode("utf-8")
        return _decode(as_text)
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{what} is not UTF-8: {error}") from error
    except RecursionError as error:
        raise InvalidValue(f"{what} is nested more than {DEPTH_MAX} deep") from error
    except ValueError as error:
        raise InvalidValue(f"{what} is not JSON: {error}") from error


def digest(data: bytes) -> str:
    """SHA-256 as lower-case hex."""
    import hashlib  # OpenSSL takes its time to load, and many commands need no digest

    return hashlib.sha256(data).hexdigest()


class _Fault(NamedTuple):
    """What is wrong in a value. `steps` lead to it, the last one first: a path is written for a fault only, since
    paths of all that lies deep in a value would be far longer than the value.
    """

    why: str
    steps: list[str]


def _fault(value: object, depth: int) -> _Fault | None:
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, str):
        return _fault_of_text(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else _Fault(f"is {value}; JSON has no such number", [])
    if isinstance(value, dict | list | tuple) and depth >= DEPTH_MAX:
        return _Fault(f"is nested more than {DEPTH_MAX} deep", [])
    if isinstance(value, dict):
        for key, item in value.items():
            fault = _fault_of_key(key)
            if fault is not None:
                return fault
            fault = None if type(item) in _SOUND else _fault(item, depth + 1)
            if fault is not None:
                fault.steps.append(f".{shortened(key, SHOWN_MAX)}")
                return fault
        return None
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            fault = None if type(item) in _SOUND else _fault(item, depth + 1)
            if fault is not None:
                fault.steps.append(f"[{index}]")
                return fault
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return _Fault("is bytes; JSON has only text: decode it, or encode it as base64", [])
    return _Fault(f"is a {type(value).__name__}, which has no place in JSON", [])


def _fault_of_key(key: object) -> _Fault | None:
    if isinstance(key, str):
        return _fault_of_text(key)
    return _Fault(f"has a key that is not a string: {shortened(repr(key), SHOWN_MAX)}", [])


def _fault_of_text(text: str) -> _Fault | None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _Fault("has a lone surrogate", [])
    return None


def _no_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {shortened(key, SHOWN_MAX)!r} stands twice in one object")
            seen.add(key)
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(object_pairs_hook=_no_doubles, parse_constant=_no_constant).decode
