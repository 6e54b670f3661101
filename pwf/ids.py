"""Ids and tokens, and which texts may be one.

The source of randomness is a parameter, so that a simulation can fix every id from its seed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from pwf.errors import InvalidArgument
from pwf.values import shortened

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u to misread
_PAIRS = [
    first + second for second in _ALPHABET for first in _ALPHABET
]  # two at a time: each run needs an id
ID_LENGTH = 12  # 60 bits: a million runs collide with a chance below one in a million
ID_LENGTH_MAX = 128
KEY_LENGTH_MAX = 512

_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{ID_LENGTH_MAX - 1}}}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NODE_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def random_bits(count: int) -> int:
    """So many bits from the system's source. (`secrets` would load `random`, which reseeds at each fork.)"""
    return int.from_bytes(os.urandom((count + 7) // 8), "big") >> (-count % 8)


class Ids:
    """Makes ids from a source of random bits: `random_bits(n)` gives an integer below 2**n."""

    def __init__(self, random_bits: Callable[[int], int] = random_bits) -> None:
        self._random_bits = random_bits

    def new(self) -> str:
        """A short id that people can type a prefix of."""
        bits = self._random_bits(ID_LENGTH * 5)
        return "".join([_PAIRS[(bits >> shift) & 1023] for shift in range(0, ID_LENGTH * 5, 10)])

    def token(self) -> str:
        """128 random bits as hex: proves ownership, is never shown."""
        return f"{self._random_bits(128):032x}"


def check_id(text: str, what: str = "id") -> str:
    """Return `text` when it may be an id, else raise `InvalidArgument`."""
    if not _ID.fullmatch(text):
        raise InvalidArgument(
            f"{what} {text!r} is not allowed",
            hint=f"use 1 to {ID_LENGTH_MAX} letters, digits, '.', '_', ':' or '-', the first a letter or digit",
        )
    return text


def check_key(text: str, what: str = "idempotency key") -> str:
    """Return `text` when it may be an idempotency key: any text without control characters, bounded."""
    if not 1 <= len(text) <= KEY_LENGTH_MAX or _CONTROL.search(text):
        raise InvalidArgument(
            f"{what} {shortened(text, 40)!r} is not allowed",
            hint=f"use 1 to {KEY_LENGTH_MAX} characters, none of them a control character",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} has a lone surrogate") from error
    return text


def is_node_id(text: str) -> bool:
    """Whether `text` may name a node."""
    return _NODE_ID.fullmatch(text) is not None
