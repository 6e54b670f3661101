"""Real processes that are stopped longer than their leases, and clocks that are set under them (T1, T2, T3)."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.home import Home, ended, gone, wait_for
from tests.e2e.stepped_daemon import SteppedClock
from tests.e2e.world import PATIENCE_S, World, kill, lines

LEASE_S = 2
CONFIG = f"lease_s = {LEASE_S}\nlease_renew_s = 0.5\n"
DAY_MS = 24 * 3_600_000
NIGHT_MS = 8 * 3_600_000
LATE_MS_MAX = 1_000
LOG_LINES_MAX = 5

# Notes each process that does the effect; the first one then waits for a file.
GATE = """
import os, time
from pathlib import Path

flow = Workflow("{mode}")

@flow.action(effect={mode}("gate"), timeout=minutes(5))
def gate(ctx):
    folder = Path(ctx.input)
    with open(folder / "pids", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    while ctx.attempt == 1 and not (folder / "open").exists():
        time.sleep(0.005)
    return ctx.attempt

@flow.compute
def after(ctx):
    return ctx[gate]

flow.graph(gate >> after)
"""

TIMER = """
flow = Workflow("timer")

@flow.wait
def pause(ctx):
    return seconds(ctx.input)

@flow.compute
def after(ctx):
    return "rang"

flow.graph(pause >> after)
"""

ONE = """
flow = Workflow("one")

@flow.compute
def add(ctx):
    return 2
"""


@pytest.fixture
def short(home: Home) -> Home:
    """A home with short leases, and the workflows of this file."""
    home.config(CONFIG)
    texts = {mode: GATE.format(mode=mode) for mode in ("manual", "idempotent")} | {"timer": TIMER, "one": ONE}
    for name, text in texts.items():
        home.workflow(name, text)
    return home


class Gate:
    """A run whose first step waits."""

    def __init__(self, world: World, mode: str = "manual", name: str = "gate") -> None:
        self.world, self.folder = world, world.folder(f"{name}-{mode}")
        self.run_id = world.start(mode, str(self.folder))
        self.runner = psutil.Process(int(wait_for(lambda: lines(self.folder / "pids"), PATIENCE_S)[0]))

    def open(self) -> None:
        (self.folder / "open").touch()

    def done(self) -> int:
        """How often its effect was done."""
        return len(lines(self.folder / "pids"))

    def went_through(self) -> None:
        """As if nothing had happened: one attempt of each step, by one runner."""
        self.open()
        assert self.world.output(self.run_id) == 1
        assert self.world.steps(self.run_id) == [("gate", "completed"), ("after", "completed")]
        assert self.done() == 1
        assert [event.kind for event in self.world.events(self.run_id)].count("runner_gone") == 0


@pytest.fixture
def world(short: Home) -> Iterator[World]:
    """A client of this process, which makes no second connection."""
    found = World(short)
    yield found
    found.hang_up()


def leases(world: World) -> int:
    """What is left of the daemon's lease in ms."""
    return int(world.client.call("daemon.status").lease_left_ms)


# --- stopped for longer than a lease (T1) -------------------------------------------------------------------


@pytest.mark.rest
@pytest.mark.parametrize("stopped", ["the daemon", "the runner", "both"])
def test_who_was_stopped_for_three_leases_goes_on_as_if_nothing_had_happened(
    short: Home, world: World, stopped: str
) -> None:
    daemon = short.daemon()
    gate = Gate(world)
    epoch = world.client.call("daemon.status").epoch
    waiting = short.spawn("wait", gate.run_id)
    time.sleep(0.3)  # the command has its connection
    before = len(short.log())
    victims = {"the daemon": [daemon.pid], "the runner": [gate.runner.pid]}.get(
        stopped, [daemon.pid, gate.runner.pid]
    )

    for pid in victims:
        kill(pid, signal.SIGSTOP)
    time.sleep(3 * LEASE_S + 0.2)
    gate.open()
    for pid in reversed(victims):  # the runner first: its word waits for a daemon whose lease has ended
        kill(pid, signal.SIGCONT)
        time.sleep(0.2)

    gate.went_through()  # on the connection from before: a client that is not stopped sees no reconnect at all
    _, errors = waiting.communicate(timeout=PATIENCE_S)
    assert (waiting.returncode, errors) == (0, b"")
    status = world.client.call("daemon.status")
    assert (status.pid, status.epoch) == (daemon.pid, epoch)
    assert status.lease_left_ms > 0
    assert len(short.log()) - before <= LOG_LINES_MAX, short.log()[before:]


def test_a_daemon_that_wakes_while_another_waits_for_its_lease_goes_on_and_the_other_leaves(
    short: Home, world: World
) -> None:
    first = short.daemon()
    gate = Gate(world)
    kill(first.pid, signal.SIGSTOP)
    second = short.spawn("daemon")
    try:
        time.sleep(0.8)
        assert second.poll() is None  # it waits: the lease has not ended
        kill(first.pid, signal.SIGCONT)
        _, errors = second.communicate(timeout=20)
    finally:
        kill(first.pid, signal.SIGCONT)
        kill(second.pid)

    assert second.returncode == 4
    assert str(first.pid).encode() in errors
    assert short.pid == first.pid
    gate.went_through()


# --- frozen, and another daemon is started (T3) --------------------------------------------------------------


@pytest.mark.rest
@pytest.mark.serial
def test_a_daemon_that_is_frozen_under_live_runs_is_succeeded_and_never_serves_again(
    short: Home, world: World
) -> None:
    first = short.daemon()
    awake, stopped = (
        [Gate(world, mode, name) for mode in ("manual", "idempotent")] for name in ("awake", "stopped")
    )
    for gate in stopped:
        kill(gate.runner.pid, signal.SIGSTOP)
    kill(first.pid, signal.SIGSTOP)
    frozen = time.monotonic()

    second = short.daemon()  # returns when it serves

    assert first.poll() == -signal.SIGKILL  # it was dead before
    assert (
        LEASE_S / 2 < time.monotonic() - frozen < LEASE_S + 4
    )  # the lease, a second, and what a start takes
    world.hang_up()
    for gate in (*awake, *stopped):  # what comes back after its lease finds that it is dead
        kill(gate.runner.pid, signal.SIGCONT)
        gone(gate.runner, PATIENCE_S)
    for manual, idempotent in (awake, stopped):
        world.parked(manual.run_id, "ambiguous")
        assert world.output(idempotent.run_id) == 2
        assert (manual.done(), idempotent.done()) == (1, 2)
        world.cancel(manual.run_id)
    assert short.record.pid == second.pid


# --- clocks that are set, and a machine that sleeps (T1, T2) --------------------------------------------------


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(tmp_path / "clocks")


def stepped_daemon(home: Home, clock: SteppedClock) -> subprocess.Popen[bytes]:
    return home.daemon(*clock.program)


def late_ms(world: World, timer: str) -> int:
    """By how much the timer of a run rang too late (too early: negative), by the daemon's wall clock."""
    pause = world.attempts(timer)[0]
    assert pause.ended_ms is not None
    assert pause.output is not None
    due = json.loads(world.client.read_value(timer, pause.output))["due_ms"]
    return int(pause.ended_ms - due)


@pytest.mark.parametrize("days", [pytest.param(-1, marks=pytest.mark.rest), 1])
def test_a_wall_clock_that_steps_a_day_and_is_corrected_takes_no_lease_repeats_nothing_and_delays_no_timer(
    short: Home, world: World, clock: SteppedClock, days: int
) -> None:
    daemon = stepped_daemon(short, clock)
    gate = Gate(world)
    timer = world.start("timer", 5)
    world.until(timer, "due_later")
    at_ms = clock.now_ms() + 5_000
    absolute = world.start("one", at_ms=at_ms)
    epoch = world.client.call("daemon.status").epoch

    clock.step(days * DAY_MS)
    time.sleep(1.5)
    assert leases(world) > 0
    assert world.why(timer) == "due_later"  # it is relative: what the wall clock says does not count
    if days < 0:
        assert world.why(absolute) == "due_later"
    else:
        world.finish(absolute)  # its time has come, as far as anybody knows
    clock.step(-days * DAY_MS)

    world.finish(timer)
    world.finish(absolute)
    assert -20 <= late_ms(world, timer) < LATE_MS_MAX
    started_ms = world.view(absolute).summary.started_ms
    assert started_ms is not None
    if days < 0:
        assert 0 <= started_ms - at_ms < LATE_MS_MAX
    assert world.steps(timer) == [("pause", "completed"), ("after", "completed")]
    assert world.steps(absolute) == [("add", "completed")]
    gate.went_through()
    status = world.client.call("daemon.status")
    assert (status.pid, status.epoch) == (daemon.pid, epoch)
    assert status.lease_left_ms > 0


def test_after_a_night_of_sleep_the_daemon_goes_on_and_what_became_due_rings_within_a_second(
    short: Home, world: World, clock: SteppedClock
) -> None:
    daemon = stepped_daemon(short, clock)
    gate = Gate(world)  # its step may take five minutes, of being awake
    timer = world.start("timer", NIGHT_MS // 1_000 - 60)
    world.until(timer, "due_later")
    absolute = world.start("one", at_ms=clock.now_ms() + NIGHT_MS - 60_000)
    epoch = world.client.call("daemon.status").epoch
    before = len(short.log())

    clock.sleep(NIGHT_MS)
    woken_ms = clock.now_ms()

    world.finish(timer)
    world.finish(absolute)
    rang_ms, started_ms = world.attempts(timer)[0].ended_ms, world.view(absolute).summary.started_ms
    assert rang_ms is not None
    assert started_ms is not None
    assert rang_ms - woken_ms < LATE_MS_MAX
    assert started_ms - woken_ms < LATE_MS_MAX
    gate.went_through()
    status = world.client.call("daemon.status")
    assert (status.pid, status.epoch) == (daemon.pid, epoch)
    assert len(short.log()) - before <= LOG_LINES_MAX, short.log()[before:]
    assert not ended(psutil.Process(daemon.pid))
