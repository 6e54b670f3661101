"""What the code of one workflow sees of a run: its own input, its own steps by their own ids, and of an included child
the exit alone.

Owns that restriction, for runner and tests alike. Promises: code that is included sees what it sees standing alone;
a child that is entered again starts with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from pwf.protocol.mounts import Entries, is_within, mount_of, own_id, qualified, visit_within
from pwf.protocol.progress import PROGRESS
from pwf.protocol.runner import UPDATE_NAME_MAX, PastStep, Value
from pwf.workflow.nodes import NodeDef
from pwf.workflow.settings import Settings

ROOT = ""  # the mount of nodes that are not included


@dataclass(frozen=True, slots=True)
class Left:
    """By which exit of which mount a node leaves, as the parent knows them."""

    mount: str
    exit: str


@dataclass(frozen=True, slots=True)
class Scope:
    """One workflow at one place of the graph. `names`: its nodes and mounts by their own ids.

    `leaves`: nodes below it that leave a mount of it. `seen_as`: what its code calls each node that it sees. Both by
    the ids of the whole graph.
    """

    mount: str
    input_type: Any
    names: Mapping[str, NodeDef]
    leaves: Mapping[str, Left]
    seen_as: Mapping[str, str]
    settings: Settings | None = None

    @classmethod
    def of(
        cls,
        input_type: Any,
        names: Mapping[str, NodeDef],
        leaves: Mapping[str, Left],
        settings: Settings | None = None,
    ) -> Scope:
        """That of a workflow which is the whole. Of a mount its code sees how it was left, not how it was entered."""
        own = {name: name for name, node in names.items() if node.spec.mount is None}
        seen_as = own | {node: left.mount for node, left in leaves.items()}
        return cls(ROOT, input_type, names, leaves, seen_as, settings)

    def under(self, mount: str) -> Scope:
        """The same, where the whole is included."""
        below = qualified(mount, self.mount) if self.mount else mount
        leaves = {qualified(mount, node): left for node, left in self.leaves.items()}
        seen_as = {qualified(mount, node): name for node, name in self.seen_as.items()}
        return replace(self, mount=below, leaves=leaves, seen_as=seen_as)

    def seen(self, past: Mapping[str, PastStep], entries: Entries) -> Mapping[str, PastStep]:
        """Of all steps those that its code sees, by its own ids and counts, in the same order."""
        if self.mount == ROOT and not self.leaves:
            return past
        found: dict[str, PastStep] = {}
        for node, step in past.items():
            name = self.seen_as.get(node)
            if name is None:
                continue
            if node in self.leaves:
                found.pop(name, None)  # it stands where it was left the last time
                node = qualified(self.mount, name) if self.mount else name
                step = _counted(step, entries, node, past[node].visit)
            elif entries:
                step = _counted(step, entries, node, step.visit)
            found[name] = step
        return found


def _counted(step: PastStep, entries: Entries, node: str, visit: int) -> PastStep:
    own = visit_within(entries, node, visit)
    return step if own == step.visit else msgspec.structs.replace(step, visit=own)


Publish = Callable[[str, str, bytes], None]  # type, key, canonical JSON


def publisher_of(node: str, publish: Publish) -> Publish:
    """How code of this node publishes. Bars of an included workflow bear its mount: those of two are two."""
    mount = mount_of(node)
    if not mount:
        return publish

    def within(type: str, key: str, data: bytes) -> None:
        publish(type, qualified(mount, key)[-UPDATE_NAME_MAX:] if type == PROGRESS else key, data)

    return within


NO_LEAVES: Mapping[str, Left] = {}


class Sight(NamedTuple):
    """What a context is made of that depends on where its node stands."""

    scope: Scope
    node: str
    visit: int
    input: Value
    past: Mapping[str, PastStep]
    completed: Mapping[str, PastStep]


def sight(
    scopes: Mapping[str, Scope],
    node: str,
    visit: int,
    *,
    entries: Entries,
    input: Value,
    past: Mapping[str, PastStep],
    completed: Mapping[str, PastStep],
) -> Sight:
    """What a node's code sees. `input` is the run's; all ids and counts are those of the whole graph."""
    mount = mount_of(node)
    scope = scopes[mount]
    if mount:
        entered = completed[mount].output
        assert entered is not None  # a mount completes with its child's input
        input = entered
    return Sight(
        scope,
        own_id(node),
        visit_within(entries, node, visit),
        input,
        scope.seen(past, entries),
        scope.seen(completed, entries),
    )


def forget_within(mount: str, steps: dict[str, PastStep]) -> None:
    """A mount has been entered: what its child did at earlier entries is not its own any more."""
    for node in [node for node in steps if is_within(node, mount)]:
        del steps[node]
