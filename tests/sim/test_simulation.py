"""A sample of the simulation with fresh seeds each time, and tests of the simulation itself."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time

import apsw
import pytest
import trio
from trio.testing import MockClock

import pwf.store.runner_end
from pwf.errors import Rejected
from pwf.store.batch import Job
from tests.sim import branches
from tests.sim.__main__ import main as simulation
from tests.sim.branches import BRANCHES
from tests.sim.campaign import Wanted, campaign
from tests.sim.determinism import HASH_SEED, pinned_scheduler
from tests.sim.disk import Disk
from tests.sim.machine import Machine
from tests.sim.mix import draw_mix
from tests.sim.world import Result, run_seed
from tests.store.support import make_spec, put, put_then_raise

SAMPLE_S = 4
LONG_SAMPLE_S = 90
SEEDS_TO_CATCH = 120


def simulate(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.sim", *map(str, arguments)]
    environment = os.environ | {"PYTHONHASHSEED": HASH_SEED}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=110)


@pytest.mark.parametrize("seconds", [SAMPLE_S, pytest.param(LONG_SAMPLE_S, marks=pytest.mark.rest)])
def test_fresh_seeds_break_no_rule(seconds):
    first = time.time_ns() // 1_000_000 % 1_000_000_000
    done = simulate("--campaign", 5_000, "--from", first, "--seconds", seconds, "--jobs", 1)
    print(done.stdout)  # each failing seed, with the command that replays it
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_campaign_prints_each_failing_seed_with_the_command_that_replays_it(monkeypatch, capsys):
    def run(seed):
        broken = "two owners at once" if seed in (8, 11) else None
        return Result(seed=seed, mix=draw_mix(random.Random(seed)), violation=broken)

    monkeypatch.setenv("PYTHONHASHSEED", HASH_SEED)
    monkeypatch.setattr("tests.sim.campaign.run_seed", run)
    monkeypatch.setattr("tests.sim.__main__.with_fixed_hash_seed", lambda arguments: None)
    assert simulation(["--campaign", "10", "--from", "5"]) == 1
    said = capsys.readouterr().out
    assert re.findall(
        r"FAILED seed (\d+): two owners at once\n  replay: python -m tests.sim (\d+)\n", said
    ) == [
        ("8", "8"),
        ("11", "11"),
    ]
    assert "10 seeds from 5, 2 failed" in said


def test_a_campaign_that_misses_a_marked_branch_fails_and_names_it(monkeypatch, capsys):
    def run(seed):
        result = Result(seed=seed, mix=draw_mix(random.Random(seed)))
        result.reached.branches.update(branch.name for branch in BRANCHES[1:])
        return result

    monkeypatch.setattr("tests.sim.campaign.run_seed", run)
    monkeypatch.setattr("tests.sim.__main__.with_fixed_hash_seed", lambda arguments: None)
    assert simulation(["--campaign", "2"]) == 0
    assert simulation(["--campaign", "2", "--every-branch"]) == 1
    said = capsys.readouterr().out
    assert f"NEVER REACHED: {BRANCHES[0].name}\n" in said
    assert f"           2  {BRANCHES[1].name}\n" in said


def test_an_interrupted_campaign_reports_what_was_done_until_then(monkeypatch, capsys):
    def run(seed):
        if seed == 7:
            raise KeyboardInterrupt
        return Result(seed=seed, mix=draw_mix(random.Random(seed)))

    monkeypatch.setattr("tests.sim.campaign.run_seed", run)
    assert campaign(Wanted(first=1, count=100, jobs=2)) == 130
    assert "6 seeds from 1, 0 failed" in capsys.readouterr().out


def test_every_mark_has_its_place_in_the_product():
    assert branches.install() == []
    assert len({branch.name for branch in BRANCHES}) == len(BRANCHES)


def test_a_mark_counts_where_it_stands_and_changes_nothing_else(tmp_path):
    branches.install()
    branches.reached.clear()
    writer = make_spec(tmp_path).writer()
    refused = Job(put_then_raise, ("b", Rejected("no")))
    answers = writer.run([Job(put, "a"), refused, Job(put, "c")]).answers
    writer.close()
    assert [type(answer.error) for answer in answers] == [type(None), Rejected, type(None)]
    assert branches.reached == {"a batch is undone and run again": 1}


@pytest.mark.parametrize("seed", [2, *(pytest.param(more, marks=pytest.mark.rest) for more in (7, 1003))])
def test_a_seed_replays_exactly_in_another_process(seed):
    one, two = (re.findall(r"trace (\w+)", simulate(seed, "--quiet").stdout) for _ in range(2))
    assert one == two
    assert len(one) == 1


def test_a_planted_bug_is_caught(monkeypatch):
    """A manual effect of unknown outcome that is simply run again."""

    def forget(tx, run, node, message, outcome):
        pwf.store.runner_end.moves.end_attempt(tx, run, "interrupted", attempt=run.attempts)
        pwf.store.runner_end.moves.note(tx, run, "runner_gone", "daemon", {})
        return True

    monkeypatch.setattr(pwf.store.runner_end, "leave_unknown", forget)
    caught = next((seed for seed in range(SEEDS_TO_CATCH) if run_seed(seed).violation), None)
    assert caught is not None


# --- what a seed fixes ------------------------------------------------------------------------------------


def order_of_tasks(seed):
    order = []

    async def note(number):
        await trio.sleep(1)
        order.append(number)

    async def main():
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(note, number)

    with pinned_scheduler(seed):
        trio.run(main, clock=MockClock(autojump_threshold=0))
    return order


def test_the_seed_decides_in_which_order_trio_runs_tasks():
    orders = [order_of_tasks(seed) for seed in (1, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3


def test_the_scheduler_is_left_as_it_was():
    allowed, state = trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING, trio._core._run._r.getstate()
    order_of_tasks(5)
    assert allowed == trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING
    assert trio._core._run._r.getstate() == state


# --- the ground -------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path, random.Random(3))


def open_database(disk, mount):
    connection = apsw.Connection(str(disk.folder / "pwf.db"), vfs=mount.mount_name)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    return connection


def rows(disk):
    return open_database(disk, disk.mount()).execute("SELECT n FROM t ORDER BY n").fetchall()


@pytest.mark.parametrize("chance", range(20))
def test_a_power_loss_keeps_what_was_synced_and_never_half_a_transaction(disk, chance):
    disk._chance = random.Random(chance)
    mount = disk.mount()
    connection = open_database(disk, mount)
    connection.execute("CREATE TABLE t(n)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.pragma("synchronous", "OFF")
    connection.execute("BEGIN; INSERT INTO t VALUES (2); INSERT INTO t VALUES (3); COMMIT")
    mount.dead = True
    connection.close()
    disk.lose_power()
    assert rows(disk) in ([(1,)], [(1,), (2,), (3,)])


def test_a_dead_process_leaves_what_it_wrote_and_writes_no_more(disk):
    mount = disk.mount()
    connection = open_database(disk, mount)
    connection.execute("CREATE TABLE t(n); INSERT INTO t VALUES (1)")
    connection.execute("BEGIN; INSERT INTO t VALUES (2)")
    mount.dead = True
    connection.close()
    assert rows(disk) == [(1,)]


def test_each_clock_goes_its_own_way():
    machine = Machine()

    async def main():
        start = machine.now()
        machine.step_wall(-1_000)
        machine.sleep(500)
        await trio.sleep(1)
        seen = machine.now()
        assert seen.wall_ms - start.wall_ms == 500
        assert seen.elapsed_ms - start.elapsed_ms == 1_500
        assert seen.awake_ms - start.awake_ms == 1_000
        machine.reboot(60_000)
        assert machine.now().boot_id != start.boot_id
        assert machine.now().elapsed_ms < start.elapsed_ms

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_stopped_process_goes_on_only_when_continued_and_a_kill_ends_it_anywhere():
    machine = Machine()

    async def main():
        process = machine.add_process("home:run:1")
        done = []

        async def work():
            with process.scope:
                await process.breathe(1)
                done.append(trio.current_time())
                await process.breathe(100)
                done.append("never")

        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            process.stop()
            await trio.sleep(5)
            assert not done
            process.cont()
            await trio.sleep(1)
            process.kill()
        assert done == [start + 5]

    trio.run(main, clock=MockClock(autojump_threshold=0))
