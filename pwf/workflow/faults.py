"""How faults are named: at once for one node (`Fault`), or collected for a whole graph (`Faults`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Protocol

from pwf.errors import GraphError
from pwf.protocol.kinds import NodeKind
from pwf.workflow.source import Place


class Placed(Protocol):
    """A node, as far as a fault names it."""

    @property
    def place(self) -> Place:
        """Where it is written."""
        ...

    @property
    def kind(self) -> str:
        """Its kind."""
        ...

    @property
    def id(self) -> str:
        """Its id."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """A node in the making, and where it stands."""

    place: Place
    kind: NodeKind
    id: str

    def refuse(self, what: str, hint: str | None = None) -> NoReturn:
        """Something is wrong with it. `what` goes on from "node 'x' …"."""
        raise GraphError(f"{self.place}: {self.kind} node {self.id!r} {what}", hint=hint)


class Faults:
    """Faults of one file, each with its place and its fix. `what`: workflow or manager."""

    def __init__(self, name: str, *, what: str = "workflow") -> None:
        self._name = name
        self._what = what
        self._found: list[tuple[str, str | None]] = []

    def add(self, place: Place, what: str, hint: str | None = None) -> None:
        """Something is wrong at `place`. `what` goes on from "workflow 'x' …"."""
        self._found.append((f"{place}: {self._what} {self._name!r} {what}", hint))

    def node(self, node: Placed, what: str, hint: str | None = None) -> None:
        """Something is wrong with a node. `what` goes on from "node 'x' …"."""
        self._found.append((f"{node.place}: {node.kind} node {node.id!r} {what}", hint))

    def raise_any(self) -> None:
        """Raise one `GraphError` for all faults, if any. `details` lists them as (message, hint)."""
        if not self._found:
            return
        if len(self._found) == 1:
            message, hint = self._found[0]
            raise GraphError(message, hint=hint, details=self._found)
        lines = [message if hint is None else f"{message}\n    {hint}" for message, hint in self._found]
        whole = "graph" if self._what == "workflow" else self._what
        raise GraphError("\n".join([f"the {whole} has {len(lines)} faults:", *lines]), details=self._found)
