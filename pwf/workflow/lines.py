"""Lines of a command as progress: a regular expression whose groups are the fields of `Progress`."""

from __future__ import annotations

import re
from typing import Any

from pwf.errors import InvalidValue
from pwf.protocol.progress import AMOUNT_MAX, UNIT_MAX, WORDS_MAX
from pwf.protocol.runner import UPDATE_NAME_MAX

NUMBERS = frozenset({"completed", "total"})
GROUPS = NUMBERS | {"percent", "unit", "label", "phase", "status", "key"}
TEXTS_MAX = {"unit": UNIT_MAX, "key": UPDATE_NAME_MAX}
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
        """The update of a line; None where it does not match, or where a number in it is none that progress can have.

        Texts are cut: a line is a program's, and no odd one may end the updates of the step.
        """
        found = self.pattern.search(TERMINAL_CODE.sub("", line))
        if found is None:
            return None
        data: dict[str, Any] = {name: text for name, text in found.groupdict().items() if text}
        if "percent" in data:
            data |= {"completed": data.pop("percent"), "total": "100", "unit": "%"}
        try:
            return {name: _field(name, text) for name, text in data.items()} or None
        except ValueError:
            return None


def _field(name: str, text: str) -> int | float | str:
    if name in NUMBERS:
        return _number(text)
    return text[: TEXTS_MAX.get(name, WORDS_MAX)]


def _number(text: str) -> int | float:
    """Raises `ValueError` for what is no amount: below nothing, endless, too large."""
    plain = text.replace(",", "").replace("_", "").replace(" ", "")
    number = int(plain) if plain.isdigit() else float(plain)
    if not 0 <= number <= AMOUNT_MAX:
        raise ValueError(text)
    return number
