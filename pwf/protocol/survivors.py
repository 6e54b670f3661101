"""Processes that outlived their step, as they are named to people."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated

import msgspec

from pwf import host
from pwf.host.identity import Identity
from pwf.protocol.masking import Masks
from pwf.values import shortened

SURVIVORS_MAX = 16  # of one step that are named
COMMAND_LENGTH_MAX = 200
EXEC_S_MAX = 0.01  # for all together, where some are becoming another program just now


class Survivor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that was still there when its step had ended, and was ended."""

    pid: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    command: Annotated[str, msgspec.Meta(max_length=COMMAND_LENGTH_MAX)]


def name_all(found: Iterable[Identity]) -> tuple[Survivor, ...]:
    """The first of them, by pid and command. To be asked while they are there, and before they are ended."""
    named = list(found)[:SURVIVORS_MAX]
    by = time.monotonic() + EXEC_S_MAX
    return tuple(
        Survivor(pid=one.pid, command=shortened(_command_of(one.pid, by), COMMAND_LENGTH_MAX))
        for one in named
    )


def without(survivors: tuple[Survivor, ...], masks: Masks) -> tuple[Survivor, ...]:
    """The same as they may be kept."""
    if not masks:
        return survivors
    return tuple(
        Survivor(pid=one.pid, command=masks.text(one.command)[:COMMAND_LENGTH_MAX]) for one in survivors
    )


def _command_of(pid: int, by: float) -> str:
    return host.command_of(pid, max(0.0, by - time.monotonic()))
