"""A workflow within another one, as its author handles it: `mount >> next`, `mount.exit("ready") >> next`.

Nothing is judged here but what could not be kept for later, as in `routes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from pwf.errors import GraphError
from pwf.protocol.graph import DEFAULT_TIMEOUT_MS
from pwf.protocol.kinds import NodeKind
from pwf.workflow.nodes import Node, Owner
from pwf.workflow.routes import Chain, Switch, cases_of, join
from pwf.workflow.source import Place


class Child(Protocol):
    """A workflow, as far as who includes it knows it. `checked` raises `GraphError`."""

    @property
    def name(self) -> str:
        """Its own name."""
        ...

    @property
    def exits(self) -> Mapping[str, tuple[str, ...]]:
        """The nodes that leave it when they complete, by the name of the exit."""
        ...

    @property
    def checked(self) -> Any:
        """All of it, once it was found to be sound."""
        ...


class Mount(Node[Any]):
    """An included workflow, made by `flow.include`. `ctx[mount]` is the output that it was left with.

    `mount >> next` leads on from every exit that has no way of its own.
    """

    def __init__(
        self,
        workflow: Owner,
        kind: NodeKind,
        child: Child,
        make_input: Callable[..., Any],
        *,
        id: str,
        place: Place,
    ) -> None:
        super().__init__(workflow, kind, make_input, id=id, place=place, timeout_ms=DEFAULT_TIMEOUT_MS)
        self.child = child
        self.__doc__ = f"Enter {child.name}."

    def __repr__(self) -> str:
        return f"<workflow {self.child.name!r} included as {self.id!r} at {self.place}>"

    def exit(self, name: str) -> Exit:
        """The way out by one exit of the included workflow: `mount.exit("ready") >> next`."""
        return Exit(self, name)

    def switch(
        self,
        on: str | None = None,
        cases: Mapping[Any, Node[Any]] | None = None,
        **named: Node[Any],
    ) -> Switch:
        """The ways out by the exits: `mount.switch(ready=ship, broken=stop)`, one case an exit."""
        if on is not None:
            raise GraphError(
                f"{Place.of_caller()}: {self.id}.switch(on=…): the cases of an included workflow are its exits",
                hint=f'to switch on the output of one: {self.id}.exit("…").switch(on={on!r}, …)',
            )
        return Switch(self, None, cases_of(cases, named), Place.of_caller())

    def on(self, *outcomes: str) -> NoReturn:
        """Refused: an included workflow is left by its exits."""
        raise GraphError(
            f"{Place.of_caller()}: {self.id}.on(…): an included workflow is left by its exits alone",
            hint=f'in {self.child.name!r}: node.on("failed") >> other, flow.exit("failed", other); '
            f'here: {self.id}.exit("failed") >> …',
        )


class Exit:
    """One exit of an included workflow. `exit >> next` and `exit.switch(…)` lead on from there."""

    def __init__(self, mount: Mount, name: str) -> None:
        self.mount = mount
        self.name = name

    @property
    def id(self) -> str:
        """How it is written."""
        return f"{self.mount.id}.exit({self.name!r})"

    @property
    def kind(self) -> NodeKind:
        """That of its mount."""
        return self.mount.kind

    def __repr__(self) -> str:
        return f"<{self.id}>"

    def __rshift__(self, target: object) -> Chain:
        return join((), self, ("completed",), target)

    def switch(
        self,
        on: str | None = None,
        cases: Mapping[Any, Node[Any]] | None = None,
        **named: Node[Any],
    ) -> Switch:
        """The way out by the output of the exit, or by its field `on`."""
        return Switch(self, on, cases_of(cases, named), Place.of_caller())
