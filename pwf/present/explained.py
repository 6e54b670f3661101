"""Why a run or a resource is where it is, as facts of a name and a safe line."""

from __future__ import annotations

from collections.abc import Iterator

from pwf.present import text
from pwf.present.form import commands
from pwf.protocol.views import Explanation, RequestView

Fact = tuple[str, str]


def why(
    found: Explanation, now_ms: int, *, code: bool = True, request: RequestView | None = None
) -> Iterator[Fact]:
    """Why it is where it is (with its `code`), what changes that, and what to type, whole for its `request`."""
    yield (
        "why",
        reason_line(found) + (f"  ({text.line(found.code)})" if code else ""),
    )
    if found.changes_when:
        when = text.line(found.changes_when)
        if found.changes_at_ms is not None:
            when += f"  ({text.until(found.changes_at_ms, now_ms)})"
        yield "changes", when
    for command in commands(found, request):
        yield "type", command


def reason_line(found: Explanation) -> str:
    """The reason as one safe line: what a command printed may be in it, and that has several."""
    return text.line("; ".join(line for line in found.reason.splitlines() if line.strip()))
