"""Backup, restore, prune, the size budget and the rollback of a home, with the real command line and daemon (S3)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fill import clone
from pwf import host
from pwf.protocol.operations import PrunePayload
from pwf.protocol.runner import MARKER_VARIABLE
from tests.e2e.home import Home, wait_for
from tests.e2e.world import World

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

DAY_MS = 24 * 3_600_000

ONE = """
flow = Workflow("one")

@flow.compute
def add(ctx):
    return "x" * 20_000
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

SLOW = """
import pathlib, time
flow = Workflow("slow")

@flow.action(effect=manual("count"))
def count(ctx):
    with open(ctx.input, "a") as file:
        file.write("once\\n")
    time.sleep(600)

@flow.compute
def after(ctx):
    return "counted"

flow.graph(count >> after)
"""

MODEL = "modelmodel12"


@pytest.fixture
def filled(home: Home) -> Home:
    """A home with one completed and one waiting run."""
    home.workflow("one", ONE)
    home.workflow("ask", ASK)
    home.run("run", "one", "--id", "done1")
    home.start("ask", "--id", "asked1")
    home.wait_status("asked1", "waiting")
    return home


def backup(home: Home, folder: Path, name: str = "b.db") -> Path:
    path = folder / name
    made = home.json("state", "backup", str(path))
    assert made["violations"] == []
    assert made["bytes"] == path.stat().st_size
    return path


def put_aside(home: Home, folder: Path) -> None:
    """What the hint of a refused restore says."""
    aside = folder / "aside"
    aside.mkdir()
    for path in home.home.glob("pwf.db*"):
        path.rename(aside / path.name)


def test_a_backup_is_restored_into_an_empty_home_and_what_went_on_is_held(
    filled: Home, tmp_path: Path
) -> None:
    home = filled
    home_id = home.home_id
    made = backup(home, tmp_path)
    home.run("answer", "run:asked1", "7")
    home.wait_status("asked1", "completed")
    home.run("run", "one", "--id", "later1")
    assert "already serves" in home.run("state", "restore", str(made), code=4).stderr
    home.run("stop")

    refused = home.run("state", "restore", str(made), code=4)
    assert "1 run made since, 1 that went on since" in refused.stderr
    assert "asked1 (completed)" in refused.stderr
    assert "later1 (completed)" in refused.stderr
    put_aside(home, tmp_path)
    done = home.run("state", "restore", str(made))

    assert "is not in the backup" in done.stdout
    assert "1 run had not ended" in done.stdout
    assert home.record.pid == 0, "it needs no daemon and starts none"
    assert (home.home / "pwf.db").stat().st_mode & 0o777 == 0o600
    assert home.json("show", "asked1")["summary"]["hold"] == "restored"
    assert home.home_id != home_id
    assert home.status("done1") == "completed"
    assert len(json.loads(home.run("show", "done1", "--output").stdout)) == 20_000
    assert home.run("show", "later1", code=3).returncode == 3
    assert "restored" in home.run("explain", "asked1").stdout
    home.run("resume", "asked1")
    home.run("answer", "run:asked1", "8")
    home.wait_status("asked1", "completed")


def test_a_file_that_is_no_backup_is_refused_and_the_home_stays_empty(home: Home, tmp_path: Path) -> None:
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"SQLite format 3\0" + b"x" * 8_000)
    cut = tmp_path / "cut.db"
    home.run("start")
    cut.write_bytes(backup(home, tmp_path, "whole.db").read_bytes()[:30_000])
    home.run("stop")
    put_aside(home, tmp_path)
    for file, why in {
        junk: "not a pwf database",
        tmp_path / "none": "there is no file",
        tmp_path: "is a folder",
        cut: "is damaged",
    }.items():
        refused = home.run("state", "restore", str(file), code=8).stderr
        assert why in refused
        assert "name a file that pwf state backup has written" in refused
    assert "FILE is empty" in home.run("state", "restore", "", code=2).stderr
    assert not (home.home / "pwf.db").exists()


def test_an_interrupted_effect_of_a_restored_backup_is_never_repeated_blindly(
    home: Home, tmp_path: Path
) -> None:
    home.workflow("slow", SLOW)
    ledger = tmp_path / "ledger"
    run_id = home.start("slow", "--input", json.dumps(str(ledger)))
    wait_for(ledger.exists, 20)
    made = backup(home, tmp_path)
    home.kill_daemon()
    wait_for(lambda: not _bearers(run_id), 10)
    put_aside(home, tmp_path)

    home.run("state", "restore", str(made))

    assert home.json("show", run_id)["summary"]["hold"] == "effect_ambiguous"
    time.sleep(1)
    assert ledger.read_text() == "once\n"
    home.run("recover", run_id, "happened", "--output", "null")
    home.wait_status(run_id, "completed")
    assert ledger.read_text() == "once\n"


def _bearers(run_id: str) -> list[host.Bearer]:
    from pwf import host

    return [bearer for bearer in host.find_bearers(MARKER_VARIABLE) if f":{run_id}:" in (bearer.marker or "")]


def test_an_older_database_that_was_put_back_by_hand_is_noticed(filled: Home, tmp_path: Path) -> None:
    home = filled
    home.run("stop")
    copy = tmp_path / "copy.db"
    shutil.copy(home.home / "pwf.db", copy)
    home.run("start")
    home.run("answer", "run:asked1", "7")
    home.wait_status("asked1", "completed")
    home.run("stop")

    shutil.copy(copy, home.home / "pwf.db")  # the same folder, the same inode

    assert home.json("show", "asked1")["summary"]["hold"] == "restored"


@pytest.mark.rest
def test_a_database_that_is_taken_away_under_the_daemon_stops_it_and_no_empty_one_takes_its_place(
    filled: Home, tmp_path: Path
) -> None:
    home = filled
    home.checked = False
    made = backup(home, tmp_path)
    home.run("stop")
    home.config("lease_s = 3600\nlease_renew_s = 2\n")
    daemon = home.daemon()
    home.json("status")  # it has opened what is there

    put_aside(home, tmp_path)
    home.run("answer", "run:asked1", "7")  # acknowledged, and written to a file without a name

    assert daemon.wait(20) == 70
    (said,) = [line for line in home.log() if line["event"] == "claim.database_gone"]
    assert "was deleted" in said["message"]
    refused = home.run("ls", code=8).stderr
    rescued = home.home / f"pwf.db.rescued-{home.record.epoch}"
    assert "is gone, and this folder was served before" in refused
    assert f"hint: what it had was rescued: pwf state restore {rescued}" in refused
    assert not (home.home / "pwf.db").exists()
    home.run("state", "restore", str(rescued))
    assert home.json("show", "asked1")["summary"]["status"] == "completed"
    home.run("stop")
    (tmp_path / "aside2").mkdir()
    for path in home.home.glob("pwf.db*"):
        path.rename(tmp_path / "aside2" / path.name)
    assert "hint: pwf state restore FILE puts a backup in its place" in home.run("ls", code=8).stderr
    assert "pwf state new" in home.run("doctor", code=1).stdout
    home.run("state", "new")
    assert "has a database already" in home.run("state", "new", code=4).stderr
    home.run("run", "one", "--id", "anew1")
    assert home.json("ls")["runs"][0]["run_id"] == "anew1"
    home.run("stop")
    assert "rules hold" in home.run("state", "verify", str(made)).stdout


PINNING = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM runs").fetchall()
print("reads", flush=True)
time.sleep(600)
"""

BIG = """
import os
flow = Workflow("big")

@flow.compute
def much(ctx):
    return os.urandom(5_000_000).hex()
"""


@pytest.mark.rest
def test_a_foreign_reader_that_pins_the_log_is_named_and_after_its_end_the_file_shrinks_by_itself(
    home: Home,
) -> None:
    home.workflow("big", BIG)
    home.run("start")
    wal = home.home / "pwf.db-wal"
    reader = subprocess.Popen(
        [sys.executable, "-c", PINNING, str(home.home / "pwf.db")], stdout=subprocess.PIPE
    )
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reads\n"
        for number in range(5):
            home.run("run", "big", "--id", f"big{number}")
        assert wal.stat().st_size > 32 * 1024 * 1024
        for words, code in (("status",), 0), (("doctor",), 0):
            said = home.run(*words, code=code).stdout
            assert "the database's log takes" in said
            assert f"pid {reader.pid} (" in said
    finally:
        reader.kill()
        reader.communicate()
    wait_for(lambda: wal.stat().st_size < 1024 * 1024, 15.0)
    before = _du(home)
    pruned = home.json("state", "prune", "--before", "0s")
    assert pruned["runs"] == 5
    assert pruned["owed_bytes"] == 0
    assert abs(before - _du(home) - pruned["freed_bytes"]) < 128 * 1024
    assert pruned["freed_bytes"] > 40_000_000


def _du(home: Home) -> int:
    return sum(path.stat().st_size for path in home.home.glob("pwf.db*"))


# --- prune ----------------------------------------------------------------------------------------------------


def test_a_prune_removes_what_has_ended_and_says_so(filled: Home) -> None:
    home = filled
    planned = home.run("state", "prune", "--before", "0s", "--dry-run").stdout
    assert "would remove 1 run" in planned
    assert home.status("done1") == "completed"
    done = home.json("state", "prune", "--before", "0s")
    assert (done["trees"], done["runs"], done["values"]) == (1, 1, 2), "an output and a source"
    assert home.run("show", "done1", code=3).returncode == 3
    assert home.status("asked1") == "waiting"
    assert home.json("state", "prune", "--before", "30d")["runs"] == 0
    future = home.run("state", "prune", "--before", "2100-01-01", code=2)
    assert "future" in future.stderr
    home.run("run", "one")  # its code was dropped, and is stored again


@pytest.mark.rest
def test_thousands_of_expired_runs_go_while_new_runs_start_within_a_second(home: Home) -> None:
    home.workflow("one", ONE)
    home.run("run", "one", "--id", MODEL)
    home.run("stop")
    aged = {
        name: f"m.{name} - {40 * DAY_MS}" for name in ("created_wall_ms", "started_wall_ms", "ended_wall_ms")
    }
    clone(home.home / "pwf.db", MODEL, 3_000, {"runs": aged})
    home.run("start")
    world = World(home)
    world.finish(world.start("one"))  # what is loaded once does not count
    found: list[Any] = []

    def prune() -> None:
        with home.client() as client:
            before_ms = int(time.time() * 1_000) - 30 * DAY_MS
            found.append(client.call("state.prune", PrunePayload(before_ms=before_ms), timeout_s=100))

    pruning = threading.Thread(target=prune)
    pruning.start()
    late_ms = []
    while pruning.is_alive() or len(late_ms) < 3:
        run_id = world.start("one")
        summary = world.finish(run_id).summary
        late_ms.append(summary.started_ms - summary.created_ms)
    pruning.join()
    world.hang_up()

    assert (found[0].trees, found[0].runs) == (3_000, 3_000)
    assert max(late_ms) < 1_000, late_ms
    assert home.json("status")["runs"] == {"completed": len(late_ms) + 2}


# --- the budget -----------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_above_the_budget_nothing_new_is_started_and_everything_else_goes_on(home: Home) -> None:
    home.config(f"max_state_size = {16 * 1024 * 1024}\n")
    home.workflow("big", ONE.replace('"one"', '"big"').replace('"x" * 20_000', "ctx.input * 7_000_000"))
    home.workflow("ask", ASK)
    home.start("ask", "--id", "asked1")
    home.wait_status("asked1", "waiting")
    for letter in "ab":
        home.run("run", "big", "--input", f'"{letter}"')
    assert "max_state_size" in " ".join(home.json("status")["problems"])
    assert "max_state_size" in home.run("doctor", code=None).stdout
    home.run("run", "big", "--input", '"c"')

    refused = home.run("run", "ask", code=5)

    assert "max_state_size" in refused.stderr
    assert "pwf state prune" in refused.stderr
    home.run("answer", "run:asked1", "1")
    home.wait_status("asked1", "completed")
    assert home.json("state", "prune", "--before", "0s")["runs"] == 4
    home.run("run", "ask", "--detach", "--id", "asked2")
    home.run("cancel", "asked2")
