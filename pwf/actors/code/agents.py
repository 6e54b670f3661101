"""The agents of the configuration, and who of them does the steps of a run.

Owns them as the file has them now: it is looked at when somebody is about to name one, and read again where it has
changed. Promises: a run with steps for agents starts only where it was said who does them; a mistake in the file
refuses that start, and changes nothing.
"""

from __future__ import annotations

from pathlib import Path

import trio

from pwf.config import Config, load_config
from pwf.errors import NotFound, Rejected
from pwf.protocol.agents import PERSON, AgentCommand
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.kinds import KINDS


class Agents:
    """For any task. `config`: what it says of agents. `commands`: the same as a runner is told of it."""

    def __init__(self, config: Config, file: Path) -> None:
        self.config = config
        self.commands = _commands(config)
        self._file = file
        self._read: tuple[int, int, int] | None = None  # as it stood when it was read; None: not by this

    async def refresh(self) -> None:
        """Read the file again where it has changed. Raises `ConfigError`."""
        stands = _stands(self._file)
        if stands == self._read:
            return
        config = await trio.to_thread.run_sync(load_config, self._file)
        self.config, self._read = config, stands
        now = _commands(config)
        self.commands.update(now)  # in place: every launch looks here, also in the store's thread
        for name in self.commands.keys() - now.keys():
            del self.commands[name]

    async def of(self, graph: WorkflowGraph, named: str | None, session_id: str | None = None) -> str | None:
        """The agent that a start means; None: its steps wait for what is submitted. Raises where nobody was said."""
        if session_id is not None:
            if named is not None:
                raise Rejected(
                    f"the run is to belong to session {session_id!r} and to have the agent {named!r}",
                    hint="name one of both: who does the steps of agents",
                )
            return None
        steps = [node.id for node in graph.nodes if KINDS[node.kind].headless]
        if not steps and named in (None, PERSON):
            return None
        await self.refresh()
        known = ", ".join((*self.config.agents, PERSON))
        if named is not None and named not in (PERSON, *self.config.agents):
            raise NotFound(
                f"there is no agent {named!r}; known are: {known}",
                hint=f"add [agents.{named}] to {self._file}",
            )
        name = named or self.config.default_agent
        if steps and name is None:
            raise Rejected(
                f"workflow {graph.name!r} has steps for an agent ({', '.join(steps[:3])}{', …' if steps[3:] else ''}), "
                "and nobody was named who does them",
                hint=f"pwf run {graph.name} --agent NAME (known are: {known}; with {PERSON} the steps wait for "
                'pwf submit), or --session ID (pwf sessions lists them), or set default_agent = "NAME" in the '
                "configuration",
            )
        return None if name == PERSON or not steps else name


def _stands(file: Path) -> tuple[int, int, int] | None:
    """What changes with the file; None where there is none. It is a file of this machine, so no thread is asked."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _commands(config: Config) -> dict[str, AgentCommand]:
    return {
        name: AgentCommand(
            name=name,
            adapter=agent.adapter,
            command=agent.command,
            account=agent.account or "",
            on_limit=agent.on_limit,
            budget=agent.budget,
            day_budget=agent.day_budget,
        )
        for name, agent in config.agents.items()
    }
