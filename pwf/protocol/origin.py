"""Where a command was typed: what decides which file a name means, and what it is executed in."""

from __future__ import annotations

import msgspec

from pwf.protocol.bounds import PathText, Variables


class Origin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a command was typed: working folder, interpreter, and the variables that the client passes on.

    `whole`: the client has none of what a workflow declares beside these. Else a start may be answered with
    `variables_wanted`, whose details have their names.
    """

    cwd: PathText
    python: PathText
    environment: Variables = {}
    whole: bool = False
