"""A channel from the configuration to the person and back, with the real daemon, killed where nobody can know."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.home import Home, wait_for
from tests.e2e.test_decisions import RELEASE
from tests.e2e.world import PATIENCE_S

pytestmark = pytest.mark.rest


def messages(home: Home) -> list[dict[str, Any]]:
    return list(home.json("channel", "status")["messages"])


def configure(home: Home, told: Path, more: str = "") -> None:
    command = f'["sh", "-c", "cat >> {told}{more}"]'
    home.config(f'[channels.desk]\nkind = "command"\ncommand = {command}\ntells = ["decide", "ended"]\n')


def test_a_decision_and_the_end_of_its_run_are_told_once_also_over_restarts(
    home: Home, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    configure(home, told)
    home.workflow("decide_release", RELEASE)
    home.run("run", "decide_release", "--until", "parked", code=7)
    wait_for(lambda: told.exists() and told.read_text().count("\n") == 1, PATIENCE_S)
    home.kill_daemon()
    home.run("start")
    home.run("decide", "run:@last", "ship")
    wait_for(lambda: told.read_text().count("\n") == 2, PATIENCE_S)
    events = [json.loads(line)["event"] for line in told.read_text().splitlines()]
    assert events == ["decide", "ended"]
    assert messages(home) == []


def test_a_daemon_that_is_killed_while_it_sends_leaves_the_message_to_a_person(
    home: Home, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    configure(home, told, "; sleep 60")
    home.workflow("decide_release", RELEASE)
    home.run("run", "decide_release", "--until", "parked", code=7)
    wait_for(told.exists, PATIENCE_S)
    os.kill(home.pid, signal.SIGKILL)
    configure(home, told)
    home.run("start")
    wait_for(lambda: [one["state"] for one in messages(home)] == ["ambiguous"], PATIENCE_S)
    assert told.read_text().count("\n") == 1
    explained = home.run("explain", "@last").stdout
    assert "channel desk: ambiguous" in explained
    home.run("channel", "recover", messages(home)[0]["message_id"], "retry")
    wait_for(lambda: told.read_text().count("\n") == 2, PATIENCE_S)
    wait_for(lambda: messages(home) == [], PATIENCE_S)
    home.run("cancel", "@last")
