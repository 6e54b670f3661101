"""The ways out of nodes as an author writes them: `a >> b >> c`, `a.on("failed") >> d`, `b.switch(ship=c)`.

Nothing is judged here but what could not be kept for later: `check` sees all ways at once and says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from pwf.errors import GraphError
from pwf.protocol.kinds import NodeKind
from pwf.workflow.source import Place


class Source(Protocol):
    """A node, as far as a way that leads from it knows it."""

    @property
    def id(self) -> str:
        """The node's id."""
        ...

    @property
    def kind(self) -> NodeKind:
        """What kind of node it is."""
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """From a node to another, for some outcomes. What stands for a node may be anything: `check` looks."""

    source: Any
    outcomes: tuple[str, ...]
    target: Any
    place: Place


@dataclass(frozen=True, slots=True)
class Switch:
    """From a node to one of several, by its output or by the field `on` of it."""

    source: Source
    on: Any
    cases: tuple[tuple[Any, Any], ...]
    place: Place

    def __rshift__(self, target: object) -> Any:
        raise GraphError(
            f"{self.place}: a switch leads on through its cases, so nothing can follow it",
            hint="write the ways out of each case's node as lines of their own",
        )

    def __rrshift__(self, source: object) -> Chain:
        return join((), source, ("completed",), self)


Way = Link | Switch


@dataclass(frozen=True, slots=True)
class Chain:
    """Some ways, and the node at their end, from which `>>` goes on."""

    ways: tuple[Way, ...]
    end: Any

    def __rshift__(self, target: object) -> Chain:
        if self.end is None:
            raise GraphError(
                f"{Place.of_caller()}: a switch leads on through its cases, so nothing can follow it",
                hint="write the ways out of each case's node as lines of their own",
            )
        return join(self.ways, self.end, ("completed",), target)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """`node.on("failed", …)`, which still lacks its target."""

    source: Source
    outcomes: tuple[Any, ...]
    place: Place

    def __rshift__(self, target: object) -> Chain:
        return join((), self.source, self.outcomes, target)


def join(ways: tuple[Way, ...], source: object, outcomes: tuple[Any, ...], target: object) -> Chain:
    """Go on from `source` to `target`, which may bring its own ways (`a >> b.switch(…)`, `a >> (b >> c)`)."""
    place = Place.of_caller()
    if isinstance(target, Switch):
        return Chain((*ways, Link(source, outcomes, target.source, place), target), None)
    if isinstance(target, Chain):
        first = target.ways[0].source
        return Chain((*ways, Link(source, outcomes, first, place), *target.ways), target.end)
    return Chain((*ways, Link(source, outcomes, target, place)), target)


def loop(
    decide: Any, return_to: Any, routes: Mapping[Any, Any], leave: Mapping[Any, Any], on: str | None
) -> Chain:
    """`decide` switches to one of `routes`, each of which goes back to `return_to`, or to one of `leave`."""
    cases: dict[Any, Any] = {}
    ways: list[Way] = []
    going_back: set[int] = set()
    for value, body in {**routes, **leave}.items():
        cases[value] = body.ways[0].source if isinstance(body, Chain) else body
        ways.extend(body.ways if isinstance(body, Chain) else ())
        end = body.end if isinstance(body, Chain) else body
        if value not in leave and end is not return_to and id(end) not in going_back:
            going_back.add(id(end))
            ways.extend(join((), end, ("completed",), return_to).ways)
    return Chain((decide.switch(on, cases), *ways), None)


def cases_of(cases: object, named: Mapping[str, Any]) -> tuple[tuple[Any, Any], ...]:
    """All cases of a switch, enum members as their values. What can't be a case is left for `check`."""
    given = list(cases.items()) if isinstance(cases, Mapping) else []
    if cases is not None and not isinstance(cases, Mapping):
        given = [("cases", cases)]
    return tuple(
        (value.value if isinstance(value, Enum) else value, node) for value, node in [*given, *named.items()]
    )
