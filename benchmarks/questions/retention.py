"""How fast do 100,000 expired runs go, and how long does a new run take to start and finish meanwhile?

The store is made of clones of a run that a daemon really executed and that ended forty days ago. A client prunes, which
removes one tree per transaction, as the daemon does by itself when it is idle; another starts runs all the while. The
base is the same start to finish on the same daemon before the prune.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.bench import Bench, percentile
from benchmarks.cache import filled_database, put
from benchmarks.daemon import Daemon
from benchmarks.fill import clone
from benchmarks.rows import Row, Stat
from benchmarks.workflows import ONE
from pwf.protocol.operations import PrunePayload, PruneResult

QUESTION = "retention"
MODEL = "modelmodel12"
DAY_MS = 24 * 3_600_000
PRUNE_S_MAX = 1_800.0
STARTS_MIN = 20
PAUSE_S = 0.05  # between two starts: they are to be seen one by one


def measure(bench: Bench) -> Iterator[Row]:
    """Two rows: trees a second, and the slowest of the starts meanwhile."""
    runs = bench.pick(100_000, 10_000)
    store = _store(runs)
    with bench.folder() as folder:
        daemon = Daemon(folder, settings="retention_days = 0\n")
        put(store, daemon.home)
        with daemon:
            path = daemon.workflow(ONE)
            before = _starts(daemon, path, lambda count: count >= STARTS_MIN)
            prune = _Prune(daemon)
            prune.start()
            meanwhile = _starts(daemon, path, lambda count: count >= STARTS_MIN and not prune.is_alive())
            prune.join()
    assert prune.result is not None, "the prune has failed"
    assert prune.result.runs == runs, f"{prune.result.runs} of {runs} runs were removed"
    yield Row(
        question=QUESTION,
        what=f"trees removed, of {runs:,}, while runs start",
        value=Stat.of([prune.result.trees / prune.seconds]),
        unit="trees/s",
    )
    yield Row(
        question=QUESTION,
        what="slowest start to finish of one step while trees are removed",
        value=Stat.of([max(meanwhile) * 1_000]),
        unit="ms",
        better="less",
        base="slowest without",
        base_value=Stat.of([max(before) * 1_000]),
        target=1_000,
        note=f"median {percentile(meanwhile, 0.5) * 1_000:.0f} ms of {len(meanwhile)}",
    )


class _Prune(threading.Thread):
    """Prunes by a connection of its own."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self._daemon = daemon
        self.result: PruneResult | None = None
        self.seconds = 0.0

    def run(self) -> None:
        begin = time.perf_counter()
        payload = PrunePayload(before_ms=int(time.time() * 1_000) - 30 * DAY_MS)
        with self._daemon.client() as client:
            self.result = client.call("state.prune", payload, timeout_s=PRUNE_S_MAX)
        self.seconds = time.perf_counter() - begin


def _starts(daemon: Daemon, path: str, enough: Callable[[int], bool]) -> list[float]:
    """Seconds from the start to the end of runs, one after another, until there are enough."""
    found: list[float] = []
    with daemon.client() as client:
        client.wait(client.start(path).run_id)  # what is loaded once does not count
        while not enough(len(found)):
            begin = time.perf_counter()
            client.wait(client.start(path).run_id)
            found.append(time.perf_counter() - begin)
            time.sleep(PAUSE_S)
    return found


def _store(runs: int) -> Path:
    def make(path: Path) -> None:
        with Bench().folder() as folder:
            with Daemon(folder) as daemon, daemon.client() as client:
                client.start(daemon.workflow(ONE), run_id=MODEL)
                client.wait(MODEL)
            put(daemon.database, folder / "copy").rename(path)
        old = {
            name: f"m.{name} - {40 * DAY_MS}"
            for name in ("created_wall_ms", "started_wall_ms", "ended_wall_ms")
        }
        clone(path, MODEL, runs, {"runs": old})

    return filled_database(f"expired-{runs}", make)
