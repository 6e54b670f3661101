"""A daemon that is killed between what it and a service know: no second message by itself, and one continuation."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.channel_services import SERVICES, service_of
from tests.e2e.home import Home, wait_for
from tests.e2e.world import PATIENCE_S

pytestmark = pytest.mark.rest

FLOW = """
flow = Workflow("decide_deploy")

@flow.decision(audience="operator", choices=[Choice("ship", "Ship it"), Choice("hold", "Hold it")], timeout=None)
def approve(ctx):
    return "Ship it?"

@flow.action(effect=idempotent("deploy"))
def deploy(ctx):
    with open(ctx.input["folder"] + "/deployed", "a") as file:
        file.write(ctx[approve].choice + "\\n")

@flow.compute
def held(ctx):
    return "held"

flow.graph(approve.switch(ship=deploy, hold=held))
"""

BUSY = """
from pathlib import Path
import time

flow = Workflow("takes_the_place")

@flow.action(effect=idempotent("wait"))
def wait(ctx):
    while not Path(ctx.input["folder"], "released").exists():
        time.sleep(0.02)
"""


def message(home: Home) -> dict[str, Any]:
    """The one that is not settled; none: {}."""
    return next(iter(home.json("channel", "status")["messages"]), {})


def one_line(path: Path) -> bool:
    return path.exists() and path.read_text() == "ship\n"


@pytest.mark.parametrize("kind", SERVICES)
def test_a_message_whose_outcome_died_with_the_daemon_is_not_sent_again_and_what_arrived_decides(
    home: Home, tmp_path: Path, kind: str
) -> None:
    with service_of(home, kind) as service:
        service.fake.faults = ["hang"]
        home.workflow("decide_deploy", FLOW)
        run_id = home.start("decide_deploy", "--set", f"folder={tmp_path}")
        wait_for(service.shown, PATIENCE_S)
        home.kill_daemon()
        home.run("start")
        wait_for(lambda: message(home).get("state") == "ambiguous", PATIENCE_S)
        home.run("channel", "recover", message(home)["message_id"], "confirm", "--ref", service.ref())
        assert message(home) == {}
        assert len(service.shown()) == 1
        service.press()
        home.wait_status(run_id, "completed", seconds=PATIENCE_S)
        assert one_line(tmp_path / "deployed")
        assert len(service.shown()) == 1


@pytest.mark.parametrize("kind", SERVICES)
def test_an_answer_that_was_stored_before_the_daemon_died_has_one_continuation(
    home: Home, tmp_path: Path, kind: str
) -> None:
    with service_of(home, kind, "max_runners = 1\n") as service:
        home.workflow("decide_deploy", FLOW)
        home.workflow("takes_the_place", BUSY)
        run_id = home.start("decide_deploy", "--set", f"folder={tmp_path}")
        wait_for(service.shown, PATIENCE_S)
        busy = home.start("takes_the_place", "--set", f"folder={tmp_path}")
        home.wait_status(busy, "running", seconds=PATIENCE_S)
        service.press()
        wait_for(lambda: home.json("decisions")["decisions"] == [], PATIENCE_S)
        os.kill(home.pid, signal.SIGKILL)
        assert not (tmp_path / "deployed").exists()
        home.run("start")
        service.press()
        (tmp_path / "released").touch()
        home.wait_status(run_id, "completed", seconds=PATIENCE_S)
        home.wait_status(busy, "completed", seconds=PATIENCE_S)
        service.press()
        wait_for(lambda: message(home) == {}, PATIENCE_S)
        assert one_line(tmp_path / "deployed")
        assert len(service.shown()) == 1
        (answer,) = home.json("decisions", "--all")["decisions"]
        assert (answer["winner"]["choice"], answer["winner"]["channel"]) == ("ship", "out")
