"""One file for each kind of node: what executing it means. `RUN` has them all.

Knows one step. Knows neither the graph nor what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pwf.protocol.kinds import NodeKind
from pwf.runner.base.steps import End, Step
from pwf.runner.kinds import (
    action,
    agent,
    assistant,
    checkpoint,
    compute,
    decision,
    include,
    notify,
    settings_route,
    shell,
    wait,
)

RUN: Mapping[NodeKind, Callable[[Step], End]] = {
    compute.KIND: compute.run,
    settings_route.KIND: settings_route.run,
    include.KIND: include.run,
    action.KIND: action.run,
    shell.KIND: shell.run,
    wait.KIND: wait.run,
    checkpoint.KIND: checkpoint.run,
    decision.KIND: decision.run,
    agent.KIND: agent.run,
    assistant.KIND: assistant.run,
    notify.KIND: notify.run,
}
