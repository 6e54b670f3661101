"""`pwf agents`: the programs that do agents' steps by themselves."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out
from pwf.present import text

if TYPE_CHECKING:
    from pwf.protocol.agents import AgentLine


def add(commands: Commands) -> None:
    commands.add(
        "agents",
        agents,
        "list the configured agents, and whether their program is there",
        example="pwf agents\npwf run review --agent coder",
        more="An agent is a section [agents.NAME] of the configuration; docs/agents.md says how to write one.",
    )


def agents(options: argparse.Namespace, out: Out) -> int:
    with client() as daemon:
        listed = daemon.call("agent.list")
        file = daemon.places.config
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.agents:
        out.note(f'no agents; add a section [agents.NAME] with command = ["…"] to {file}')
        return exits.OK
    rows = [
        [
            text.line(agent.name),
            "default" if agent.is_default else "-",
            agent.adapter,
            text.line(shlex.join(agent.command), 60),
            _program(agent),
            _until(agent.limited_until_ms, out.now_ms()),
            _today(agent),
        ]
        for agent in listed.agents
    ]
    out.table(["AGENT", "DEFAULT", "ADAPTER", "COMMAND", "PROGRAM", "LIMITED UNTIL", "TODAY"], rows)
    return exits.OK


def _program(agent: AgentLine) -> str:
    """Where the program is, as the daemon sees it; a path that is not whole is one of each run's project."""
    name = agent.command[0]
    if "/" in name and not name.startswith(("/", "~")):
        return "looked for in each run's project"
    return text.line(agent.found or "not found", 60)


def _today(agent: AgentLine) -> str:
    if not agent.steps_today:
        return "-"
    used = f"{text.count(agent.steps_today, 'step')}, {agent.tokens_today:,} tokens"
    return used + (f", ${agent.cost_micros_today / 1_000_000:,.2f}" if agent.cost_micros_today else "")


def _until(limited_ms: int | None, now_ms: int) -> str:
    if limited_ms is None:
        return "-"
    return text.clock_time(limited_ms, now_ms) if limited_ms > now_ms else "it is tried again"
