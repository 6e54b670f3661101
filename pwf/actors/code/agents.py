"""Who does the steps of agents in a run: the agent that its start means.

Holds no state. Promises: a run with steps for agents starts only where it was said who does them.
"""

from __future__ import annotations

from pathlib import Path

from pwf.config import Config
from pwf.errors import NotFound, Rejected
from pwf.protocol.agents import PERSON
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.kinds import KINDS


def agent_of(
    config: Config, file: Path, graph: WorkflowGraph, named: str | None, session_id: str | None = None
) -> str | None:
    """The agent that a start means; None: its steps wait for what is submitted. Raises where nobody was said.

    `file`: where the configuration was read from, as the daemon started.
    """
    if session_id is not None:
        if named is not None:
            raise Rejected(
                f"the run is to belong to session {session_id!r} and to have the agent {named!r}",
                hint="name one of both: who does the steps of agents",
            )
        return None
    known = ", ".join((*config.agents, PERSON))
    if named is not None and named not in (PERSON, *config.agents):
        raise NotFound(
            f"there is no agent {named!r}; known are: {known}",
            hint=f"add [agents.{named}] to {file}; if it is there: pwf stop, since a daemon reads that only as it "
            "starts",
        )
    name = named or config.default_agent
    steps = [node.id for node in graph.nodes if KINDS[node.kind].headless]
    if steps and name is None:
        raise Rejected(
            f"workflow {graph.name!r} has steps for an agent ({', '.join(steps[:3])}{', …' if steps[3:] else ''}), "
            "and nobody was named who does them",
            hint=f"pwf run {graph.name} --agent NAME (known are: {known}; with {PERSON} the steps wait for "
            'pwf submit), or --session ID (pwf sessions lists them), or set default_agent = "NAME" in the '
            "configuration",
        )
    return None if name == PERSON or not steps else name
