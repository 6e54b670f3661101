"""Named SQL: a `.sql` file beside its `.py`, each query with a name and one line that says what it is for.

    -- name: run_by_id
    -- One run's row.
    SELECT … FROM runs WHERE run_id = :run_id

A query is one statement (apsw runs a text of several lazily). A mistake in a file is a `ValueError` with
its line, at import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"-- name: ([a-z][a-z0-9_]*)")


class Queries:
    """The queries of one family as attributes: `Q.run_by_id` is its SQL text."""

    def __init__(self, family: str, texts: dict[str, str], purposes: dict[str, str]) -> None:
        self._family = family
        self._texts = texts
        self._purposes = purposes
        self.__dict__.update(texts)

    def __getattr__(self, name: str) -> str:
        # Only reached for a name that no query has; typed so that `Q.name` is known to be a text.
        raise AttributeError(f"{self.__dict__.get('_family', '?')} has no query named {name!r}")

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Pairs of name and SQL, in the file's order."""
        return iter(self._texts.items())

    def __len__(self) -> int:
        return len(self._texts)

    def purpose(self, name: str) -> str:
        """The one line that says what the query is for."""
        return self._purposes[name]


def load_queries(stem_file: str) -> Queries:
    """Read the `.sql` file that stands beside the Python file `stem_file` (pass `__file__`)."""
    path = Path(stem_file).with_suffix(".sql")
    return parse_queries(path.read_text(encoding="utf-8"), path.name)


def parse_queries(text: str, family: str) -> Queries:
    """Split the text of a `.sql` file. Raises `ValueError` naming the line of a mistake."""
    texts: dict[str, str] = {}
    purposes: dict[str, str] = {}
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _NAME.fullmatch(line.strip())]
    _refuse_stray(lines[: starts[0] if starts else len(lines)], family)
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        match = _NAME.fullmatch(lines[start].strip())
        assert match is not None
        name, where = match[1], f"{family}:{start + 1}"
        if name in texts or name.startswith("_") or name == "purpose":
            raise ValueError(f"{where}: the name {name!r} is taken")
        purpose = lines[start + 1].strip() if start + 1 < end else ""
        if not purpose.startswith("-- ") or len(purpose) < 8:
            raise ValueError(f"{where}: the line after the name must say what {name!r} is for")
        sql = "\n".join(line for line in lines[start + 2 : end] if not line.strip().startswith("--")).strip()
        sql = sql.removesuffix(";").rstrip()
        if not sql or ";" in sql:
            raise ValueError(f"{where}: {name!r} must be exactly one statement")
        texts[name], purposes[name] = sql, purpose[3:]
    return Queries(family, texts, purposes)


def _refuse_stray(lines: list[str], family: str) -> None:
    for number, line in enumerate(lines):
        if line.strip() and not line.strip().startswith("--"):
            raise ValueError(f"{family}:{number + 1}: SQL before the first '-- name:' line")
