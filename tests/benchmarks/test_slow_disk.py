"""On a disk whose sync takes 5 ms the event loop waits for a few commits at first, and then for one a second."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.abc import Instrument

import benchmarks.slow_disk
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.slow_disk import SlowDisk
from benchmarks.workflows import ONE
from pwf.actors.base.store_actor import StoreActor
from pwf.actors.claim.server_claim import Claim, ServerClaim
from pwf.protocol.lock_record import LockRecord
from pwf.store.daemon import ClaimEpoch, claim
from pwf.store.executor import ThreadExecutor
from pwf.store.loop_share import APART_S_MIN, COMMITS_SEEN, HELD_S_MAX, LoopShare
from tests.actors.no_log import NoLog
from tests.actors.test_daemon_parts import Files, Lock
from tests.store.support import HandClock, make_spec, put

SYNC_S = 0.005
FIRST = int(HELD_S_MAX / SYNC_S) + 1  # commits, until it is found to be slow
WRITES = 60
CALLBACK_S_MAX = 0.010
RENEWALS = 10
RENEWALS_S_MAX = 20.0
WRITER = "pwf-store-writer"


class Waits(Instrument):
    """How long each step of a task has waited: wall time beside the thread's own processor time."""

    def __init__(self) -> None:
        self.disk = 0.0  # told by whoever sleeps in the loop's thread
        self.longest = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.disk = 0.0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.longest = max(self.longest, self.disk)


class Ground:
    """A store on a slow disk, whose clock the test sets forward."""

    def __init__(self, folder: Path) -> None:
        self.loop = threading.current_thread().name
        self.waits = Waits()
        self.disk = SlowDisk(0.0, name=f"slow-{folder.name}", sleep=self._sleep)
        self.forward_s = 0.0
        self.share = LoopShare(clock=lambda: self.forward_s, may_run=lambda job: True)
        spec = make_spec(folder, vfs=self.disk.name, synchronous="FULL")
        self.actor = StoreActor(ThreadExecutor(spec, self.share))
        self._number = 0

    def _sleep(self, seconds: float) -> None:
        """The disk takes its time; the share's clock sees that, and nothing of what the machine does meanwhile."""
        self.forward_s += seconds
        if threading.current_thread().name == self.loop:
            self.waits.disk += seconds
        time.sleep(seconds)

    async def write(self, count: int) -> int:
        """So many commands, one after the other; how many syncs the loop's thread has made for them."""
        before = self.disk.syncs[self.loop]
        for _ in range(count):
            self._number += 1
            await self.actor.handle.write(put, str(self._number))
        return self.disk.syncs[self.loop] - before


class RenewedLock(Lock):
    """Each renewal is written to the lock file."""

    def __init__(self) -> None:
        super().__init__()
        self.enough = trio.Event()

    def write(self, record: LockRecord) -> None:
        super().write(record)
        if len(self.records) == RENEWALS:
            self.enough.set()


@pytest.fixture
async def ground(tmp_path: Path, nursery: Any) -> Ground:
    ground = Ground(tmp_path)
    await nursery.start(ground.actor.run)
    trio.lowlevel.add_instrument(ground.waits)
    return ground


@pytest.mark.trio
async def test_a_disk_that_becomes_slow_holds_the_loop_for_a_few_commits_and_then_for_one_a_second(
    ground: Ground,
):
    await ground.write(COMMITS_SEEN)
    assert await ground.write(WRITES) == WRITES, "a fast disk's commits are the loop's"
    ground.disk.sync_s = SYNC_S
    assert await ground.write(WRITES) == FIRST
    ground.waits.longest = 0.0
    assert await ground.write(WRITES) == 0
    ground.forward_s += APART_S_MIN
    assert await ground.write(WRITES) == 1
    assert ground.waits.longest < CALLBACK_S_MAX


@pytest.mark.trio
async def test_a_disk_that_is_fast_again_is_the_loops_again(ground: Ground):
    await ground.write(COMMITS_SEEN)
    ground.disk.sync_s = SYNC_S
    await ground.write(2 * COMMITS_SEEN)
    ground.disk.sync_s = 0.0
    assert await ground.write(2 * COMMITS_SEEN) == 0, "not at once"
    ground.forward_s += APART_S_MIN
    await ground.write(1)
    assert await ground.write(WRITES) == WRITES


@pytest.mark.trio
async def test_a_disk_that_was_slow_from_the_start_holds_the_loop_for_one_commit_a_second(ground: Ground):
    ground.disk.sync_s = SYNC_S
    assert await ground.write(COMMITS_SEEN + WRITES) == 1
    ground.forward_s += APART_S_MIN
    assert await ground.write(COMMITS_SEEN + WRITES) == 1
    assert ground.waits.longest < CALLBACK_S_MAX
    assert ground.disk.syncs[WRITER] >= 2 * WRITES


@pytest.mark.trio
async def test_leases_are_renewed_on_a_slow_disk_however_much_is_written(ground: Ground, nursery: Any):
    store, lock, clock = ground.actor.handle, RenewedLock(), HandClock()
    ground.disk.sync_s = SYNC_S
    command = ClaimEpoch(token="t", lease_ms=30_000, pid=1, version="v")
    epoch = (await store.write(claim, command, before_claim=True)).epoch
    renewals = ServerClaim(
        store,
        lock,
        LockRecord(),
        Claim(token="t", epoch=epoch, home_id="h"),
        live_leases=list,
        files=Files(),
        clock=clock,
        lease_s=30,
        renew_s=0.05,
        log=NoLog(),
    )

    async def write_on(writer: int) -> None:
        for number in itertools.count():
            await store.write(put, f"{writer}-{number}")

    for writer in range(64):
        nursery.start_soon(write_on, writer)
    nursery.start_soon(renewals.run)
    with trio.fail_after(RENEWALS_S_MAX):
        await lock.enough.wait()
    nursery.cancel_scope.cancel()


@pytest.mark.rest
def test_a_daemon_serves_on_a_slow_disk(tmp_path: Path):
    program = ("-P", str(benchmarks.slow_disk.__file__), "20")
    with Daemon(tmp_path, program=program) as daemon:
        payload = start_payload(daemon, daemon.workflow(ONE))
        assert min(start_runs(daemon, payload, 3, clients=1)) > 0.020
