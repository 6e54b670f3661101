"""What an author says about side effects: `idempotent`, `manual`, `parts`, and the answers of `observe`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pwf.protocol.graph import DeclaredMode, EffectMode


class NotApplied(Exception):
    """Raised by a node with a manual effect: it surely did not happen, and can not happen any more.

    Settles the effect as rejected; the attempt has failed, so that `retry` and the `failed` way out apply.
    """


def after_error(error: BaseException, mode: EffectMode) -> Literal["rejected", "unknown", "failed"]:
    """What an effect in mid-step becomes whose `apply` has raised: it did not happen where all of the error says so."""
    if mode == "idempotent":
        return "failed"  # it is simply applied again
    rest = error.split(NotApplied)[1] if isinstance(error, BaseExceptionGroup) else error
    return "rejected" if rest is None or isinstance(rest, NotApplied) else "unknown"


@dataclass(frozen=True, slots=True)
class Effect:
    """A declared effect. Made by `idempotent`, `manual` and `parts`, never directly."""

    mode: DeclaredMode
    type: str
    observe: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What `observe` found in the outside system. Made by `applied`, `not_applied` and `unknown`."""

    verdict: Literal["applied", "not_applied", "unknown"]
    output: Any = None
    ref: str | None = None


def idempotent(type: str) -> Effect:
    """The effect may be applied again without harm: after a crash the step simply runs again.

    `type` names the kind of effect for people ("tests", "upload"). Pass `ctx.effect_key`, which is the same
    in every attempt of a visit, to the outside system where it has room for an idempotency key.
    """
    return Effect("idempotent", type)


def manual(type: str, observe: Callable[..., Any] | None = None) -> Effect:
    """The effect is never applied again on its own once its outcome is unknown.

    `observe(ctx)`, plain or async, reads the outside system then, and answers `applied`, `not_applied` or
    `unknown`. Without it, or on `unknown`, the run is held as `effect_ambiguous` until a person says what
    happened.
    """
    return Effect("manual", type, observe)


def parts(type: str = "effect") -> Effect:
    """The function makes effects one by one, with `ctx.effect(…)`, and may itself run again.

    After a crash, a failure or a person's word it is called once more, and each effect that has happened gives its
    stored output. `type` names the effects for people, where a call gives no type of its own.
    """
    return Effect("parts", type)


def applied(output: Any = None, ref: str | None = None) -> Observation:
    """It happened. `output` becomes the node's output, as if its function had returned it; `ref` is kept
    for people.
    """
    return Observation("applied", output, ref)


def not_applied() -> Observation:
    """It did not happen, and can not happen any more: the attempt has failed, and may be tried again."""
    return Observation("not_applied")


def unknown() -> Observation:
    """The outside system does not tell. The run is held as `effect_ambiguous`."""
    return Observation("unknown")
