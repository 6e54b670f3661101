"""Notices: texts of notify nodes, for people. Each is the output of the attempt that made it."""

from __future__ import annotations

from typing import Literal

import msgspec

from pwf.protocol.bounds import Name

NoticeKind = Literal["progress", "final"]
NOTICE_KINDS: tuple[NoticeKind, ...] = ("progress", "final")
NOTICE_BYTES_MAX = 16 * 1024  # of its text
CUT = " … (cut)"


class NoticeView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One notice; run, node and attempt name it."""

    run_id: str
    workflow: str
    title: str | None = None
    node: str
    visit: int
    attempt: int
    kind: NoticeKind
    text: str
    at_ms: int


class NoticeListPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Newest first, of a run or of all. `cursor` is `next_cursor` of the page before."""

    run: Name | None = None
    limit: int = 100
    cursor: Name | None = None


class NoticeList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    notices: tuple[NoticeView, ...]
    next_cursor: str | None = None


def cut(text: str) -> str:
    """The text, no longer than a notice may be."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= NOTICE_BYTES_MAX:
        return text
    return data[: NOTICE_BYTES_MAX - len(CUT.encode())].decode("utf-8", "ignore") + CUT
