"""Managed resources for people: a row of a list, one resource in sections, and what a spec changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pwf.present import text
from pwf.present.explained import Fact
from pwf.protocol.resources import ResourceSummary, ResourceView

HEADS = ["MANAGER", "KEY", "STATUS", "READY", "GEN", "AGE", "NOTE"]
VALUE_CELLS = 300
DIFF_LINES_MAX = 200
STATE_STYLE = {
    "queued": "cyan",
    "reconciling": "blue",
    "settled": "green",
    "paused": "yellow",
    "ambiguous": "magenta",
    "held": "magenta",
    "gone": "dim",
}
READY_STYLE = {"True": "green", "False": "red", "Unknown": "yellow"}
CHANGE_STYLE = {"created": "green", "changed": "yellow", "unchanged": "dim"}
_ABSENT = object()


def name_of(summary: ResourceSummary) -> str:
    """What people type, as one word."""
    return f"{text.line(summary.manager)}/{text.line(summary.key)}"


def row(one: ResourceSummary, now_ms: int) -> list[str]:
    """The cells under `HEADS`."""
    seen = "" if one.observed_generation == one.generation else f" ({one.observed_generation} seen)"
    return [
        text.line(one.manager, 24),
        text.line(one.key, 32),
        one.state,
        one.ready,
        f"{one.generation}{seen}",
        text.age(one.created_ms, now_ms),
        note(one, now_ms),
    ]


def note(one: ResourceSummary, now_ms: int) -> str:
    """What is worth knowing beside the state, in one line."""
    if one.gone_ms is not None:
        return f"gone {text.ago(one.gone_ms, now_ms)}; its history: pwf resource events {text.line(one.uid)}"
    said: list[str] = []
    if one.deleting_ms is not None:
        said.append(f"being deleted since {text.ago(one.deleting_ms, now_ms)}")
    if one.hold_detail:
        said.append(text.line(one.hold_detail, 120))
    if one.reason or one.message:
        said.append(": ".join(text.headline(part, 120) for part in (one.reason, one.message) if part))
    if one.failures:
        said.append(text.count(one.failures, "failure"))
    if one.due_ms is not None and one.due_ms > now_ms:
        said.append(text.until(one.due_ms, now_ms))
    return "; ".join(said)


def identity(view: ResourceView, now_ms: int) -> Iterator[Fact]:
    """What it is and where it stands."""
    one = view.summary
    yield "uid", text.line(one.uid)
    yield "project", text.line(one.root)
    yield "file", text.line(view.path)
    yield "created", f"{text.clock_time(one.created_ms, now_ms)}  ({text.ago(one.created_ms, now_ms)})"
    if one.deleting_ms is not None:
        yield "deleted", f"asked for {text.ago(one.deleting_ms, now_ms)}"
    seen = (
        "seen by its manager"
        if one.observed_generation == one.generation
        else f"of which {one.observed_generation} is seen"
    )
    yield "generation", f"{one.generation}, {seen}; version {one.resource_version}"
    if view.reconciles:
        last = "" if view.reconciled_ms is None else f", the last one {text.ago(view.reconciled_ms, now_ms)}"
        yield "reconciled", f"{text.count(view.reconciles, 'time')}{last}"
    if view.finalizers:
        yield "finalizers", ", ".join(text.line(name) for name in view.finalizers)
    if view.newer_code:
        yield "code", "its manager's file has newer code, which the next apply takes"


def changes(before: Any, after: Any) -> list[str]:
    """What makes `after` of `before` (JSON data), a line for each path: `- size: 1`, `+ size: 2`.

    A change of a field has both lines, one after the other. Long ones end with how many more there are.
    """
    found = list(_changes(before, after, ""))
    if len(found) > DIFF_LINES_MAX:
        more = len(found) - DIFF_LINES_MAX
        found = [*found[:DIFF_LINES_MAX], f"  … and {text.count(more, 'further line')}"]
    return found


def _changes(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            inner = f"{path}.{key}" if path else str(key)
            yield from _changes(before.get(key, _ABSENT), after.get(key, _ABSENT), inner)
        return
    if before is not _ABSENT and after is not _ABSENT and _is_same(before, after):
        return
    if before is not _ABSENT:
        yield f"- {text.line(path or '(all)')}: {_shown(before)}"
    if after is not _ABSENT:
        yield f"+ {text.line(path or '(all)')}: {_shown(after)}"


def _is_same(one: Any, other: Any) -> bool:
    return msgspec.json.encode(one, order="deterministic") == msgspec.json.encode(
        other, order="deterministic"
    )


def _shown(value: Any) -> str:
    return text.cut(text.json_line(msgspec.json.encode(value)), VALUE_CELLS)
