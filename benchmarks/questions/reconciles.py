"""How many resources a second are reconciled, how fairly do runs and reconciles share the runners, and what do idle
resources cost?

A manager that finds everything as it should be: what is measured is what pwf does around it. The base is a run of one
step in the same daemon: both have a process of their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from benchmarks.bench import Bench
from benchmarks.cache import cache_folder, filled_database, put
from benchmarks.daemon import Daemon
from benchmarks.fill import clone_id, clone_resources
from benchmarks.load import Client, Requests, drive, start_payload, start_runs
from benchmarks.rows import Row, Stat
from benchmarks.workflows import IDLE_MANAGER, ONE
from pwf.client.origin import origin
from pwf.protocol.resources import ApplyPayload, ResourceRef

QUESTION = "reconciles"
MANAGER = "idle"
CLIENTS = 8
RUNNERS = 4
IDLE = (1_000, 100_000)
IDLE_QUICK = (1_000, 10_000)
WITHIN = 1.2  # times what it costs beside the fewest
SHARE = 40.0  # percent of admissions that neither side falls below
POLL_S = 0.002
PATIENCE_S = 120.0
_LEFT = "SELECT count(*) FROM reconcile_queue"
_BEGUN = "SELECT total(reconciles), (SELECT count(*) FROM attempts) FROM resources"
_WAIT_FOR = "SELECT (SELECT count(*) FROM reconcile_queue), (SELECT count(*) FROM run_queue)"


def measure(bench: Bench) -> Iterator[Row]:
    """Reconciles alone, then beside runs, then none at all."""
    yield from _rates(bench, bench.pick(400, 120))
    yield from _idle(bench)


# --- work -----------------------------------------------------------------------------------------------------


def _rates(bench: Bench, count: int) -> Iterator[Row]:
    keys = [f"r{i}" for i in range(count)]
    with bench.folder() as folder, Daemon(folder, max_runners=RUNNERS) as daemon:
        project = _project(folder / "project")
        run = start_payload(daemon, daemon.workflow(ONE))
        drive(daemon, [_applying(daemon, project, keys[i::CLIENTS]) for i in range(CLIENTS)])
        with daemon.reading() as store:
            _settled(store)

            def reconciles() -> float:
                begin = time.perf_counter()
                drive(daemon, [_waking(project, keys[i::CLIENTS]) for i in range(CLIENTS)])
                _settled(store)
                return count / (time.perf_counter() - begin)

            def runs() -> float:
                begin = time.perf_counter()
                start_runs(daemon, run, count, clients=CLIENTS)
                return count / (time.perf_counter() - begin)

            rate, base = bench.in_turn(reconciles, runs)
            yield Row(
                question=QUESTION,
                what=f"reconciles, {RUNNERS} runners",
                value=rate,
                unit="reconciles/s",
                base="runs of one step",
                base_value=base,
                base_unit="runs/s",
                note=f"of {count} resources that are woken at once, each in a process of its own",
            )
            shares = bench.sample(lambda: _smaller_share(daemon, store, project, keys, run))
    yield Row(
        question=QUESTION,
        what="the smaller share, both queues full",
        value=shares,
        unit="% of admissions",
        target=SHARE,
        note=f"{count} runs and {count} reconciles wait at once for {RUNNERS} runners",
    )


def _project(folder: Path) -> Path:
    """A project with the manager's file."""
    file = folder / ".pwf" / "resources" / f"{MANAGER}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(IDLE_MANAGER, encoding="utf-8")
    return folder


def _applying(daemon: Daemon, project: Path, keys: list[str]) -> Client:
    requests, from_here = Requests(), origin(daemon.at, cwd=project)
    for key in keys:
        payload = ApplyPayload(manager=MANAGER, key=key, spec=msgspec.Raw(b"{}"), origin=from_here)
        yield requests.make("resource.apply", msgspec.Raw(msgspec.json.encode(payload)), changes=True)


def _waking(project: Path, keys: list[str]) -> Client:
    requests = Requests()
    for key in keys:
        payload = ResourceRef(manager=MANAGER, key=key, cwd=str(project))
        yield requests.make("resource.reconcile", msgspec.Raw(msgspec.json.encode(payload)), changes=True)


def _smaller_share(
    daemon: Daemon, store: apsw.Connection, project: Path, keys: list[str], run: msgspec.Raw
) -> float:
    """Percent, from when all are accepted until one of the queues has fewer rows than there are runners."""
    starting = [_starting(run, len(keys) // CLIENTS) for _ in range(CLIENTS)]
    drive(daemon, [*starting, *(_waking(project, keys[i::CLIENTS]) for i in range(CLIENTS))])
    before = store.execute(_BEGUN).fetchone()
    after = before
    deadline = time.monotonic() + PATIENCE_S
    while min(store.execute(_WAIT_FOR).fetchone()) > RUNNERS:
        assert time.monotonic() < deadline, "the queues do not get shorter"
        after = store.execute(_BEGUN).fetchone()
        time.sleep(POLL_S)
    reconciles, runs = (now - then for now, then in zip(after, before, strict=True))
    while max(store.execute(_WAIT_FOR).fetchone()):
        time.sleep(POLL_S)
    assert reconciles + runs > 2 * RUNNERS, "all was done before it could be looked at"
    return float(100 * min(reconciles, runs) / (reconciles + runs))


def _starting(run: msgspec.Raw, count: int) -> Client:
    requests = Requests()
    for _ in range(count):
        yield requests.make("run.start", run, changes=True)


def _settled(store: apsw.Connection) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while store.execute(_LEFT).fetchone()[0]:
        assert time.monotonic() < deadline, "the resources do not settle"
        time.sleep(POLL_S)


# --- nothing to do ----------------------------------------------------------------------------------------------


def _idle(bench: Bench) -> Iterator[Row]:
    shares: dict[int, Stat] = {}
    woken: dict[int, Stat] = {}
    memory: dict[int, Stat] = {}
    sizes = (1, *(IDLE_QUICK if bench.quick else IDLE))
    for size in sizes:
        database = filled_database(f"idle-{size}", lambda path, size=size: _make_idle(path, size))
        found = [_looked_at(bench, database, size) for _ in range(bench.times)]
        memory[size], shares[size], woken[size] = (Stat.of(list(one)) for one in zip(*found, strict=True))
    for size in sizes[1:]:
        yield Row(
            question=QUESTION,
            what=f"daemon, {size:,} idle resources",
            value=memory[size],
            unit="MiB",
            better="less",
            base="one resource",
            base_value=memory[1],
            note="resident",
        )
        yield Row(
            question=QUESTION,
            what=f"idle daemon, {size:,} idle resources",
            value=shares[size],
            unit="% of a core",
            better="less",
            target=0.1,
        )
        yield Row(
            question=QUESTION,
            what=f"one reconcile, beside {size:,} idle resources",
            value=woken[size],
            unit="ms",
            better="less",
            base="alone",
            base_value=woken[1],
            note="from the command until it has settled",
        )


def _make_idle(path: Path, more: int) -> None:
    with Bench().folder() as folder:
        with Daemon(folder) as daemon:
            drive(daemon, [_applying(daemon, _idle_project(), ["model"])])
            with daemon.reading() as store:
                _settled(store)
                (uid,) = store.execute("SELECT uid FROM resources").fetchone()
        put(daemon.database, folder / "copy").rename(path)
    clone_resources(path, uid, more)


def _idle_project() -> Path:
    """Where the resources of filled databases belong; it outlives the measuring, as those do."""
    return _project(cache_folder() / "idle-project")


def _looked_at(bench: Bench, database: Path, size: int) -> tuple[float, float, float]:
    """Resident MiB, percent of a core while nothing is due, and milliseconds of one reconcile."""
    with bench.folder() as folder:
        daemon = Daemon(folder)
        put(database, daemon.home)
        with daemon:
            share = daemon.processor_percent(bench.pick(3, 1))
            resident = daemon.resident_mib()
            return resident, share, _one_ms(daemon, clone_id(size // 2 + 1))


def _one_ms(daemon: Daemon, key: str) -> float:
    with daemon.reading() as store:
        for _ in range(2):  # the first loads the manager
            begin = time.perf_counter()
            drive(daemon, [_waking(_idle_project(), [key])])
            _settled(store)
    return (time.perf_counter() - begin) * 1_000
