"""A command or query about one run, named the way people do: the reference is resolved in the same transaction.

So nothing can change between "which run is meant" and the act, and commands of one connection keep their
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pwf.store.runs import resolve_ref
from pwf.store.tx import Tx

R = TypeVar("R")


@dataclass(frozen=True)
class AtRun(Generic[R]):
    """`make` builds the handler's command for the run id that `ref` means."""

    ref: str
    handler: Callable[[Tx, Any], R]
    make: Callable[[str], Any]


def at_run(tx: Tx, command: AtRun[R]) -> R:
    """Resolve, then act. Raises `NotFound` or `Ambiguous` before anything is written."""
    return command.handler(tx, command.make(resolve_ref(tx, command.ref)))
