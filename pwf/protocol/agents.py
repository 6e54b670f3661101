"""Agents that a run can have of its own: how they are configured, told to a runner, and listed."""

from __future__ import annotations

from typing import Literal

import msgspec

#: In place of an agent's name: nobody works by itself, and what is asked waits for `request.submit`.
PERSON = "person"


Adapter = Literal["exec", "acp", "pi-rpc"]


class AgentCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a runner starts for a step. An empty `command`: no agent of that name is configured any more."""

    name: str
    adapter: Adapter = "exec"
    command: tuple[str, ...] = ()


class AgentLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configured agent. `found`: the file that is executed, as the daemon sees it; None: there is none."""

    name: str
    adapter: str
    command: tuple[str, ...]
    found: str | None = None
    is_default: bool = False


class AgentList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agents: tuple[AgentLine, ...]
