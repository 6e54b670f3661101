"""Where a command was typed: what decides which file a name means, and what it is executed in."""

from __future__ import annotations

import msgspec

from pwf.protocol.bounds import PathText, Variables


class Origin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a command was typed: working folder, interpreter, and the allow-listed variables of the client."""

    cwd: PathText
    python: PathText
    environment: Variables = {}
