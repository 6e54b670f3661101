"""How many steps with an effect a second, in runs of ten actions or ten shell steps, by runners?

Each needs a commit before it may begin, and its result is on disk before the next begins. An action appends a byte to
a file; a shell step executes `true`. Each run has a process of its own; `kept` measures the same in those that stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.questions.durable_steps import COMPARED, NODES, RUNNERS, rate_row, rates_of
from benchmarks.rows import Row
from benchmarks.workflows import chain

QUESTION = "effect_steps"
KINDS = {"action": "ten actions", "shell": "ten shell steps"}


def measure(bench: Bench) -> Iterator[Row]:
    """By kind, then by runners."""
    for kind in KINDS:
        for runners in RUNNERS:
            yield of_kind(bench, QUESTION, kind, runners)


def of_kind(
    bench: Bench, question: str, kind: str, runners: int, *, kept: bool = False, target: float | None = None
) -> Row:
    """The rate of one kind of step."""
    rates, base = rates_of(bench, chain(NODES, kind=kind, kept=kept), NODES, runners, (runners + 1,))
    name = KINDS[kind]
    return rate_row(
        rates[0],
        base,
        question=question,
        what=f"{name}, {runners} runners",
        target=target,
        subject=f"{name}, best rate" if runners == COMPARED else "",
        series=name,
        x=runners,
    )
