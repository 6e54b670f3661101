"""Lines of a command as progress: a regular expression whose groups are the fields of `Progress`."""

from __future__ import annotations

import re
from typing import Any

from pwf.errors import InvalidValue

NUMBERS = frozenset({"completed", "total"})
GROUPS = NUMBERS | {"percent", "unit", "label", "phase", "status", "key"}
TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class LinePattern:
    """What `on_line="…"` becomes: a function of (ctx, line, stream), as an author would have written it."""

    def __init__(self, pattern: str | re.Pattern[str]) -> None:
        """Raises `InvalidValue` for a pattern that is none, or that names nothing of progress."""
        try:
            self.pattern = re.compile(pattern)
        except re.error as error:
            raise InvalidValue(f"{pattern!r:.80} is no regular expression: {error}") from None
        if not isinstance(self.pattern.pattern, str):
            raise InvalidValue("it is for bytes, and lines are texts")
        names = set(self.pattern.groupindex)
        if not names or names - GROUPS:
            wrong = ", ".join(sorted(names - GROUPS)) or "none"
            raise InvalidValue(
                f"its named groups are {wrong}, which progress has not",
                hint=rf"name them of {', '.join(sorted(GROUPS))}: r'(?P<completed>\d+)/(?P<total>\d+)'",
            )

    def __call__(self, ctx: object, line: str, stream: str) -> dict[str, Any] | None:
        """The update of a line; None where it does not match, or where a number in it is none."""
        found = self.pattern.search(TERMINAL_CODE.sub("", line))
        if found is None:
            return None
        data: dict[str, Any] = {name: text for name, text in found.groupdict().items() if text}
        if "percent" in data:
            data |= {"completed": data.pop("percent"), "total": "100", "unit": "%"}
        try:
            return {name: _number(text) if name in NUMBERS else text for name, text in data.items()} or None
        except ValueError:
            return None


def _number(text: str) -> int | float:
    plain = text.replace(",", "").replace("_", "").replace(" ", "")
    return int(plain) if plain.isdigit() else float(plain)
