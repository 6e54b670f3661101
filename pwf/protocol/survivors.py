"""Processes that outlived their step, as they are named to people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from pwf import host
from pwf.host.identity import Identity
from pwf.values import shortened

SURVIVORS_MAX = 16  # of one step that are named
COMMAND_LENGTH_MAX = 200


class Survivor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that was still there when its step had ended, and was ended."""

    pid: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    command: Annotated[str, msgspec.Meta(max_length=COMMAND_LENGTH_MAX)]


def name_all(found: Iterable[Identity]) -> tuple[Survivor, ...]:
    """The first of them, by pid and command. To be asked while they are there."""
    named = list(found)[:SURVIVORS_MAX]
    return tuple(
        Survivor(pid=one.pid, command=shortened(host.command_of(one.pid), COMMAND_LENGTH_MAX))
        for one in named
    )
