"""Takes values that must not be kept out of what is: each stands as `***` there.

Owns the values that this process was told, in memory alone. Promises: a value is found whole, line by line, and as JSON
writes it (also JSON within JSON), also where it arrives in pieces or shares characters with another one. Where a text
or a stream was cut within a value, the part that is left is found from `PART_MIN` characters on. It can't find one
that was changed: encoded, or spelled backwards.
Must never touch anything of the interpreter's that a step could hold: the watcher's thread uses it.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from pwf.values import canonical

MASK = "***"
LENGTH_MIN = 4  # of a value, or a line of one, that is looked for: shorter ones stand everywhere
PART_MIN = 8  # characters of a value that was cut
JSON_DEPTH = 3  # JSON within JSON within JSON
CUT = "…"  # stands where a text was cut: `shortened` and `bounded` write it

Chars = TypeVar("Chars", str, bytes)


class Masks:
    """What is to be taken out. Empty at first, and then it costs nothing."""

    def __init__(self) -> None:
        self._texts: tuple[str, ...] = ()
        self._bytes: tuple[bytes, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add(self, value: str) -> None:
        """Look for this from now on."""
        lines = (line.strip() for line in value.splitlines())
        found = {value, value.strip(), *lines}
        for _ in range(JSON_DEPTH):
            found |= {canonical(text).decode()[1:-1] for text in found} | {
                json.dumps(text)[1:-1] for text in found
            }
        found = {text for text in found if len(text) >= LENGTH_MIN}
        self._texts = tuple(sorted({*self._texts, *found}, key=len, reverse=True))
        self._bytes = tuple(text.encode() for text in self._texts)

    def text(self, text: str) -> str:
        """The text without them."""
        for begin, end in reversed(_spans(text, self._texts)):
            text = text[:begin] + MASK + text[end:]
        return self._without_parts(text) if text.find(CUT) >= 0 else text

    def data(self, data: bytes) -> bytes:
        """The bytes without them."""
        for begin, end in reversed(_spans(data, self._bytes)):
            data = data[:begin] + MASK.encode() + data[end:]
        return data

    def json(self, data: bytes) -> bytes:
        """Canonical JSON whose texts are without them."""
        if not any(one in data for one in self._bytes):
            return data
        return canonical(self._value(msgspec.json.decode(data)))

    def piece(self, held: bytes, data: bytes) -> tuple[bytes, bytes]:
        """The next bytes of a stream: what can be kept by now, and what is to be held, for it may begin one of them."""
        whole = held + data
        cut = len(whole) - max((_begun(whole, one) for one in self._bytes), default=0)
        for begin, end in reversed(_spans(whole, self._bytes)):
            if begin < cut < end:
                cut = begin
        return self.data(whole[:cut]), whole[cut:]

    def last(self, held: bytes) -> bytes:
        """What was held, when nothing more comes: a large part of a value isn't kept, either."""
        held = self.data(held)
        part = max((_begun(held, one) for one in self._bytes), default=0)
        return held if part < PART_MIN else held[:-part] + MASK.encode()

    def _without_parts(self, text: str) -> str:
        """The text without what is left of values where it was cut."""
        pieces = text.split(CUT)
        for index, piece in enumerate(pieces):
            last = index == len(pieces) - 1
            body = piece if last else piece.removesuffix("\n[")
            end = piece[len(body) :]
            begun = 0 if last else max((_begun(body, one) for one in self._texts), default=0)
            if begun >= PART_MIN:
                body = body[:-begun] + MASK
            head = "]\n" if index and body.startswith("]\n") else ""
            if head:
                ended = max((_begun(one, body[len(head) :] + "\0") for one in self._texts), default=0)
                if ended >= PART_MIN:
                    body = head + MASK + body[len(head) + ended :]
            pieces[index] = body + end
        return CUT.join(pieces)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self._value(one) for name, one in value.items()}
        return value


def _spans(whole: Chars, values: tuple[Chars, ...]) -> list[tuple[int, int]]:
    """Where they stand, each from and to; those that share characters are one."""
    found = []
    for one in values:
        at = whole.find(one)
        while at >= 0:
            found.append((at, at + len(one)))
            at = whole.find(one, at + 1)
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _begun(data: Chars, value: Chars) -> int:
    """How many of the last characters of `data` may be the first ones of the value, which it does not have whole."""
    at = max(0, len(data) - len(value) + 1)
    while value and (at := data.find(value[:1], at)) >= 0:
        if value.startswith(data[at:]):
            return len(data) - at
        at += 1
    return 0
