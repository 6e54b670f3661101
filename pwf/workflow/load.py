"""Find what a loaded module defines: a workflow or a resource manager. Used by the resolver and by the template."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, TypeVar

from pwf.errors import GraphError, NoWorkflow
from pwf.workflow.resource_manager import ResourceManager
from pwf.workflow.workflow import Workflow

Defined = Workflow[Any] | ResourceManager[Any, Any]
T = TypeVar("T", Workflow[Any], ResourceManager[Any, Any])


def workflows_in(namespace: Mapping[str, Any]) -> list[Workflow[Any]]:
    """The workflows that a module defines, in the order of their names' first appearance, each once.

    Imported ones count only when the module defines none of its own (a factory made it).
    """
    return _found(Workflow, namespace)


def _found(kind: type[T], namespace: Mapping[str, Any]) -> list[T]:
    found: dict[int, T] = {}
    for value in list(namespace.values()):
        if issubclass(type(value), kind):  # not isinstance: it runs `__class__` of objects
            found.setdefault(id(value), value)
    own = [one for one in found.values() if one.place.file == namespace.get("__file__")]
    return own or list(found.values())


def find_workflow(namespace: Mapping[str, Any]) -> Workflow[Any]:
    """The one workflow of a module (its `vars`), with its graph checked. `GraphError` says what is wrong.

    Beside it there may be those that it includes. `NoWorkflow` when there is none.
    """
    flows = workflows_in(namespace)
    file = namespace.get("__file__", "the module")
    if not flows:
        raise NoWorkflow(
            f"{file} defines no workflow", hint='write flow = Workflow("name") at the top of the file'
        )
    included = {child for flow in flows for child in flow.included}
    return _only([flow for flow in flows if flow not in included] or flows, "workflow", file)


def find_definition(namespace: Mapping[str, Any]) -> Defined:
    """The one workflow or resource manager of a module, checked. Raises as `find_workflow` does."""
    managers = _found(ResourceManager, namespace)
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
    return _only(managers, "resource manager", file)


def _only(found: list[T], what: str, file: str) -> T:
    """The only one, checked."""
    if len(found) > 1:
        listed = ", ".join(f"{one.name!r} (line {one.place.line})" for one in found)
        raise GraphError(
            f"{file} defines {len(found)} {what}s: {listed}",
            hint=f"one file holds one {what}: move the others",
        )
    found[0].check()
    return found[0]
