"""Takes values that must not be kept out of what is: each stands as `***` there.

Owns the values that this process was told, in memory alone. Promises: a value is found whole, line by line, and as JSON
writes it, also where it arrives in pieces. It can't find one that was changed: encoded, cut, or spelled backwards.
Must never touch anything of the interpreter's that a step could hold: the watcher's thread uses it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.values import canonical

MASK = "***"
LENGTH_MIN = 4  # of a value, or a line of one, that is looked for: shorter ones stand everywhere


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
        found = {*self._texts, value, value.strip(), *lines}
        found |= {canonical(text).decode()[1:-1] for text in found}
        self._texts = tuple(
            sorted((text for text in found if len(text) >= LENGTH_MIN), key=len, reverse=True)
        )
        self._bytes = tuple(text.encode() for text in self._texts)

    def text(self, text: str) -> str:
        """The text without them."""
        for one in self._texts:
            text = text.replace(one, MASK)
        return text

    def data(self, data: bytes) -> bytes:
        """The bytes without them."""
        for one in self._bytes:
            data = data.replace(one, MASK.encode())
        return data

    def json(self, data: bytes) -> bytes:
        """Canonical JSON whose texts are without them."""
        if not any(one in data for one in self._bytes):
            return data
        return canonical(self._value(msgspec.json.decode(data)))

    def piece(self, held: bytes, data: bytes) -> tuple[bytes, bytes]:
        """The next bytes of a stream: what can be kept by now, and what is to be held, for it may begin one of them."""
        whole = self.data(held + data)
        held_bytes = max((_begun(whole, one) for one in self._bytes), default=0)
        cut = len(whole) - held_bytes
        return whole[:cut], whole[cut:]

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self._value(one) for name, one in value.items()}
        return value


def _begun(data: bytes, value: bytes) -> int:
    """How many of the last bytes of `data` may be the first ones of the value, which it does not have whole."""
    at = max(0, len(data) - len(value) + 1)
    while (at := data.find(value[:1], at)) >= 0:
        if value.startswith(data[at:]):
            return len(data) - at
        at += 1
    return 0
