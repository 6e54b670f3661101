"""What steps have printed, on the wire: which attempts have, and pieces of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from pwf.protocol.bounds import Name


class PrintedPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Only of this node, or of this attempt."""

    node: Name | None = None
    attempt: int | None = None


class PrintedStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of what one attempt printed. `out_bytes`, `err_bytes`: None where there is no file.

    `printed_bytes` was kept when it ended: with no file beside it, the home was restored, or somebody removed it.
    """

    attempt: int
    node: str
    visit: int
    tries: int
    status: str
    printed_bytes: int
    out_bytes: int | None = None
    err_bytes: int | None = None


class Printed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Attempts in order, at most the newest `LIST_PAGE_MAX`. `ended`: the run prints nothing more."""

    run_id: str
    ended: bool
    steps: tuple[PrintedStep, ...]


class ReadPrinted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of what an attempt printed, from a byte offset."""

    attempt: int
    stream: Literal["out", "err"]
    offset: int = 0


class PrintedPiece(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`data` is base64 on the wire; empty where there is no more now. `next_offset`: where to go on."""

    data: bytes
    next_offset: int
