"""What an author has written of a workflow, before it is checked. Its decorators and `flow.graph` fill it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pwf.budgets import Budget
from pwf.protocol.graph import Isolate
from pwf.workflow.context import Context
from pwf.workflow.nodes import Node
from pwf.workflow.routes import Way
from pwf.workflow.settings import Settings
from pwf.workflow.source import Place


def names(given: Sequence[str]) -> tuple[str, ...]:
    """Those of an option that takes several: a text alone is one."""
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(eq=False, kw_only=True)
class Written:
    """The options as they were given, the nodes in their order, and the ways, once `flow.graph` was called."""

    name: str
    place: Place
    doc: str
    input: Any
    title: Callable[[Context[Any]], str] | None
    max_steps: int
    isolate: Isolate
    source: Literal["pinned", "verify"]
    files: tuple[str, ...]
    environment: tuple[str, ...]
    secrets: tuple[str, ...]
    budget: Budget | None = None
    settings: Settings | None = None
    nodes: list[Node[Any]] = field(default_factory=list)
    ways: tuple[Way, ...] | None = None
    ways_place: Place  # of the call of `flow.graph`, once it was made
    start: Any = None
    exits: list[tuple[str, tuple[Any, ...], Place]] = field(default_factory=list)
