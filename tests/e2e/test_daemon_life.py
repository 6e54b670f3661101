"""How the daemon starts, stops, is killed, frozen and succeeded (O4, R4, T3, T4)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.home import Home, ended, gone, wait_for

STEP = """
import time
flow = Workflow("step")

@flow.action(effect=idempotent("sleep"))
def work(ctx):
    time.sleep({seconds})
    return "done"
"""

GATED = """
import time
from pathlib import Path
flow = Workflow("gated")

@flow.action(effect=idempotent("wait for the file"))
def work(ctx):
    while not Path("{gate}").exists():
        time.sleep(0.05)
"""

TIMER = """
flow = Workflow("timer")

@flow.wait
def pause(ctx):
    return seconds({seconds})

@flow.compute
def after(ctx):
    return "rang"

flow.graph(pause >> after)
"""

ONE = """
flow = Workflow("one")

@flow.compute
def add(ctx):
    return 1 + 1
"""


@pytest.fixture
def gate(home: Home) -> Path:
    """The file for which the step of `gated` waits."""
    path = home.project / "gate"
    home.workflow("gated", GATED.format(gate=path))
    return path


def draining(home: Home) -> None:
    """Wait until the daemon drains."""
    wait_for(lambda: any(line["event"] == "daemon.draining" for line in home.log()), 5)


def test_the_first_command_starts_the_daemon_and_stop_ends_it(home: Home) -> None:
    home.workflow("one", ONE)

    done = home.run("run", "one")

    assert "completed" in done.stdout
    daemon = psutil.Process(home.pid)
    home.run("stop")
    assert ended(daemon)
    assert home.record.pid == 0
    assert [line["event"] for line in home.log()][-1] == "daemon.stopped"


@pytest.mark.serial
def test_sigterm_to_an_idle_daemon_exits_0_within_two_seconds(home: Home) -> None:
    daemon = home.daemon()
    began = time.monotonic()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(5) == 0
    assert time.monotonic() - began < 2


@pytest.mark.rest
def test_sigterm_lets_the_running_step_reach_its_boundary(home: Home, gate: Path) -> None:
    daemon = home.daemon()
    run_id = home.start("gated")
    home.wait_step(run_id)

    daemon.send_signal(signal.SIGTERM)
    draining(home)
    gate.touch()

    assert daemon.wait(15) == 0
    assert home.status(run_id) == "completed"  # by the daemon that this command has started
    assert home.steps(run_id) == [("work", "completed")]


@pytest.mark.rest
def test_a_start_while_the_daemon_drains_waits_for_it_and_then_somebody_serves(
    home: Home, gate: Path
) -> None:
    """X3: its timers are not forgotten either."""
    home.workflow("timer", TIMER.format(seconds=1))
    daemon = home.daemon()
    timer = home.start("timer")
    home.wait_step(home.start("gated"))
    daemon.send_signal(signal.SIGTERM)
    draining(home)

    starting = home.spawn("start", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert f"the daemon (pid {daemon.pid}) is stopping" in starting.stderr.readline()
    gate.touch()
    said, _ = starting.communicate(timeout=20)

    assert daemon.wait(0.1) == 0
    assert said == f"started (pid {home.pid})\n"
    wait_for(lambda: home.status(timer) == "completed", 10)


@pytest.mark.rest
@pytest.mark.serial
def test_a_step_that_is_longer_than_the_drain_is_ended_and_runs_again_later(home: Home, gate: Path) -> None:
    home.config("drain_s = 0.5\n")
    daemon = home.daemon()
    run_id = home.start("gated")
    home.wait_step(run_id)

    began = time.monotonic()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(15) == 0
    assert time.monotonic() - began < 4

    gate.touch()
    home.wait_status(run_id, "completed")
    assert home.steps(run_id) == [("work", "interrupted"), ("work", "completed")]


@pytest.mark.serial
def test_a_second_sigterm_ends_at_once_and_nothing_is_lost(home: Home, gate: Path) -> None:
    daemon = home.daemon()
    run_id = home.start("gated")
    home.wait_step(run_id)

    daemon.send_signal(signal.SIGTERM)
    draining(home)
    began = time.monotonic()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(5) == 128 + signal.SIGTERM
    assert time.monotonic() - began < 1

    gate.touch()
    home.wait_status(run_id, "completed")


def test_while_it_drains_nothing_new_is_started(home: Home, gate: Path) -> None:
    home.config("drain_s = 60\n")
    home.workflow("one", ONE)
    daemon = home.daemon()
    home.wait_step(home.start("gated"))
    daemon.send_signal(signal.SIGTERM)
    draining(home)

    refused = home.run("run", "one", "--detach", code=5)

    assert "is stopping; what is left to do goes on after:  pwf start" in refused.stderr
    gate.touch()
    assert daemon.wait(15) == 0


def test_a_closed_terminal_does_not_stop_a_detached_daemon(home: Home) -> None:
    home.run("start")
    pid = home.pid
    os.kill(pid, signal.SIGHUP)
    time.sleep(0.3)
    home.run("status")
    assert home.pid == pid


@pytest.mark.serial
def test_a_killed_daemon_is_succeeded_at_once_and_its_run_goes_on(home: Home, gate: Path) -> None:
    run_id = home.start("gated")
    home.wait_status(run_id, "running")
    first = home.pid

    home.kill_daemon()
    began = time.monotonic()
    home.run("ls")

    assert time.monotonic() - began < 5  # far below the lease of 30 s
    assert home.pid != first
    gate.touch()
    home.wait_status(run_id, "completed")


@pytest.mark.rest
@pytest.mark.serial
def test_a_timer_that_ran_out_while_the_daemon_was_down_rings_once_within_five_seconds(home: Home) -> None:
    home.workflow("timer", TIMER.format(seconds=2))
    run_id = home.start("timer")
    due = time.monotonic() + 2.2
    home.wait_status(run_id, "queued")
    home.kill_daemon()
    time.sleep(max(0.0, due - time.monotonic()))

    began = time.monotonic()
    home.run("start")
    home.wait_status(run_id, "completed")

    assert time.monotonic() - began < 5
    assert home.steps(run_id) == [("pause", "completed"), ("after", "completed")]


@pytest.mark.rest
@pytest.mark.serial
def test_a_daemon_that_is_frozen_while_it_stops_is_killed_and_succeeded(home: Home, gate: Path) -> None:
    home.config("lease_s = 2\nlease_renew_s = 0.5\ndrain_s = 60\n")
    first = home.daemon()
    run_id = home.start("gated")
    home.wait_step(run_id)
    first.send_signal(signal.SIGTERM)
    draining(home)
    first.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()

    second = home.daemon()

    assert time.monotonic() - frozen < 5  # the lease, a second, and the time that a start takes
    assert first.wait(5) == -signal.SIGKILL
    assert home.record.pid == second.pid
    home.run("cancel", run_id)


@pytest.mark.rest
def test_a_command_that_follows_a_run_sees_a_killed_daemon_as_a_pause(home: Home, gate: Path) -> None:
    following = home.spawn("run", "gated")
    run_id = wait_for(lambda: [run["run_id"] for run in _runs(home)], 20)[0]
    home.wait_step(run_id)

    home.kill_daemon()
    wait_for(lambda: len(home.steps(run_id)) == 2, 20)
    gate.touch()

    output, error = following.communicate(timeout=40)
    assert following.returncode == 0, error
    assert b"completed" in output
    assert home.steps(run_id) == [("work", "interrupted"), ("work", "completed")]


@pytest.mark.rest
def test_a_command_that_follows_a_run_is_told_of_a_stop_and_does_not_start_the_daemon_again(
    home: Home,
) -> None:
    home.workflow("timer", TIMER.format(seconds=60))
    following = home.spawn("run", "timer")
    run_id = wait_for(lambda: [run["run_id"] for run in _runs(home)], 20)[0]
    home.wait_status(run_id, "queued")

    home.run("stop")

    _out, error = following.communicate(timeout=20)
    assert following.returncode == 5
    assert b"stopped" in error
    assert home.record.pid == 0
    home.run("cancel", run_id)


def _runs(home: Home) -> list[dict[str, str]]:
    return list(home.json("ls")["runs"])


def test_a_second_daemon_is_refused_and_names_the_first(home: Home) -> None:
    first = home.daemon()
    refused = home.run("daemon", code=4)
    assert str(first.pid) in refused.stderr
    assert first.poll() is None


@pytest.mark.rest
def test_a_removed_lock_file_and_a_second_daemon_do_not_fence_one_that_serves(home: Home) -> None:
    home.workflow("one", ONE)
    first = home.daemon()
    (home.home / "daemon.lock").unlink()

    refused = home.run("daemon", code=4)

    assert f"pid {first.pid} already serves this home" in refused.stderr
    home.run("run", "one")
    assert first.poll() is None
    assert home.json("status")["pid"] == first.pid


@pytest.mark.rest
def test_a_folder_at_the_sockets_path_ends_no_daemon_and_is_named_by_log_and_doctor(home: Home) -> None:
    daemon = home.daemon()
    path = Path(home.record.socket)
    path.unlink()
    path.mkdir()
    wait_for(lambda: any(line["event"] == "socket.in_the_way" for line in home.log()), 10)
    assert f"{path} is not a socket" in home.run("doctor", code=None).stdout
    path.rmdir()
    wait_for(path.is_socket, 10)
    home.run("status")
    assert home.pid == daemon.pid


def test_commands_that_start_the_daemon_at_once_end_with_one(home: Home) -> None:
    home.workflow("one", ONE)
    commands = [home.spawn("ls", "--json") for _ in range(4)]
    outputs = [command.communicate(timeout=60) for command in commands]
    assert [command.returncode for command in commands] == [0] * 4, outputs
    daemons = [line for line in home.log() if line["event"] == "daemon.claimed"]
    assert len(daemons) == 1


@pytest.mark.rest
def test_the_socket_is_made_again_when_it_vanishes(home: Home) -> None:
    home.config("lease_s = 4\nlease_renew_s = 1\n")
    daemon = home.daemon()
    path = home.record.socket
    os.unlink(path)
    wait_for(lambda: os.path.exists(path), 10)
    home.run("status")
    assert home.pid == daemon.pid


@pytest.mark.rest
def test_an_idle_daemon_uses_less_than_a_thousandth_of_a_core(home: Home) -> None:
    home.workflow("one", ONE)
    home.run("run", "one")  # a warm template is there as well
    daemon = psutil.Process(home.pid)
    time.sleep(3)
    before, began = _cpu_ns(daemon), time.monotonic()
    time.sleep(12)
    used = (_cpu_ns(daemon) - before) / 1e9 / (time.monotonic() - began)
    assert used < 0.001, f"{used:.4%} of a core"


def _cpu_ns(daemon: psutil.Process) -> int:
    total = 0
    for process in (daemon, *daemon.children(recursive=True)):
        folder = f"/proc/{process.pid}/task"
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
    return total


@pytest.mark.rest
def test_three_deaths_of_one_cause_make_the_next_start_degraded_and_a_stop_heals_it(home: Home) -> None:
    home.workflow("one", ONE)
    run_id = home.start("one", "--at", "+1h")
    home.kill_daemon()
    death = {"at_ms": 1, "cause": "KeyError in actors/runs/scheduler.py, run", "lived_ms": 5}
    (home.home / "deaths.json").write_text(json.dumps([death] * 3))

    home.run("start")

    status = home.json("status")
    assert status["state"] == "degraded"
    assert "3 times in a row" in " ".join(status["problems"])
    home.run("show", run_id)
    assert "only serves reads" in home.run("run", "one", "--detach", code=5).stderr
    home.run("cancel", run_id)
    home.run("stop")
    home.run("run", "one")
    assert home.json("status")["state"] == "serving"


def test_nobody_is_left_after_a_kill(home: Home, gate: Path) -> None:
    run_id = home.start("gated")
    home.wait_status(run_id, "running")
    daemon = psutil.Process(home.pid)
    below = daemon.children(recursive=True)
    assert below
    home.kill_daemon()
    for process in below:
        gone(process)
    home.run("cancel", run_id)
