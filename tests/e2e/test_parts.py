"""Several effects in one step, with real processes: killed around each, and settled one by one, by their keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.home import wait_for
from tests.e2e.world import PATIENCE_S, World, lines

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

POINTS = ("asked", "begun", "done", "settled")

# Two effects, with a counting sink for each. At its point around the second the step ends: by its own hand, or it stays
# until the daemon is gone.
COUNTS = """
import os, signal, time
from pathlib import Path

flow = Workflow("{name}")

@flow.action(effect=parts("count"))
def count(ctx) -> list[str]:
    folder = Path(ctx.input["folder"])

    def reach(point):
        if point != ctx.input["point"] or (folder / "reached").exists():
            return
        (folder / "reached").touch()
        if ctx.input["victim"] == "runner":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)

    def apply(request, key):
        if request == "two":
            reach("begun")
        with open(folder / "sink", "a") as file:
            file.write(key + "\\n")
        if request == "two":
            reach("done")
        return "applied " + request

    def look(request, key):
        happened = (folder / "sink").exists() and key in (folder / "sink").read_text().split()
        return applied("found " + request, ref="seen") if happened else not_applied()

    observe = look if ctx.input["observed"] else None
    first = ctx.effect("one", "one", apply=apply, observe=observe)
    reach("asked")
    second = ctx.effect("two", "two", apply=apply, observe=observe)
    reach("settled")
    return [first, second]
"""


def _killed(world: World, victim: str, *, observed: bool) -> dict[str, tuple[str, Path]]:
    """A run for each point, which has been killed there; where it counts."""
    name = f"counts_{victim}_{observed}".lower()
    world.home.workflow(name, COUNTS.format(name=name))
    runs = {}
    for point in POINTS:
        folder = world.folder(f"{name}_{point}")
        given = {"folder": str(folder), "point": point, "victim": victim, "observed": observed}
        runs[point] = (world.start(name, given), folder)
    wait_for(lambda: all((folder / "reached").exists() for _, folder in runs.values()), PATIENCE_S)
    if victim == "daemon":
        world.kill_daemon()
    return runs


@pytest.mark.parametrize("victim", ["runner", pytest.param("daemon", marks=pytest.mark.rest)])
def test_an_observed_effect_happens_once_wherever_around_it_the_step_is_killed(
    world: World, victim: str
) -> None:
    runs = _killed(world, victim, observed=True)
    for point, (run_id, folder) in runs.items():
        second = "found two" if point == "done" else "applied two"
        assert world.output(run_id) == ["applied one", second]
        assert lines(folder / "sink") == [f"{run_id}:count:1/{part}" for part in ("one", "two")]
        effects = {effect.effect_key: effect for effect in world.view(run_id).effects}
        assert {effect.status for effect in effects.values()} == {"applied"}


@pytest.mark.parametrize("victim", ["runner", "daemon"])
def test_without_an_observer_it_happens_once_or_not_and_waits_for_a_person(world: World, victim: str) -> None:
    runs = _killed(world, victim, observed=False)
    for point, (run_id, folder) in runs.items():
        one, two = (f"{run_id}:count:1/{part}" for part in ("one", "two"))
        if point in ("begun", "done"):
            world.parked(run_id, "ambiguous")
            happened = point == "done"
            assert lines(folder / "sink") == ([one, two] if happened else [one])
            shown = world.home.json("effects", "show", two)
            assert shown["effect"]["status"] == "ambiguous"
            assert shown["request"]["json"] == "two"
            word = ["happened", "--output", '"seen"'] if happened else ["not-happened"]
            world.home.run("effects", "resolve", two, *word)
            assert world.output(run_id) == ["applied one", "seen" if happened else "applied two"]
        else:
            assert world.output(run_id) == ["applied one", "applied two"]
        assert lines(folder / "sink") == [one, two]


TWO = """
import os, signal
from pathlib import Path

flow = Workflow("two_unknown")

@flow.action(effect=parts("pay"))
def pay(ctx) -> list[str]:
    def apply(request, key):
        with open(Path(ctx.input) / "payments", "a") as file:
            file.write(key + "\\n")
        raise OSError("connection reset")

    for name in ("a", "b"):
        try:
            ctx.effect(name, {"to": name}, apply=apply)
        except OSError:
            pass
    return [ctx.effect(name, {"to": name}, apply=apply) for name in ("a", "b")]

@flow.action(effect=parts())
def other(ctx) -> str:
    try:
        return ctx.effect("x", 1, apply=lambda *_: "one") + ctx.effect("x", 2, apply=lambda *_: "two")
    except Exception as error:
        return str(error)

flow.graph(pay >> other)
"""


def test_several_unknown_effects_are_settled_one_by_one_and_then_the_step_goes_on(world: World) -> None:
    world.home.workflow("two_unknown", TWO)
    folder = world.folder("two_unknown")
    run_id = world.start("two_unknown", str(folder))
    world.parked(run_id, "ambiguous")
    keys = [f"{run_id}:pay:1/{part}" for part in ("a", "b")]
    listed = world.home.json("effects", "--ambiguous")["effects"]
    assert {one["effect_key"] for one in listed if one["run_id"] == run_id} == set(keys)
    assert all(key in world.home.json("explain", run_id)["explanation"]["reason"] for key in keys)
    refused = world.home.run("recover", run_id, "happened", code=4)
    assert keys[1] in refused.stderr
    shown = world.home.run("effects", "show", keys[0]).stdout
    for said in ('{"to":"a"}', "fingerprint", "connection reset", "when the others are settled, too"):
        assert said in shown
    world.home.run("effects", "resolve", keys[0], "happened", "--output", '"paid"', "--ref", "tx 1")
    assert world.view(run_id).summary.status == "ambiguous"
    world.home.run("effects", "resolve", keys[1], "happened", "--output", '"paid, too"')
    said = world.output(run_id)
    assert "was made with another request" in str(said)
    assert lines(folder / "payments") == keys
    effects = {effect.effect_key: effect for effect in world.view(run_id).effects}
    assert (effects[keys[0]].ref, effects[keys[0]].settled_by is not None) == ("tx 1", True)
