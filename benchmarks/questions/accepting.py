"""How many new runs a second does the daemon accept, from one client and from eight?

Accepted means: validated, on disk, and answered. "Due tomorrow": nothing else happens meanwhile. "Due now": four
runners execute the runs at the same time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.questions.limits import commits
from benchmarks.rows import Row, Stat
from benchmarks.workflows import ONE

QUESTION = "accepting"


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each number of clients and each kind of due time."""
    for later, clients in itertools.product((True, False), (1, 8)):
        if bench.quick and not later:
            continue
        due = "tomorrow" if later else "now"
        value, base = _rate(bench, clients, later=later)
        yield Row(
            question=QUESTION,
            what=f"{clients} clients, due {due}",
            value=value,
            unit="runs/s",
            base="SQLite, one-row commits",
            base_value=base,
            base_unit="commits/s",
            target=3_000 if later and clients == 8 else None,
            series=f"due {due}",
            x=clients,
            x_label="clients",
        )


def _rate(bench: Bench, clients: int, *, later: bool) -> list[Stat]:
    runs = bench.pick(2_000, 500) // (1 if clients > 1 else 4)
    with bench.folder() as folder, Daemon(folder) as daemon:
        payload = start_payload(daemon, daemon.workflow(ONE), later=later)

        def rate() -> float:
            begin = time.perf_counter()
            start_runs(daemon, payload, runs, clients=clients, wait=False)
            return runs / (time.perf_counter() - begin)

        return bench.in_turn(rate, partial(commits, folder, seconds=0.3))
