"""Which workflow or manager a module defines, whatever class that is: for loaders, and for files that are included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pwf.errors import GraphError, NoWorkflow

T = TypeVar("T", bound=Any)


def defined(kind: type[T], namespace: Mapping[str, Any]) -> list[T]:
    """What a module defines of a kind, in order, each once. Imported ones count only when it has none of its own."""
    found: dict[int, T] = {}
    for value in list(namespace.values()):
        if issubclass(type(value), kind):  # not isinstance: it runs `__class__` of objects
            found.setdefault(id(value), value)
    own = [one for one in found.values() if one.place.file == namespace.get("__file__")]
    return own or list(found.values())


def only_workflow(kind: type[T], namespace: Mapping[str, Any]) -> T:
    """The one workflow of a module, checked, beside those that it includes. `NoWorkflow` when there is none."""
    flows = defined(kind, namespace)
    file = namespace.get("__file__", "the module")
    if not flows:
        raise NoWorkflow(
            f"{file} defines no workflow", hint='write flow = Workflow("name") at the top of the file'
        )
    included = {child for flow in flows for child in flow.included}
    return only([flow for flow in flows if flow not in included] or flows, "workflow", file)


def only(found: list[T], what: str, file: str) -> T:
    """The only one, checked."""
    if len(found) > 1:
        listed = ", ".join(f"{one.name!r} (line {one.place.line})" for one in found)
        raise GraphError(
            f"{file} defines {len(found)} {what}s: {listed}",
            hint=f"one file holds one {what}: move the others",
        )
    found[0].check()
    return found[0]
