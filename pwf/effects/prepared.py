"""What every ready-made effect is: a request that can be applied and, mostly, looked for.

Promises: the same key in every attempt of a visit; an `observe` that asks about the very request that was applied,
since both are made by the author's one function, which must depend on ctx alone.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

from pwf.errors import Rejected
from pwf.workflow.context import Context
from pwf.workflow.effects import Effect, NotApplied, Observation, manual, unknown

OutputT = TypeVar("OutputT")
MappedT = TypeVar("MappedT")

ASK_AGAIN_S = 0.5


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

    @overload
    @classmethod
    def prepared(
        cls, type: str
    ) -> Callable[[Callable[[Context[Any]], Request[OutputT]]], Prepared[OutputT]]: ...

    @overload
    @classmethod
    def prepared(
        cls, type: str, *, output: Callable[[OutputT], MappedT]
    ) -> Callable[[Callable[[Context[Any]], Request[OutputT]]], Prepared[MappedT]]: ...

    @classmethod
    def prepared(
        cls, type: str, *, output: Callable[[Any], Any] | None = None
    ) -> Callable[[Callable[[Context[Any]], Request[Any]]], Prepared[Any]]:
        """Make a `Prepared` of a function that returns such a request. `type` names the kind of effect for people.

        `output` makes the node's output of the request's, in both ways: when it was applied and when it was found.
        """
        return lambda fn: Prepared(fn, type, output=output, observable=cls.observable)


class Prepared(Generic[OutputT]):
    """A request as a function of ctx. `effect` goes to the node's decorator; the node returns `apply(ctx)`."""

    def __init__(
        self,
        fn: Callable[[Context[Any]], Request[Any]],
        type: str,
        *,
        output: Callable[[Any], OutputT] | None = None,
        observable: bool,
    ) -> None:
        self._fn = fn
        self._output: Callable[[Any], Any] = output or (lambda found: found)
        self.effect: Effect = manual(type, observe=self._observe if observable else None)

    def apply(self, ctx: Context[Any]) -> OutputT:
        """Apply the request under the visit's effect key. `NotApplied` also when the request could not be made."""
        key = _key(ctx)
        try:
            request = self._fn(ctx)
        except Exception as error:  # of the author, whose function does nothing yet
            raise NotApplied(f"the request could not be made: {type(error).__name__}: {error}") from error
        output: OutputT = self._output(request.apply(key))
        return output

    def _observe(self, ctx: Context[Any]) -> Observation:
        found = self._fn(ctx).observe(_key(ctx))
        return replace(found, output=self._output(found.output)) if found.verdict == "applied" else found


def ask_again(
    look: Callable[[], Observation], while_it_says: Literal["not_applied", "unknown"], seconds: float
) -> Observation:
    """What `look` finds: at once, or after these seconds, in which it may come to say something else."""
    until = time.monotonic() + seconds
    while True:
        is_last = time.monotonic() >= until
        found = look()
        if is_last or found.verdict != while_it_says:
            return found
        time.sleep(ASK_AGAIN_S)


def _key(ctx: Context[Any]) -> str:
    if ctx.effect_key is None:
        raise Rejected(
            f"node {ctx.node!r} declares no effect",
            hint="give the prepared effect to its decorator: @flow.action(effect=NAME.effect)",
        )
    return ctx.effect_key


def tells_exit_codes() -> bool:
    """Whether it can be known how a command ends: where SIGCHLD is ignored, every one seems to have ended well."""
    return signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN


UNTOLD = "was not begun: this process ignores SIGCHLD, so nobody could tell how it ends"
