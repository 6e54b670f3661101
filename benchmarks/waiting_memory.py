"""How much memory does the daemon need with many waiting runs, and what does an idle daemon cost?

The runs are made with the store's own operations (start, admit, launch, ask), so that every row is as a real run's
would be, only without the processes. Baseline: the same daemon with an empty store.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from benchmarks.harness import Daemon, Row, Stat, scratch
from pwf import host
from pwf.clock import SystemClock
from pwf.ids import Ids
from pwf.protocol.graph import NodeSpec, WorkflowDefinition, WorkflowGraph
from pwf.protocol.runner import Ask, Value
from pwf.protocol.spawn import Identity
from pwf.store.daemon import Claim, Release, claim, release
from pwf.store.database import open_writer
from pwf.store.definitions import SaveDefinition, save_definition
from pwf.store.queue import Admit, admit
from pwf.store.runner_end import RunnerGone, runner_gone
from pwf.store.runners import Fence, RunnerStarted, runner_started
from pwf.store.runs import RunEnvironment, StartRun, start_run
from pwf.store.transitions import RunnerMessages, apply_messages
from pwf.store.tx import Tx

WAITING = 10_000
IDLE_S = 10.0


def run(quick: bool) -> Iterator[Row]:
    """Memory with many waiting runs; processor share of an idle daemon."""
    count = 1_000 if quick else WAITING
    idle_s = 3.0 if quick else IDLE_S
    with scratch() as folder:
        (folder / "empty").mkdir()
        with Daemon(folder / "empty") as daemon:
            _look(daemon)
            empty = daemon.rss_mib()
        (folder / "full").mkdir()
        with Daemon(folder / "full"):
            pass  # makes the home
        fill(folder / "full" / "home" / "pwf.db", count)
        with Daemon(folder / "full") as daemon:
            shown = _look(daemon)
            assert shown == count, f"{shown} runs wait, {count} were made"
            full = daemon.rss_mib()
            share = _idle_share(daemon, idle_s)
    yield Row(
        question="memory of the daemon",
        what=f"{count:,} waiting runs",
        value=Stat.of([full]),
        unit="MiB",
        baseline="empty store",
        baseline_value=Stat.of([empty]),
        target="< 120 MB",
    )
    yield Row(
        question="processor share of an idle daemon",
        what=f"{count:,} waiting runs, over {idle_s:g} s",
        value=Stat.of([share * 100]),
        unit="% of a core",
        target="< 0.1 %",
    )


def _look(daemon: Daemon) -> int:
    with daemon.client() as client:
        client.call("run.list")
        client.call("request.list")
        return int(client.call("daemon.status").runs.get("waiting", 0))


def _idle_share(daemon: Daemon, seconds: float) -> float:
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    time.sleep(1.0)
    begin, spent = time.perf_counter(), sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - spent) / (time.perf_counter() - begin)


def fill(database: Path, count: int) -> None:
    """Make waiting runs in a store that no daemon serves."""
    connection = open_writer(database)
    clock = SystemClock(host.boot_id())
    with connection:
        tx = Tx(connection, now=clock.now(), ids=Ids())
        token = tx.ids.token()
        claimed = claim(tx, Claim(token=token, lease_ms=30_000, pid=0, version="benchmark"))
        graph = WorkflowGraph(name="ask", start="ask", nodes=(NodeSpec(id="ask", kind="checkpoint"),))
        definition = WorkflowDefinition(definition_id="d" * 64, graph=graph, root="/tmp", sources=())
        save_definition(tx, SaveDefinition(definition=definition, path="/tmp/ask.py", texts={}))
        environment = RunEnvironment(root="/tmp", interpreter="/usr/bin/python3", python="3", pwf="0")
        for _ in range(count):
            _wait_one(tx, environment, claimed.epoch)
        release(tx, Release(token=token, epoch=claimed.epoch))
    connection.close()


def _wait_one(tx: Tx, environment: RunEnvironment, epoch: int) -> None:
    start = StartRun(workflow="ask", definition_id="d" * 64, environment=environment, input=b"null")
    start_run(tx, start).unwrap()
    (admission,) = admit(tx, Admit(limit=1, epoch=epoch, owner=f"daemon:{epoch}", lease_ms=30_000)).runs
    fence = Fence(run_id=admission.run_id, generation=admission.generation, token=admission.token)
    identity = Identity(pid=1, start_tick=0, boot_id=tx.now.boot_id, session=1)
    runner_started(tx, RunnerStarted(fence=fence, identity=identity))
    ask = Ask(seq=1, attempt=1, kind="checkpoint", prompt=Value(json=msgspec.Raw(b'"Go on?"')))
    apply_messages(tx, RunnerMessages(fence=fence, messages=(ask,)))
    runner_gone(tx, RunnerGone(run_id=fence.run_id, generation=fence.generation, proved=True))
