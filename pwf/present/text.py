"""Text for terminals: nothing that came from a run may move the cursor, change colours or reorder a line.

Control characters (C0, DEL, C1), lone surrogates, and the invisible characters that reorder or hide text
become visible escapes. Widths count terminal cells. Ages, durations and sizes are worded here, in one way
for all commands.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from datetime import datetime

import msgspec

from pwf.protocol.runner import Value

# Bidirectional controls, line and paragraph separators, BOM, tag and interlinear characters: they reorder
# or hide.
_HIDDEN = "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_UNSAFE_IN_LINE = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff{_HIDDEN}]")
_UNSAFE_IN_BLOCK = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_HIDDEN}]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def line(text: str, cells: int | None = None) -> str:
    """The text as one safe line, cut to so many terminal cells."""
    safe = _UNSAFE_IN_LINE.sub(_visible, text)
    return safe if cells is None else cut(safe, cells)


def headline(text: str, cells: int | None = None) -> str:
    """The first line of a text, with `…` where more lines follow."""
    first, *more = text.strip().splitlines() or [""]
    return line(first + (" …" if more else ""), cells)


def block(text: str) -> str:
    """The text as safe lines: newlines and tabs stay."""
    return _UNSAFE_IN_BLOCK.sub(_visible, text.replace("\r\n", "\n"))


def json_line(data: bytes) -> str:
    """JSON text that is safe to print: the escapes are JSON's own, so it stays the same value."""
    text = data.decode("utf-8", "replace")
    return _UNSAFE_IN_LINE.sub(_json_escape, text)


def pretty(data: bytes) -> str:
    """JSON text indented for people, safe to print."""
    try:
        text = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return block(data.decode("utf-8", "replace"))
    return _UNSAFE_IN_BLOCK.sub(_json_escape, text)


def prompt(data: bytes) -> str:
    """A prompt for people: a string as its text, everything else as indented JSON."""
    try:
        plain = msgspec.json.decode(data)
    except msgspec.MsgspecError:
        plain = None
    return block(plain) if isinstance(plain, str) else pretty(data)


def brief(value: Value | None, cells: int = 80) -> str:
    """One line of a value: a string as its text, everything else as JSON."""
    if value is None:
        return ""
    if value.json is None:
        return f"{size(value.size)} of JSON"
    try:
        plain = msgspec.json.decode(value.json)
    except msgspec.MsgspecError:
        plain = None
    return line(plain if isinstance(plain, str) else json_line(bytes(value.json)), cells)


def width(text: str) -> int:
    """How many terminal cells the text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(char) for char in text)


def cut(text: str, cells: int) -> str:
    """The text, at most so many cells wide, with `…` where something was cut."""
    if len(text) <= cells and (text.isascii() or width(text) <= cells):
        return text
    kept: list[str] = []
    room = cells - 1
    for char in text:
        room -= _cells(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + ("…" if cells > 0 else "")


def pad(text: str, cells: int) -> str:
    """The text followed by blanks up to so many cells."""
    return text + " " * max(0, cells - width(text))


def duration(ms: float) -> str:
    """How long something took: 850ms, 4.2s, 3m07s, 2h05m, 3d04h."""
    ms = max(0, ms)
    if ms < SECOND_MS:
        return f"{int(ms)}ms"
    if ms < 10 * SECOND_MS:
        return f"{ms / SECOND_MS:.1f}s"
    if ms < MINUTE_MS:
        return f"{int(ms // SECOND_MS)}s"
    if ms < HOUR_MS:
        return f"{int(ms // MINUTE_MS)}m{int(ms % MINUTE_MS // SECOND_MS):02d}s"
    if ms < DAY_MS:
        return f"{int(ms // HOUR_MS)}h{int(ms % HOUR_MS // MINUTE_MS):02d}m"
    return f"{int(ms // DAY_MS)}d{int(ms % DAY_MS // HOUR_MS):02d}h"


def age(then_ms: int | None, now_ms: int) -> str:
    """How long ago, in one unit: now, 12s, 5m, 3h, 9d."""
    if then_ms is None:
        return "-"
    passed = max(0, now_ms - then_ms)
    if passed < SECOND_MS:
        return "now"
    if passed < MINUTE_MS:
        return f"{passed // SECOND_MS}s"
    if passed < HOUR_MS:
        return f"{passed // MINUTE_MS}m"
    if passed < 2 * DAY_MS:
        return f"{passed // HOUR_MS}h"
    return f"{passed // DAY_MS}d"


def ago(then_ms: int | None, now_ms: int) -> str:
    """The same in a sentence: `just now`, `5m ago`."""
    words = age(then_ms, now_ms)
    return {"now": "just now", "-": "never"}.get(words, f"{words} ago")


def clock_time(at_ms: int, now_ms: int) -> str:
    """A moment in local time; the date only when it is not today's."""
    at, now = datetime.fromtimestamp(at_ms / 1000), datetime.fromtimestamp(now_ms / 1000)
    return at.strftime("%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def until(at_ms: int, now_ms: int) -> str:
    """A moment to come, as a countdown."""
    left = at_ms - now_ms
    return "due now" if left <= 0 else f"due in {duration(left)}"


def size(count: int) -> str:
    """A number of bytes: 812 B, 4.1 KiB, 3.0 MiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{int(amount)} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def number(value: float) -> str:
    """A number for people: 50,005,900, 2.5."""
    if not math.isfinite(value) or abs(value) >= 1e15:
        return f"{value:g}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0").rstrip(".")


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _cells(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _visible(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
