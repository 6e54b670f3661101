"""Files that wake resources: which each one watches, and what they were like before its last reconcile.

Promises: a resource whose files are as its last reconcile has seen them is not woken; of any other, a wake-up is owed
until a reconcile has begun after the change.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pwf.store.queries import load_queries
from pwf.store.resource_state import Resource
from pwf.store.resource_wake import wake
from pwf.store.state import encode
from pwf.store.tx import Tx

Q = load_queries(__file__)

WATCHED_KEY = "watched"  # of what has changed: who watches what
PAGE = 500

_marks = msgspec.json.Decoder(dict[str, str])


class Watching(msgspec.Struct, frozen=True, kw_only=True):
    """One resource, and what it watches: paths with their marks."""

    resource_no: int
    marks: dict[str, str]


def watching(tx: Tx, after: int) -> tuple[Watching, ...]:
    """The next page of resources that watch anything, behind a number; empty at the end."""
    rows = tx.all(Q.watching, {"after": after, "limit": PAGE})
    return tuple(Watching(resource_no=number, marks=_marks.decode(watch)) for number, watch in rows)


def take_watch(tx: Tx, resource: Resource, marks: Mapping[str, str] | None) -> None:
    """What a reconcile has said; the caller saves it."""
    if marks is None:
        return
    watch = encode(marks).decode() if marks else None
    if watch != resource.watch:
        resource.watch = watch
        tx.changed(WATCHED_KEY)


class FilesChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Paths with their marks of now, and the resources that may watch them."""

    resource_nos: tuple[int, ...]
    marks: dict[str, str]


def wake_watching(tx: Tx, command: FilesChanged) -> int:
    """Wake those that have seen one of these files otherwise; how many."""
    woken = 0
    for number in command.resource_nos:
        row = tx.one(Q.watch, {"resource_no": number})
        if row is None:
            continue
        seen = _marks.decode(row[0])
        if any(path in seen and seen[path] != mark for path, mark in command.marks.items()):
            woken += wake(tx, number, "file")
    return woken
