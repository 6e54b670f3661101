"""A disk that is really full, with real processes (S2): nothing is lost, nothing repeats, and it goes on by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.home import Home, wait_for

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0, reason="making a file system needs root on Linux"
    ),
]

#: Fills the state folder to the last byte in a step whose effect must not repeat, and goes on.
FILL = """
import os
flow = Workflow("fill")

@flow.action(effect=manual("fill"))
def fill(ctx):
    with open(ctx.input["ledger"], "a") as ledger:
        ledger.write("filled\\n")
    size, block = 0, b"z" * 65536
    descriptor = os.open(ctx.input["filler"], os.O_WRONLY | os.O_CREAT, 0o600)
    while block:
        try:
            size += os.write(descriptor, block)
        except OSError:
            block = block[: len(block) // 2]
    os.close(descriptor)
    return size

@flow.action(effect=manual("count"))
def count(ctx):
    with open(ctx.input["ledger"], "a") as ledger:
        ledger.write("counted\\n")
    return "x" * 2_000

flow.graph(fill >> count)
"""

#: Its own outputs are more than fits.
OUTPUTS = """
flow = Workflow("outputs")

@flow.action(effect=manual("make"))
def a(ctx):
    with open(ctx.input, "a") as ledger:
        ledger.write("a\\n")
    return "a" * 14_000_000

@flow.compute
def b(ctx):
    return "b" * 14_000_000

@flow.compute
def c(ctx):
    return "c" * 14_000_000

@flow.compute
def d(ctx):
    return "d" * 14_000_000

flow.graph(a >> b >> c >> d)
"""

ONE = """
flow = Workflow("one")

@flow.compute
def add(ctx):
    return 2
"""

ASK = """
flow = Workflow("ask")

@flow.checkpoint
def gate(ctx):
    return "Go on?"
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Home]:
    """A home on a file system of 64 MB, with an old run, a waiting run, and a daemon that knows the workflows."""
    home = Home(tmp_path)
    home.home.mkdir(mode=0o700)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", home.home], check=False
    ).returncode:
        pytest.skip("this machine does not let us make a file system")
    try:
        for name, text in {"one": ONE, "ask": ASK, "fill": FILL, "outputs": OUTPUTS}.items():
            home.workflow(name, text)
        home.run("run", "one", "--id", "old1")
        home.start("ask", "--id", "asked1")
        home.wait_status("asked1", "waiting")
        yield home
        home.check_store()
    finally:
        home.end()
        subprocess.run(["umount", "-l", home.home], check=True)
    home.check_processes()


def daemon(home: Home) -> Any:
    return home.json("status")


@pytest.mark.rest
def test_a_disk_that_a_step_has_filled_stops_admission_alone_and_when_it_has_space_all_goes_on(
    small: Home, tmp_path: Path
) -> None:
    home, ledger = small, tmp_path / "ledger"
    filler = home.home / "filler"
    before = daemon(home)
    later = home.start("one", "--at", "+3s")

    filling = home.start(
        "fill", "--input", f'{{"ledger": "{ledger}", "filler": "{filler}"}}'
    )  # and its outcome gets in, thanks to the ballast
    home.wait_status(filling, "completed", seconds=30)

    status = wait_for(lambda: _full(home), 20)
    assert any("disk is full" in problem for problem in status["problems"])
    assert "disk full" in home.run("status").stdout
    assert not (home.home / "ballast").exists()
    refused = home.run("run", "one", code=5)
    assert "disk is full" in refused.stderr
    wait_for(lambda: "disk is full" in home.run("explain", later).stdout, 10)
    assert home.status(later) == "queued"
    # reads, prune and cancel work
    assert home.run("show", "old1").returncode == 0
    assert filling in home.run("ls").stdout
    assert home.json("state", "prune", "--before", "1s")["runs"] >= 1
    home.run("cancel", "asked1")
    assert home.status("asked1") == "cancelled"
    assert home.json("state", "verify")["violations"] == []

    filler.unlink()

    home.wait_status(later, "completed", seconds=30)
    after = daemon(home)
    assert (after["pid"], after["epoch"], after["disk_full"]) == (before["pid"], before["epoch"], False)
    assert (home.home / "ballast").stat().st_size == 16 * 1024 * 1024
    home.run("run", "one")
    assert ledger.read_text() == "filled\ncounted\n"


def _full(home: Home) -> Any:
    """The status when it says that the disk is full. Something has to be written for it to be noticed."""
    home.run("pause", "asked1", code=None)
    home.run("resume", "asked1", code=None)
    status = daemon(home)
    return status if status["disk_full"] else None


@pytest.mark.rest
def test_outputs_that_fill_the_disk_wait_and_a_cancel_and_a_prune_make_room_again(
    small: Home, tmp_path: Path
) -> None:
    home, ledger = small, tmp_path / "ledger"
    before = daemon(home)
    run_id = home.start("outputs", "--input", f'"{ledger}"')
    wait_for(lambda: daemon(home)["disk_full"], 60)
    done = [node for node, status in home.steps(run_id) if status == "completed"]
    assert "a" in done  # whole steps only: the one whose output has no room is still open
    assert len(done) < 4
    assert home.status(run_id) == "running"
    assert home.json("state", "verify")["violations"] == []

    home.run("cancel", run_id)
    home.wait_status(run_id, "cancelled")
    pruned = home.json("state", "prune", "--before", "0s")

    assert pruned["runs"] >= 1
    wait_for(lambda: not daemon(home)["disk_full"], 30)
    assert home.run("run", "one").returncode == 0
    after = daemon(home)
    assert (after["pid"], after["epoch"]) == (before["pid"], before["epoch"])
    assert ledger.read_text() == "a\n"


@pytest.mark.rest
def test_a_daemon_that_is_killed_on_a_full_disk_comes_back_and_repeats_no_effect(
    small: Home, tmp_path: Path
) -> None:
    home, ledger = small, tmp_path / "ledger"
    filler = home.home / "filler"
    filling = home.start("fill", "--input", f'{{"ledger": "{ledger}", "filler": "{filler}"}}')
    home.wait_status(filling, "completed", seconds=30)
    wait_for(lambda: _full(home), 20)

    home.kill_daemon()

    assert home.status(filling) == "completed"
    home.run("cancel", "asked1")
    wait_for(lambda: daemon(home)["disk_full"], 10)
    filler.unlink()
    wait_for(lambda: not daemon(home)["disk_full"], 20)
    home.run("run", "one")
    assert ledger.read_text() == "filled\ncounted\n"
