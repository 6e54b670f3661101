"""Payloads and results of the operations on effects: the list, all that is known of one, a person's word on it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pwf.errors import InvalidArgument
from pwf.protocol.bounds import Filter, PathText, Words
from pwf.protocol.raw import null
from pwf.protocol.runner import REF_CHARS_MAX, Value
from pwf.protocol.views import EffectStatus, EffectView, RunSummary, StepView
from pwf.values import shortened

EFFECTS_PAGE = 100

Verdict = Literal["happened", "not_happened", "observe", "give_up"]


def read_effect_key(key: str) -> tuple[str, str, int, str]:
    """Name, node, visit and part of a key. Raises `InvalidArgument`."""
    whole, _, part = key.partition("/")
    name, _, rest = whole.rpartition(":")
    name, _, node = name.rpartition(":")
    if not name or not node or not rest.isascii() or not rest.isdigit() or len(rest) > 9:
        raise InvalidArgument(
            f"{shortened(key, 80)!r} is no effect's key",
            hint="a key is RUN:NODE:VISIT, or RUN:NODE:VISIT/NAME; pwf effects lists them",
        )
    return name, node, int(rest), part


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class EffectListPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of these statuses, oldest first; of none: the newest. Messages of channels that are settled: with `messages`."""

    statuses: Annotated[tuple[EffectStatus, ...], Filter] = ()
    messages: bool = False
    limit: int = EFFECTS_PAGE


class EffectList(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    effects: tuple[EffectView, ...]


class EffectRef(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An effect by its key. The run in it may be a unique prefix, `@last` or `@last-failed`."""

    effect_key: PathText


class Word(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person may say of an ambiguous effect, what follows, and what to type."""

    verdict: Verdict
    does: str
    command: str


class EffectDetail(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is known of an effect. `steps`: the attempts of its visit, oldest first, at most the last hundred.

    `made_at`: file and line of the function that makes the request. `request` and `output`: of one that was made in
    mid-step; where they are large, `content.read` of the run has them. `words`: only while it is ambiguous. `run`: of a
    managed resource's effect, the resource in that form: uid, manager and key.
    """

    effect: EffectView
    run: RunSummary
    observable: bool
    made_at: str
    steps: tuple[StepView, ...]
    known: str
    request: Value | None = None
    output: Value | None = None
    words: tuple[Word, ...] = ()


class ResolvePayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's word on an ambiguous effect of the frame's run.

    `happened`: `output` becomes the node's output (of an effect that was made in mid-step: its own), `ref` is kept.
    `not_happened`: it is run again. `observe`: its `observe` function is asked again. `give_up`: it may have happened,
    and the attempt has failed. A run of which several are ambiguous goes on when each is settled.
    `effect_key`: the effect that was shown; where another one is ambiguous by now, the answer is `conflict`. Without
    it, the run's only ambiguous effect is meant.
    """

    verdict: Verdict
    effect_key: PathText | None = None
    output: msgspec.Raw = msgspec.field(default_factory=null)
    ref: Annotated[str, msgspec.Meta(max_length=REF_CHARS_MAX)] | None = None
    note: Words | None = None
