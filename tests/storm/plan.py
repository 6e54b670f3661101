"""What a seed decides: which runs are started, what happens to them, and which kills fall when.

Real processes are not deterministic; the plan is. The same seed plans the same storm.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.storm.workflows import WEIGHTS

#: Who is killed, and how often among all kills.
VICTIMS = {"runner": 14, "daemon": 1, "template": 2, "zygote": 1, "client": 4}
FATES = {"left": 20, "cancel": 2, "pause": 2}
BY = {"library": 6, "command": 1}


@dataclass(frozen=True)
class PlannedRun:
    """`fate`: whether somebody cancels or pauses it meanwhile. `by`: the client library, or a `pwf` command."""

    run_id: str
    workflow: str
    number: int
    fate: str
    by: str


@dataclass(frozen=True)
class PlannedKill:
    """`after_s`: the pause before it; `pick`: which of the victims there are, as a part of their number."""

    victim: str
    after_s: float
    pick: float


def runs(seed: int) -> Iterator[PlannedRun]:
    """Without end."""
    draw = random.Random(f"{seed}:runs")
    number = 0
    while True:
        number += 1
        workflow = _one_of(draw, WEIGHTS)
        yield PlannedRun(
            run_id=f"storm-{seed}-{number}",
            workflow=workflow,
            number=number,
            fate=_one_of(draw, FATES),
            by=_one_of(draw, BY),
        )


def kills(seed: int, pause_s: float) -> Iterator[PlannedKill]:
    """Without end; one every `pause_s` on average."""
    draw = random.Random(f"{seed}:kills")
    while True:
        yield PlannedKill(
            victim=_one_of(draw, VICTIMS), after_s=draw.expovariate(1 / pause_s), pick=draw.random()
        )


def _one_of(draw: random.Random, weights: dict[str, int]) -> str:
    return draw.choices(list(weights), list(weights.values()))[0]
