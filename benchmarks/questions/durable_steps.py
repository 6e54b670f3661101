"""How many durable steps a second, in runs of ten compute nodes that have a process each, by runners and by clients?

Every step's result is on disk before the run goes on to anything that could be seen outside. The base is what one
writer without group commit reaches: one-row commits of bare SQLite on the same disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.questions.limits import commits
from benchmarks.rows import Row, Stat
from benchmarks.workflows import chain

QUESTION = "durable_steps"
NODES = 10
RUNNERS = (1, 4, 16)
CLIENTS = (1, 8, 64)
COMPARED = 4  # runners whose rate stands beside the best of each peer


def measure(bench: Bench) -> Iterator[Row]:
    """By runners, with a client more than runners; then by clients, at 16 runners."""
    text = chain(NODES)
    for runners in RUNNERS:
        rates, base = rates_of(bench, text, NODES, runners, (runners + 1,))
        yield _row(rates[0], base, f"{runners} runners", "by runners", runners)
    if not bench.quick:
        rates, base = rates_of(bench, text, NODES, max(RUNNERS), CLIENTS)
        for clients, rate in zip(CLIENTS, rates, strict=True):
            yield _row(rate, base, f"{clients} clients, 16 runners", "by clients", clients)


def _row(rate: Stat, base: Stat, what: str, series: str, x: float) -> Row:
    subject = "ten steps, best rate" if what == f"{COMPARED} runners" else ""
    x_label = series.removeprefix("by ")
    return rate_row(
        rate, base, question=QUESTION, what=what, subject=subject, series=series, x=x, x_label=x_label
    )


def rate_row(rate: Stat, base: Stat, **facts: Any) -> Row:
    """A row of steps a second beside what one writer reaches. `facts` are the row's; `x` counts runners unless told."""
    facts = {"x_label": "runners", **facts}
    return Row(
        value=rate,
        unit="steps/s",
        base="SQLite, one-row commits",
        base_value=base,
        base_unit="commits/s",
        **facts,
    )


def rates_of(
    bench: Bench, text: str, nodes: int, runners: int, clients: tuple[int, ...]
) -> tuple[list[Stat], Stat]:
    """Steps a second of a workflow for each number of clients, and the base, measured in turn."""
    with bench.folder() as folder, Daemon(folder, max_runners=runners) as daemon:
        payload = start_payload(daemon, daemon.workflow(text))
        runs = bench.pick(60, 30) * min(runners, 4)

        def rate(lanes: int) -> float:
            begin = time.perf_counter()
            start_runs(daemon, payload, runs, clients=lanes)
            return runs * nodes / (time.perf_counter() - begin)

        seconds = 0.2 if bench.quick else 0.5
        measures = [partial(rate, lanes) for lanes in clients]
        *rates, base = bench.in_turn(*measures, partial(commits, folder, seconds=seconds))
    return rates, base
