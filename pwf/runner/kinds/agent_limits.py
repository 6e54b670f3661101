"""Whether what an agent says in place of an answer is that it has met a usage limit, and when that ends.

No protocol has a message for it: agents pass on the words of their provider. So this reads words, of errors only. What
it does not know is no limit, and a time that it can't read is none.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

FAR_S = 31 * 86_400  # a time that is further off is a mistake
SAID_CHARS_MAX = 16_384

_LIMIT = re.compile(
    r"(?:usage|rate|request|message|token|session|hour|daily|weekly|monthly|spending).?limit|hit your.{0,20}limit"
    r"|too many requests|insufficient.?quota|exceeded your.{0,20}quota|(?<!disk )quota exceeded|resource.?exhausted"
    r"|overloaded|(?:http|status|error|code)\W{0,8}(?:429|529)(?!\d)|(?<![\w.,])(?:429|529) (?:too|rate|over|limit)",
    re.IGNORECASE,
)
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_SPAN = r"(\d+(?:\.\d+)?)\s*(d|h|m(?!s|o)|s)[a-z]*"
_EPOCH = re.compile(r"(?:reset\w*\W{1,4}|\|)(\d{10}|\d{13})(?!\d)", re.IGNORECASE)
_DATE = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?\s?(?:Z|UTC|[+-]\d\d:?\d\d))")
_IN = re.compile(
    rf"(?:again|reset\w*|retry|wait|available)\W+(?:\w+\W+)?in\s+((?:{_SPAN}[\s,]*(?:and\s+)?)+)",
    re.IGNORECASE,
)
_AFTER = re.compile(r"retry.?after\W{0,4}(\d+(?:\.\d+)?)(?!\d)", re.IGNORECASE)


class Limit(NamedTuple):
    """`until_ms`: wall time; None where nobody has said."""

    until_ms: int | None


def limit_in(said: str, now_s: float) -> Limit | None:
    """What an error says; None: it is no usage limit."""
    said = said[-SAID_CHARS_MAX:]
    if _LIMIT.search(said) is None:
        return None
    until_s = _until_s(said, now_s)
    if until_s is None or not now_s < until_s <= now_s + FAR_S:
        return Limit(None)
    return Limit(round(until_s * 1000))


def _until_s(said: str, now_s: float) -> float | None:
    if found := _EPOCH.search(said):
        number = float(found[1])
        return number / 1000 if len(found[1]) == 13 else number
    if found := _DATE.search(said):
        try:
            text = found[1].replace("UTC", "+00:00").replace("Z", "+00:00").replace(" +", "+")
            return datetime.fromisoformat(text).astimezone(UTC).timestamp()
        except ValueError:
            return None
    if found := _IN.search(said):
        return now_s + sum(
            float(n) * _UNITS[unit.lower()] for n, unit in re.findall(_SPAN, found[1], re.IGNORECASE)
        )
    if found := _AFTER.search(said):
        return now_s + float(found[1])
    return None
