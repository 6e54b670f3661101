"""How much does group commit give? Fenced writes a second from 1, 8 and 64 concurrent actors.

Each write is what a step's is at least: the fence and an event. Baseline: the same store in the same run, with one
command per transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import trio

from benchmarks.harness import REPETITIONS, Row, Stat, scratch
from pwf import host
from pwf.actors import store_actor
from pwf.actors.store_actor import StoreActor, StoreHandle
from pwf.clock import SystemClock
from pwf.store.ballast import Ballast
from pwf.store.executor import StoreSpec, ThreadExecutor
from pwf.store.tx import Tx

SECONDS = 1.0


def run(quick: bool) -> Iterator[Row]:
    """A row for each number of actors."""
    times = 2 if quick else REPETITIONS
    for actors in (1, 8, 64):
        grouped, single = [], []
        for _ in range(times):  # taken in turn, so that both see the same machine
            single.append(_rate(actors, batch_max=1))
            grouped.append(_rate(actors, batch_max=256))
        yield Row(
            question="fenced writes a second, group commit",
            what=f"{actors} actors",
            value=Stat.of(grouped),
            unit="writes/s",
            baseline="one command per transaction",
            baseline_value=Stat.of(single),
            target="≥ 3 times" if actors == 64 else "",
        )


def _rate(actors: int, batch_max: int) -> float:
    kept = store_actor.BATCH_MAX
    store_actor.BATCH_MAX = batch_max
    try:
        with scratch() as folder:
            return trio.run(_measure, folder, actors)
    finally:
        store_actor.BATCH_MAX = kept


async def _measure(folder: Path, actors: int) -> float:
    clock = SystemClock(host.boot_id())
    spec = StoreSpec(path=folder / "pwf.db", clock=clock, ballast=Ballast(folder / "ballast"))
    async with trio.open_nursery() as nursery:
        store: StoreHandle = await nursery.start(StoreActor(ThreadExecutor(spec)).run)
        for actor in range(actors):
            await store.write(_create, f"bench:{actor}", before_claim=True)
        counts = [0] * actors
        until = trio.current_time() + SECONDS
        begin = time.perf_counter()
        async with trio.open_nursery() as writers:
            for actor in range(actors):
                writers.start_soon(_write, store, actor, until, counts)
        rate = sum(counts) / (time.perf_counter() - begin)
        nursery.cancel_scope.cancel()
    return rate


async def _write(store: StoreHandle, actor: int, until: float, counts: list[int]) -> None:
    while trio.current_time() < until:
        await store.write(_touch, f"bench:{actor}", before_claim=True)
        counts[actor] += 1


def _create(tx: Tx, entity_id: str) -> None:
    tx.create_entity(entity_id, "bench")


def _touch(tx: Tx, entity_id: str) -> None:
    revision = tx.fence(entity_id)
    tx.event(entity_id, revision, "touched", "bench", 0, b"{}")
