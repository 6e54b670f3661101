"""Where an included workflow stands in the flat graph of the one that includes it, and how its steps are counted.

The nodes of a child bear the id of its mount before their own: `review.lint`. The mount itself is a node, too: it makes
the child's input, and its visits number the entries. `entries` holds, for each mount that was entered again, how often
the nodes below it had been visited before its present entry: so a child counts from 1 at each. Owns the rules for these
ids and counts. Promises: pure functions; the daemon decides with them, and runners and tests agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Entries = dict[str, dict[str, int]]  # mount -> node -> its visits before the mount's present entry


def qualified(mount: str, node: str) -> str:
    """The id of a child's node in the graph of its parent."""
    return f"{mount}.{node}"


def mount_of(node: str) -> str:
    """The mount that a node stands in; empty for a node of the root."""
    return node.rpartition(".")[0]


def own_id(node: str) -> str:
    """The id that a node has in its own workflow."""
    return node.rpartition(".")[2]


def mounts_of(node: str) -> Iterator[str]:
    """All mounts that a node stands in, the innermost first."""
    while mount := mount_of(node):
        yield mount
        node = mount


def is_within(node: str, mount: str) -> bool:
    """Whether a node stands in a mount, or in one below it."""
    return node.startswith(mount + ".")


def enter(entries: Entries, visits: Mapping[str, int], mount: str) -> None:
    """A mount is entered: its child counts from here."""
    before = {node: count for node, count in visits.items() if is_within(node, mount)}
    if before:
        entries[mount] = before


def visit_within(entries: Entries, node: str, visit: int) -> int:
    """The number of a visit within the present entry of its mount: what the child's own code sees."""
    before = entries.get(mount_of(node))
    return visit if before is None else visit - before.get(node, 0)


def exceeds(entries: Entries, visits: Mapping[str, int], mount: str, limit: int, steps: int) -> bool:
    """Whether a child has taken more steps than it may. `steps`: those of the whole run, which mostly tell it."""
    return steps > limit and steps_within(entries, visits, mount) > limit


def steps_within(entries: Entries, visits: Mapping[str, int], mount: str) -> int:
    """How many steps a child has taken since its mount was entered."""
    below = mount + "."
    taken = sum(count for node, count in visits.items() if node.startswith(below))
    return taken - sum(entries.get(mount, {}).values())
