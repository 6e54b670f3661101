"""Progress: the one shape that updates of the kind `progress` have, and what is estimated of it.

Owns the shape and its bounds. Promises: a `Progress` that was decoded here is within them. Never draws or measures.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PROGRESS = "progress"  # the kind of such updates

Confidence = Literal["low", "medium", "high"]
AMOUNT_MAX = 2**53  # what a float, and every reader of JSON, still holds exactly
Amount = (
    Annotated[int, msgspec.Meta(ge=0, le=AMOUNT_MAX)] | Annotated[float, msgspec.Meta(ge=0, le=AMOUNT_MAX)]
)
Moment = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # wall clock, ms
WORDS_MAX = 200
UNIT_MAX = 40
Words = Annotated[str, msgspec.Meta(max_length=WORDS_MAX)]


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How far something is. `completed` of `total`, counted in `unit`; `total` unknown: None.

    `started_ms`, `at_ms`: when the work began and when this was measured, wall clock, where the source says so.
    """

    label: Words | None = None
    status: Words | None = None
    phase: Words | None = None
    completed: Amount | None = None
    total: Amount | None = None
    unit: Annotated[str, msgspec.Meta(max_length=UNIT_MAX)] | None = None
    started_ms: Moment | None = None
    at_ms: Moment | None = None


class Estimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rate and time left, of recent samples: their median, and the quartiles around it.

    Rates are per second. `left_ms` counts from `at_ms`, the newest sample's time; None where no total is known. It
    holds for `fresh_ms` after that: when no sample has come by then, nobody can say.
    """

    rate: float
    rate_low: float
    rate_high: float
    left_ms: int | None = None
    left_ms_low: int | None = None
    left_ms_high: int | None = None
    confidence: Confidence
    samples: int
    at_ms: int
    fresh_ms: int
