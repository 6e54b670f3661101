"""Many clients at once, a foreign lock on the database, and homes that must be refused (S1, S6)."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.e2e.home import Home, wait_for

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

ONE = """
flow = Workflow("one")

@flow.compute
def add(ctx):
    return 1 + 1
"""

CHILD = """
import time
flow = Workflow("child")

@flow.action(effect=idempotent("note"))
def note(ctx):
    with open({ran!r}, "w") as file:
        file.write(str(time.time()))
"""

ASK = """
flow = Workflow("ask")

@flow.checkpoint
def gate(ctx):
    return "Go on?"

@flow.compute
def after(ctx):
    return ctx[gate]

flow.graph(gate >> after)
"""

CLIENT = """
import sys
from pwf.client.origin import origin
from pwf.client.sync import SyncClient
from pwf.places import places
from pwf.protocol.operations import *

done = 0
with SyncClient(autostart=False) as client:
    here = origin(places(), cwd=sys.argv[1])
    while done < 200:
        run = client.call("run.start", StartPayload(workflow="one", origin=here, at_ms=4_000_000_000_000))
        client.call("run.status", run_id=run.run_id)
        client.call("run.pause", run_id=run.run_id)
        client.call("run.resume", run_id=run.run_id)
        client.call("run.list", RunListPayload(limit=5))
        client.call("run.cancel", run_id=run.run_id)
        client.call("run.view", run_id=run.run_id)
        client.call("daemon.status")
        done += 8
print(done)
"""


def test_eight_clients_with_two_hundred_commands_each_never_see_an_error(home: Home) -> None:
    home.workflow("one", ONE)
    home.run("start")
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(home.project)],
            env=home.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(8)
    ]
    outputs = [client.communicate(timeout=110) for client in clients]

    assert [out.strip() for out, _ in outputs] == [b"200"] * 8, [err.decode()[-800:] for _, err in outputs]
    assert home.json("status")["runs"] == {"cancelled": 200}


@pytest.mark.serial
def test_a_foreign_lock_of_three_seconds_is_waited_for_warned_about_once_and_loses_nothing(
    home: Home,
) -> None:
    ran = home.project / "ran"
    home.workflow("one", ONE)
    home.workflow("child", CHILD.format(ran=str(ran)))
    home.run("start")
    home.run("run", "one")
    foreign = sqlite3.connect(home.home / "pwf.db", isolation_level=None, check_same_thread=False)
    foreign.execute("BEGIN IMMEDIATE")
    released: list[float] = []

    def release() -> None:
        released.append(time.time())
        foreign.execute("ROLLBACK")

    threading.Timer(3.0, release).start()

    began = time.monotonic()
    commands = [home.spawn("run", "one") for _ in range(3)] + [home.spawn("run", "child")]
    outputs = [command.communicate(timeout=60) for command in commands]
    waited = time.monotonic() - began
    foreign.close()

    assert [command.returncode for command in commands] == [0] * 4, outputs
    assert waited > 2
    assert float(ran.read_text()) > released[0]  # while its row could not be written it had no process
    warnings = [line for line in home.log() if line["level"] == "warning"]
    assert len(warnings) == 1, warnings
    assert home.json("status")["runs"] == {"completed": 5}


def test_a_database_that_is_not_ours_or_newer_is_refused_and_left_alone(home: Home) -> None:
    home.run("start")
    home.run("stop")
    database = home.home / "pwf.db"
    kept = database.read_bytes()
    home.checked = False

    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()
    newer = database.read_bytes()
    assert "newer" in home.run("ls", code=None).stderr
    assert database.read_bytes() == newer

    database.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    foreign = database.read_bytes()
    assert "not a pwf database" in home.run("daemon", code=8).stderr
    assert database.read_bytes() == foreign

    database.write_bytes(kept)
    home.run("ls")


def test_a_socket_path_that_is_taken_by_a_file_is_refused_and_the_file_kept(home: Home) -> None:
    home.run("start")
    path = Path(home.record.socket)
    home.run("stop")
    path.write_text("precious")

    refused = home.run("daemon", code=8)

    assert "not a socket" in refused.stderr
    assert path.read_text() == "precious"
    path.unlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_state_folder_that_cannot_be_written_is_refused_with_what_to_do(home: Home) -> None:
    home.home.mkdir()
    home.home.chmod(0o500)
    refused = home.run("daemon", code=8)
    assert "PWF_HOME" in refused.stderr
    home.home.chmod(0o700)


def test_a_state_folder_of_another_user_is_refused(home: Home) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make one")
    home.home.mkdir()
    os.chown(home.home, 12345, 12345)
    refused = home.run("daemon", code=8)
    assert "belongs to" in refused.stderr


def test_a_bad_configuration_is_refused_with_key_file_and_line(home: Home) -> None:
    home.config("max_runners = 4\ndrain = 3\n")
    refused = home.run("daemon", code=8)
    assert "config.toml:2" in refused.stderr
    assert "drain_s" in refused.stderr
    (home.home / "config.toml").unlink()


@pytest.mark.rest
def test_a_copied_home_signals_nobody_and_holds_what_was_going_on(home: Home, tmp_path: Path) -> None:
    home.workflow("ask", ASK)
    home.workflow("one", ONE)
    waiting = home.start("ask")
    home.wait_status(waiting, "waiting")
    later = home.start("one", "--at", "+1h")
    first_id = home.home_id
    home.kill_daemon()
    copy = tmp_path / "copy"
    shutil.copytree(home.home, copy, ignore=shutil.ignore_patterns("*.sock"))

    home.environment["PWF_HOME"] = str(copy)
    original, home.home = home.home, copy
    home.run("start")

    assert home.home_id != first_id
    assert home.json("show", later)["summary"]["hold"] == "restored"
    assert home.json("show", waiting)["summary"]["hold"] == "restored"
    assert "pwf resume" in home.run("explain", later).stdout
    home.run("resume", waiting)
    home.run("answer", f"run:{waiting}", "1")
    home.wait_status(waiting, "completed")
    home.check_store()
    home.run("stop")

    home.environment["PWF_HOME"] = str(original)
    home.home = original
    assert home.json("show", later)["summary"]["hold"] is None
    assert home.home_id == first_id


@pytest.mark.rest
def test_an_epoch_grows_with_each_daemon_and_a_killed_one_left_nothing_open(home: Home) -> None:
    home.run("start")
    epochs = []
    for _ in range(3):
        epochs.append(home.json("status")["epoch"])
        os.kill(home.pid, signal.SIGKILL)
        wait_for(lambda: home.run("ls", code=None).returncode == 0, 10)
    assert epochs == [1, 2, 3]
