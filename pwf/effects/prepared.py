"""What every ready-made effect is: a request that can be applied and, mostly, looked for.

Promises: the same key in every attempt of a visit; an `observe` that asks about the very request that was applied,
since both are made by the author's one function, which must depend on ctx alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from pwf.errors import Rejected
from pwf.workflow.context import Context
from pwf.workflow.effects import Effect, Observation, manual, unknown

OutputT = TypeVar("OutputT")


class Request(Generic[OutputT]):
    """What is wanted of an outside system. A subclass is a frozen dataclass; it does nothing when it is made."""

    observable: ClassVar[bool] = True

    def apply(self, key: str) -> OutputT:
        """Do it, once, under this key.

        Raises `NotApplied` when it surely did not happen and can not happen any more. After anything else that it
        raises, the outcome is unknown.
        """
        raise NotImplementedError

    def observe(self, key: str) -> Observation:
        """Find out whether it happened under this key, and change nothing. Its old processes are dead."""
        return unknown()

    @classmethod
    def prepared(cls, type: str) -> Callable[[Callable[[Context[Any]], Request[OutputT]]], Prepared[OutputT]]:
        """Make a `Prepared` of a function that returns such a request. `type` names the kind of effect for people."""
        return lambda fn: Prepared(fn, type, observable=cls.observable)


class Prepared(Generic[OutputT]):
    """A request as a function of ctx. `effect` goes to the node's decorator; the node returns `apply(ctx)`."""

    def __init__(
        self, fn: Callable[[Context[Any]], Request[OutputT]], type: str, *, observable: bool
    ) -> None:
        self._fn = fn
        self.effect: Effect = manual(type, observe=self._observe if observable else None)

    def apply(self, ctx: Context[Any]) -> OutputT:
        """Apply the request under the visit's effect key."""
        return self._fn(ctx).apply(_key(ctx))

    def _observe(self, ctx: Context[Any]) -> Observation:
        return self._fn(ctx).observe(_key(ctx))


def _key(ctx: Context[Any]) -> str:
    if ctx.effect_key is None:
        raise Rejected(
            f"node {ctx.node!r} declares no effect",
            hint="give the prepared effect to its decorator: @flow.action(effect=NAME.effect)",
        )
    return ctx.effect_key
