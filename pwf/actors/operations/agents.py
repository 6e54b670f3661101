"""Operations on agents: which are configured.

Holds no state.
"""

from __future__ import annotations

import shutil

import trio

from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.protocol.agents import AgentLine, AgentList
from pwf.protocol.operations import Nothing
from pwf.store.agent_limits import limits


async def list_agents(services: Services, asked: Asked[Nothing]) -> Answer:
    """`agent.list`: in the order of the configuration."""
    config = services.config
    limited = await services.store.read(limits, None)

    def look() -> tuple[AgentLine, ...]:
        return tuple(
            AgentLine(
                name=name,
                adapter=agent.adapter,
                command=agent.command,
                found=shutil.which(agent.command[0]),
                is_default=config.default_agent == name,
                account=agent.account or name,
                limited_until_ms=limited.get(agent.account or name),
            )
            for name, agent in config.agents.items()
        )

    return Answer(AgentList(agents=await trio.to_thread.run_sync(look)))


HANDLERS: dict[str, OperationHandler] = {"agent.list": list_agents}
