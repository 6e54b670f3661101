"""`command-batch` with a real daemon: receipts, effects and bars, also when the daemon dies in between."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.home import wait_for
from tests.e2e.world import PATIENCE_S, World


def command(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "words": ["sh", "-c", script], **more}


def test_each_command_has_a_receipt_an_effect_and_a_bar_of_its_own(world: World) -> None:
    commands = [
        command("good", "echo out; echo err >&2"),
        command("bad", "exit 3"),
        command("odd", "exit 4", ok_exit_codes=[4]),
        {"name": "none", "words": ["there-is-no-such-command"]},
        command("slow", "sleep 60", timeout_minutes=0.005),
    ]
    run_id = world.start("command-batch", {"commands": commands, "gate": False, "parallel": 2})
    done = world.output(run_id)
    assert done["failed"] == ["bad", "none", "slow"]
    good, bad, odd, none, slow = done["receipts"]
    assert (good["ok"], good["exit_code"], good["stdout"], good["stderr"]) == (True, 0, "out\n", "err\n")
    assert (bad["exit_code"], odd["ok"], none["exit_code"], slow["exit_code"]) == (3, True, None, None)
    assert "No such file" in none["error"]
    assert "took longer" in slow["error"]
    view = world.view(run_id)
    assert {effect.effect_key.rpartition("/")[2]: effect.status for effect in view.effects} == {
        "good": "applied", "bad": "applied", "odd": "applied", "none": "rejected", "slow": "applied",
    }  # fmt: skip
    bars = {update.key: json.loads(bytes(update.data)) for update in view.updates}
    assert bars["work"] == {"completed": 5, "total": 5, "unit": "commands", "label": "done"}
    assert bars["bad"]["status"] == "exit code 3"


def test_after_a_crash_what_has_ended_is_not_run_again_and_what_may_be_is(world: World) -> None:
    log, gate = world.home.project / "log", world.home.project / "gate"
    until_gate = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    commands = [
        command("once", f"echo once >> {log}"),
        command("again", f"echo again >> {log}; {until_gate}", again=True),
    ]
    run_id = world.start("command-batch", {"commands": commands})
    wait_for(lambda: log.exists() and log.read_text().count("\n") == 2, PATIENCE_S)
    wait_for(lambda: any(one.status == "applied" for one in world.view(run_id).effects), PATIENCE_S)
    world.kill_daemon()
    gate.touch()
    assert world.output(run_id)["failed"] == []
    assert sorted(log.read_text().split()) == ["again", "again", "once"]


def test_a_failure_fails_the_run_and_names_each(world: World) -> None:
    run_id = world.start("command-batch", {"commands": [command("a", "exit 3"), command("b", "true")]})
    world.finish(run_id, "failed")
    error = world.view(run_id).error
    assert error is not None
    assert error.message == "1 of 2 commands failed: a: exit code 3"
