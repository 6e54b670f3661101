"""Agents that a run can have of its own: how they are configured, told to a runner, and listed."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from pwf.budgets import Budget

#: In place of an agent's name: nobody works by itself, and what is asked waits for `request.submit`.
PERSON = "person"


Adapter = Literal["exec", "acp", "pi-rpc"]


#: What kinds of tools an agent may use, in words of the Agent Client Protocol.
ToolKind = Literal["read", "search", "edit", "delete", "move", "execute", "fetch", "other"]
TOOL_KINDS: tuple[ToolKind, ...] = get_args(ToolKind)


def tools_in_words(tools: tuple[ToolKind, ...]) -> str:
    """What an agent is told of them."""
    if not tools:
        return "Use no tools for this, except to hand your result in."
    return f"Use only tools of these kinds for this: {', '.join(tools)}."


OnLimit = Literal["resume", "ask", "stop"]


class AgentCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a runner starts for a step. An empty `command`: no agent of that name is configured any more."""

    name: str
    adapter: Adapter = "exec"
    command: tuple[str, ...] = ()
    account: str = ""  # whose limits it meets; empty: its own
    on_limit: OnLimit = "resume"
    budget: Budget = Budget()  # of each run
    day_budget: Budget = Budget()  # of all its runs, on a day

    @property
    def account_name(self) -> str:
        return self.account or self.name


class Limited(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent has met a usage limit. `until_wall_ms`: when it ends; None where nobody has said."""

    account: Annotated[str, msgspec.Meta(max_length=64)]
    on_limit: OnLimit = "resume"
    until_wall_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


class AgentLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configured agent. `found`: the file that is executed, as the daemon sees it; None: there is none."""

    name: str
    adapter: str
    command: tuple[str, ...]
    found: str | None = None
    is_default: bool = False
    account: str = ""
    limited_until_ms: int | None = None
    tokens_today: int = 0
    cost_micros_today: int = 0
    steps_today: int = 0


class AgentList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agents: tuple[AgentLine, ...]


class ResumePayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`budget`: so much more than its agents have used, of a run that is held for that. Only a person may say it."""

    budget: Budget | None = None
