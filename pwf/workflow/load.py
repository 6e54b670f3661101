"""Find what a loaded module defines: a workflow or a resource manager. Used by the resolver and by the template."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pwf.errors import GraphError, NoWorkflow
from pwf.workflow.defined import defined, only, only_workflow
from pwf.workflow.resource_manager import ResourceManager
from pwf.workflow.workflow import Workflow

Defined = Workflow[Any] | ResourceManager[Any, Any]


def workflows_in(namespace: Mapping[str, Any]) -> list[Workflow[Any]]:
    """The workflows that a module defines, in the order of their names' first appearance, each once.

    Imported ones count only when the module defines none of its own (a factory made it).
    """
    return defined(Workflow, namespace)


def find_workflow(namespace: Mapping[str, Any]) -> Workflow[Any]:
    """The one workflow of a module (its `vars`), with its graph checked. `GraphError` says what is wrong.

    Beside it there may be those that it includes. `NoWorkflow` when there is none.
    """
    return only_workflow(Workflow, namespace)


def find_definition(namespace: Mapping[str, Any]) -> Defined:
    """The one workflow or resource manager of a module, checked. Raises as `find_workflow` does."""
    managers = defined(ResourceManager, namespace)
    file = namespace.get("__file__", "the module")
    if not managers:
        if PurePath(file).parent.name == "resources" and not workflows_in(namespace):
            raise NoWorkflow(
                f"{file} defines no resource manager",
                hint=f'write manager = ResourceManager("{PurePath(file).stem}", spec=…) at the top of the file',
            )
        return find_workflow(namespace)
    if workflows_in(namespace):
        raise GraphError(
            f"{file} defines a workflow and a resource manager",
            hint="one file holds one of them: move the workflow to .pwf/workflows",
        )
    return only(managers, "resource manager", file)
