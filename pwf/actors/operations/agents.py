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
from pwf.store.budgets import used_by_all


async def list_agents(services: Services, asked: Asked[Nothing]) -> Answer:
    """`agent.list`: in the order of the configuration, as it stands now."""
    await services.agents.refresh()
    config, accounts = services.agents.config, services.agents.config.accounts
    limited = await services.store.read(limits, None)
    used = await services.store.read(used_by_all, tuple(config.agents))

    def look() -> tuple[AgentLine, ...]:
        return tuple(
            AgentLine(
                name=name,
                adapter=agent.adapter,
                command=agent.command,
                found=shutil.which(agent.command[0]),
                is_default=config.default_agent == name,
                account=accounts[name],
                limited_until_ms=limited.get(accounts[name]),
                tokens_today=used[name].tokens,
                cost_micros_today=used[name].cost_micros,
                steps_today=used[name].steps,
            )
            for name, agent in config.agents.items()
        )

    return Answer(AgentList(agents=await trio.to_thread.run_sync(look)))


HANDLERS: dict[str, OperationHandler] = {"agent.list": list_agents}
