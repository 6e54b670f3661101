"""What the code of one workflow sees of a run: its own input, its own steps by their own ids, and of an included child
the exit alone.

Owns that restriction, for runner and tests alike. Promises: code that is included sees what it sees standing alone;
a child that is entered again starts with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from pwf.protocol.mounts import Entries, is_within, mount_of, own_id, qualified, visit_within
from pwf.protocol.runner import PastStep, Value
from pwf.workflow.nodes import NodeDef

ROOT = ""  # the mount of nodes that are not included


@dataclass(frozen=True, slots=True)
class Left:
    """By which exit of which mount a node leaves, as the parent knows them."""

    mount: str
    exit: str


@dataclass(frozen=True, slots=True)
class Scope:
    """One workflow at one place of the graph. `names`: its nodes and mounts by their own ids.

    `leaves`: nodes below it that leave a mount of it, by their ids in the whole graph.
    """

    mount: str
    input_type: Any
    names: Mapping[str, NodeDef]
    leaves: Mapping[str, Left]

    def under(self, mount: str) -> Scope:
        """The same, where the whole is included."""
        below = qualified(mount, self.mount) if self.mount else mount
        leaves = {qualified(mount, node): left for node, left in self.leaves.items()}
        return replace(self, mount=below, leaves=leaves)

    def seen(self, past: Mapping[str, PastStep], entries: Entries) -> Mapping[str, PastStep]:
        """Of all steps those that its code sees, by its own ids and counts, in the same order."""
        if self.mount == ROOT and not self.leaves:
            return past
        found: dict[str, PastStep] = {}
        for node, step in past.items():
            left = self.leaves.get(node)
            if left is not None:
                entered = qualified(self.mount, left.mount) if self.mount else left.mount
                found.pop(left.mount, None)  # it stands where it was left the last time
                found[left.mount] = _counted(step, entries, entered, past[entered].visit)
            elif mount_of(node) == self.mount and not self._is_mount(own_id(node)):
                found[own_id(node)] = _counted(step, entries, node, step.visit)
        return found

    def _is_mount(self, name: str) -> bool:
        """Whether its own step makes a child's input, which is not for its parent."""
        node = self.names.get(name)
        return node is not None and node.spec.mount is not None


def _counted(step: PastStep, entries: Entries, node: str, visit: int) -> PastStep:
    own = visit_within(entries, node, visit)
    return step if own == step.visit else msgspec.structs.replace(step, visit=own)


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
