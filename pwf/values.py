"""Canonical JSON: the one form in which inputs, outputs, answers and errors are kept and compared.

Keys sorted, no white space, UTF-8. Refused, with the path to the fault: NaN and infinities, lone surrogates, bytes,
keys that are doubled or not strings, nesting over `DEPTH_MAX` (msgspec alone would turn NaN into null and bytes into
text). Digests are SHA-256 of the canonical bytes, as lower-case hex.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import msgspec

from pwf.errors import InvalidValue, ValueTooLarge

DEPTH_MAX = 100
INLINE_BYTES_MAX = 4 * 1024  # up to here a value stands in its row (design, section 6)
VALUE_BYTES_MAX = 64 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
INT_DIGITS_MAX = 4_300  # Python's own limit for int <-> text

_encoder = msgspec.json.Encoder(order="deterministic")


def canonical(value: object, *, limit: int = VALUE_BYTES_MAX, what: str = "value") -> bytes:
    """Encode a Python value (dataclasses and msgspec structs included) as canonical JSON.

    Raises `InvalidValue` naming the path, or `ValueTooLarge` naming size and limit.
    """
    try:
        plain = msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), str_keys=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"{what} can not be written as JSON: {error}") from error
    _check(plain, what, 0)
    try:
        data = _encoder.encode(plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"{what} can not be written as JSON: {error}") from error
    return check_size(data, limit=limit, what=what)


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
    return hashlib.sha256(data).hexdigest()


def _check(value: object, path: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidValue(f"{path} is nested more than {DEPTH_MAX} deep")
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidValue(f"{path} is {value}; JSON has no such number")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidValue(f"{path} has a key that is not a string: {key!r}")
            _check_text(key, path)
            _check(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, bytes | bytearray | memoryview):
        raise InvalidValue(f"{path} is bytes; JSON has only text: decode it, or encode it as base64")
    elif not isinstance(value, int):
        raise InvalidValue(f"{path} is a {type(value).__name__}, which has no place in JSON")


def _check_text(text: str, path: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue(f"{path} has a lone surrogate") from error


def _no_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        doubled = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {doubled!r} stands twice in one object")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(object_pairs_hook=_no_doubles, parse_constant=_no_constant).decode
