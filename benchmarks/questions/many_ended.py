"""What do lists, single runs and new runs cost on a store with 1,000,000 ended runs?

The store is made of clones of two runs that a daemon really executed, one of them failed, and kept in the cache. The
base is the same call on a store with 1,000 ended runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.bench import Bench, percentile
from benchmarks.cache import filled_database, put
from benchmarks.daemon import Daemon
from benchmarks.fill import clone, clone_id
from benchmarks.rows import Row, Stat
from benchmarks.workflows import ONE
from pwf.client import SyncClient
from pwf.protocol.operations import RunListPayload

QUESTION = "many_ended"
FEW = 1_000
FAILED_SHARE = 10
MODEL, MODEL_FAILED = "modelmodel12", "modelfailed1"
FAILING = ONE.replace("return 1", 'raise ValueError("as it happens")')

Call = Callable[[SyncClient, random.Random, int, str], object]


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each call, on the large store beside the small one."""
    many = bench.pick(1_000_000, 100_000)
    small, large = _store(FEW), _store(many)
    found: dict[str, list[Stat]] = {}
    for database, runs in ((small, FEW), (large, many)):
        with bench.folder() as folder:
            daemon = Daemon(folder)
            put(database, daemon.home)
            with daemon, daemon.client() as client:
                for name, call in CALLS.items():
                    found.setdefault(name, []).append(_latency(bench, daemon, client, call, runs))
    for name, (base, value) in found.items():
        yield Row(
            question=QUESTION,
            what=f"{name}, {many:,} ended",
            value=value,
            unit="ms",
            better="less",
            base=f"with {FEW:,} ended",
            base_value=base,
        )


def _latency(bench: Bench, daemon: Daemon, client: SyncClient, call: Call, runs: int) -> Stat:
    chance = random.Random(runs)  # the same runs every time
    path = daemon.workflow(ONE)
    calls = bench.pick(20, 5)

    def median_ms() -> float:
        times = []
        for _ in range(calls):
            begin = time.perf_counter()
            call(client, chance, runs, path)
            times.append((time.perf_counter() - begin) * 1_000)
        return percentile(times, 0.5)

    return bench.sample(median_ms)


# --- calls ----------------------------------------------------------------------------------------------------


def _list(**query: object) -> Call:
    payload = RunListPayload(**query)  # type: ignore[arg-type]
    return lambda client, _chance, _runs, _path: client.call("run.list", payload)


def _deep_page(client: SyncClient, chance: random.Random, runs: int, _path: str) -> object:
    return client.call("run.list", RunListPayload(cursor=chance.randrange(200, runs)))


def _show(client: SyncClient, chance: random.Random, runs: int, _path: str) -> object:
    return client.call("run.view", run_id=clone_id(chance.randrange(1, runs)))


def _by_prefix(client: SyncClient, chance: random.Random, runs: int, _path: str) -> object:
    return client.call("run.status", run_id=clone_id(chance.randrange(1, runs))[:11])


def _start_and_wait(client: SyncClient, _chance: random.Random, _runs: int, path: str) -> object:
    return client.wait(client.start(path).run_id)


CALLS: dict[str, Call] = {
    "list, newest 100": _list(),
    "list, newest 100 failed": _list(statuses=("failed",)),
    "list, newest 100 of a workflow": _list(workflow="one"),
    "list, a page far back": _deep_page,
    "list, what runs": _list(statuses=("running", "queued")),
    "show one": _show,
    "status by prefix": _by_prefix,
    "status of the daemon": lambda client, *_: client.call("daemon.status"),
    "start to finish of one step": _start_and_wait,
}


# --- stores ---------------------------------------------------------------------------------------------------


def _store(runs: int) -> Path:
    def make(path: Path) -> None:
        with Bench().folder() as folder:
            with Daemon(folder) as daemon, daemon.client() as client:
                for run_id, text in ((MODEL, ONE), (MODEL_FAILED, FAILING)):
                    client.start(daemon.workflow(text), run_id=run_id)
                    client.wait(run_id)
            put(daemon.database, folder / "copy").rename(path)
        failed = runs // FAILED_SHARE
        clone(path, MODEL, runs - failed)
        clone(path, MODEL_FAILED, failed, first=runs - failed + 1)

    return filled_database(f"ended-{runs}", make)
