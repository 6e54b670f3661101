"""Why a run or a resource is where it is, as facts of a name and a safe line."""

from __future__ import annotations

from collections.abc import Iterator

from pwf.present import text
from pwf.protocol.views import Explanation

Fact = tuple[str, str]


def why(found: Explanation, now_ms: int, *, code: bool = True) -> Iterator[Fact]:
    """Why it is where it is (with `code`, by that too), what changes that, and what to type."""
    yield (
        "why",
        text.line("; ".join(found.reason.splitlines())) + (f"  ({text.line(found.code)})" if code else ""),
    )
    if found.changes_when:
        when = text.line(found.changes_when)
        if found.changes_at_ms is not None:
            when += f"  ({text.until(found.changes_at_ms, now_ms)})"
        yield "changes", when
    for command in found.commands:
        yield "type", text.line(command)
