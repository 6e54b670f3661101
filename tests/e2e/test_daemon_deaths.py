"""A step that kills the daemon does not kill one after the other for ever; what others kill counts against nobody."""

from __future__ import annotations

import pytest

from tests.e2e.home import Home

KILLER = """
import json, os, signal, subprocess, time
from pathlib import Path

flow = Workflow("killer")

@flow.action(effect=idempotent("kill"))
def strike(ctx):
    pid = json.loads(Path(ctx.input).read_text())["pid"]
    {deed}
    time.sleep(60)
"""
DEEDS = {
    "by itself": "os.kill(pid, signal.SIGKILL)",
    "by a command": 'subprocess.run(["sh", "-c", "kill -9 %d" % pid])',
}
DEATHS = 7


@pytest.mark.rest
@pytest.mark.parametrize("deed", DEEDS)
def test_a_step_that_kills_the_daemon_is_held_after_seven_times_with_its_node_named(
    home: Home, deed: str
) -> None:
    home.workflow("killer", KILLER.format(deed=DEEDS[deed]))
    run_id = home.start("killer", "--input", f'"{home.home / "daemon.lock"}"')
    home.wait_status(run_id, "held", seconds=90)
    reason = home.json("explain", run_id)["explanation"]["reason"]
    assert "the daemon died 7 times while node 'strike' ran" in reason


@pytest.mark.rest
def test_a_daemon_that_others_kill_counts_against_no_run(home: Home) -> None:
    gate = home.project / "gate"
    home.workflow(
        "long",
        f"""
import time
from pathlib import Path
flow = Workflow("long")

@flow.action(effect=idempotent("wait"))
def work(ctx):
    while not Path("{gate}").exists():
        time.sleep(0.02)
    return ctx.attempt
""",
    )
    run_id = home.start("long")
    for _ in range(DEATHS + 1):
        home.wait_step(run_id)
        home.kill_daemon()
    home.run("start")
    gate.touch()
    home.wait_status(run_id, "completed")
