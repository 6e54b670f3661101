"""Operations on workflows: what can be started from here, and what a file says. Both leave no trace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import trio

from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.discovery import Found, list_workflow_files, project_root
from pwf.errors import PwfError
from pwf.protocol.operations import (
    WorkflowDescription,
    WorkflowLine,
    WorkflowList,
    WorkflowListPayload,
    WorkflowRef,
)
from pwf.protocol.origin import Origin

L = TypeVar("L")

RESOLVED_AT_ONCE = 4
NO_WORKFLOW = "no_workflow"  # the resolver's code for a file that only helps others
SCOPES: dict[str, Literal["project", "user", "built-in"]] = {
    "project": "project",
    "user": "user",
    "builtin": "built-in",
}


async def describe(services: Services, asked: Asked[WorkflowRef]) -> Answer:
    """`workflow.describe`: the graph as the file stands now, with warnings; of a resource manager what it declares."""
    find = services.definitions.anything if asked.payload.or_manager else services.definitions.find
    known = await find(asked.payload.workflow, asked.payload.origin)
    definition = known.definition
    return Answer(
        WorkflowDescription(
            graph=definition.graph,
            root=known.environment.root,
            path=known.code.path,
            definition_id=definition.definition_id,
            interpreter=known.environment.interpreter,
            sources=tuple(source.path for source in definition.sources),
            warnings=definition.warnings,
            kept=services.kept.find(definition.definition_id) if definition.graph.isolate == "keep" else None,
        )
    )


async def list_(services: Services, asked: Asked[WorkflowListPayload]) -> Answer:
    """`workflow.list`: every file that can be started by name from here, with what is wrong where it is."""
    origin = asked.payload.origin
    # Reads every file that could hold a workflow.
    files = await trio.to_thread.run_sync(
        list_workflow_files, Path(origin.cwd), services.places.config.parent
    )
    root = str(project_root(Path(origin.cwd)))
    return Answer(
        WorkflowList(root=root, workflows=await lines_of(files, lambda found: _line(services, found, origin)))
    )


async def lines_of(files: Sequence[Found], line: Callable[[Found], Awaitable[L | None]]) -> tuple[L, ...]:
    """A line for each file that has one, in the order of the files; some are resolved at once."""
    lines: dict[int, L] = {}
    limit = trio.CapacityLimiter(RESOLVED_AT_ONCE)

    async def look(number: int, found: Found) -> None:
        async with limit:
            said = await line(found)
        if said is not None:
            lines[number] = said

    async with trio.open_nursery() as nursery:
        for number, found in enumerate(files):
            nursery.start_soon(look, number, found)
    return tuple(lines[number] for number in sorted(lines))


async def _line(services: Services, found: Found, origin: Origin) -> WorkflowLine | None:
    scope = SCOPES[found.scope]
    try:
        definition = (await services.definitions.at(found, origin)).definition
    except PwfError as error:
        if error.code == NO_WORKFLOW:
            return None
        return WorkflowLine(
            name=found.name, path=str(found.path), scope=scope, error=error.message, hint=error.hint
        )
    graph = definition.graph
    return WorkflowLine(
        name=found.name, path=str(found.path), scope=scope, doc=graph.doc, nodes=len(graph.nodes)
    )


HANDLERS: dict[str, OperationHandler] = {"workflow.describe": describe, "workflow.list": list_}
