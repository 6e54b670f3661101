"""Find the workflow in a loaded module. Used by the resolver and by the runner's template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pwf.errors import GraphError, NoWorkflow
from pwf.workflow.workflow import Workflow


def workflows_in(namespace: Mapping[str, Any]) -> list[Workflow[Any]]:
    """The workflows that a module defines, in the order of their names' first appearance, each once.

    Imported ones count only when the module defines none of its own (a factory made it).
    """
    found: dict[int, Workflow[Any]] = {}
    for value in list(namespace.values()):
        if issubclass(type(value), Workflow):  # not isinstance: it runs `__class__` of objects
            found.setdefault(id(value), value)
    own = [flow for flow in found.values() if flow.place.file == namespace.get("__file__")]
    return own or list(found.values())


def find_workflow(namespace: Mapping[str, Any]) -> Workflow[Any]:
    """The one workflow of a module (its `vars`), with its graph checked. `GraphError` says what is wrong.

    `NoWorkflow` when there is none.
    """
    flows = workflows_in(namespace)
    file = namespace.get("__file__", "the module")
    if not flows:
        raise NoWorkflow(
            f"{file} defines no workflow", hint='write flow = Workflow("name") at the top of the file'
        )
    if len(flows) > 1:
        listed = ", ".join(f"{flow.name!r} (line {flow.place.line})" for flow in flows)
        raise GraphError(
            f"{file} defines {len(flows)} workflows: {listed}",
            hint="one file holds one workflow: move the others",
        )
    flows[0].check()
    return flows[0]
