"""Settings of a run that goes on, from the command line: who may change what, and what the workflow says to it."""

from __future__ import annotations

import json

from tests.e2e.world import World

PACED = """
import msgspec

class Pace(msgspec.Struct):
    workers: int = 2
    note: str = ""

def few(value):
    return "too many" if value.workers > 9 else None

flow = Workflow("paced")
flow.settings(
    Pace, Pace(), check=few,
    paths={"": {"human": ["read"]}, "/workers": {"human": ["read", "replace"], "session": ["replace"]}},
)

@flow.checkpoint
def ask(ctx):
    return "go on?"

@flow.settings_route
def route(ctx) -> int:
    return ctx.settings.workers

flow.graph(ask >> route)
"""


def test_settings_are_changed_while_a_run_waits(world: World) -> None:
    world.home.workflow("paced", PACED)
    run_id = world.start("paced", None)
    world.parked(run_id, "waiting")

    def settings(*words: str, fails: bool = False) -> str:
        done = world.home.run("settings", words[0], run_id, *words[1:], code=None)
        assert (done.returncode != 0) == fails, done
        return done.stderr if fails else done.stdout

    assert json.loads(settings("get", "--json"))["value"] == {"note": "", "workers": 2}
    assert "change 1" in settings("change", "workers=4", "--expect", "0")
    assert "too many" in settings("change", "workers=10", fails=True)
    assert "not of type" in settings("change", "workers=x", fails=True)
    assert "a person may not replace '/note'" in settings("change", "note=x", fails=True)
    assert "you expected 0" in settings("change", "workers=5", "--expect", "0", fails=True)
    assert "they were so already" in settings("change", "workers=4")
    patch = '[{"op":"test","path":"/workers","value":4},{"op":"replace","path":"/workers","value":6}]'
    assert "change 2" in settings("change", "--patch", patch)
    assert "has another value" in settings("change", "--patch", patch, fails=True)
    assert settings("get", "/workers").strip() == "6"
    world.answer(run_id, "yes")
    assert world.output(run_id) == 6
    assert "has ended" in settings("change", "workers=1", fails=True)
    assert "settings" in world.home.run("show", run_id).stdout
