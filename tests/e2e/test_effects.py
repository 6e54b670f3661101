"""Manual effects whose outcome is unknown: observed, held for a person, never repeated blindly."""

from __future__ import annotations

import pytest

from tests.e2e.home import wait_for
from tests.e2e.world import PATIENCE_S, World, kill, lines

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

# The first attempt notes that it happened (or not), and is killed before it can say so.
PAYS = """
import os, signal
from pathlib import Path

flow = Workflow("{name}")

def look(ctx):
    return {verdict}

@flow.action(effect=manual("pay"{observe}){options})
def pay(ctx):
    with open(Path(ctx.input) / "payments", "a") as file:
        file.write(ctx.effect_key + "\\n")
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

@flow.compute
def done(ctx):
    return ctx.outputs.get(pay)

flow.graph(pay >> done, pay.on("failed") >> done)
"""

RETRY = ", retry=Retry(1, backoff=seconds(0))"


def _start(world: World, name: str, verdict: str = "", options: str = "") -> tuple[str, list[str]]:
    """A run whose effect's outcome is unknown after its first attempt; where it notes its payments."""
    text = PAYS.format(
        name=name,
        verdict=verdict or "unknown()",
        observe=", observe=look" if verdict else "",
        options=options,
    )
    world.home.workflow(name, text)
    folder = world.folder(name)
    return world.start(name, str(folder)), [str(folder / "payments")]


def _payments(paths: list[str]) -> list[str]:
    from pathlib import Path

    return lines(Path(paths[0]))


def test_a_killed_manual_effect_is_ambiguous_and_holds_its_run_until_a_person_says_that_it_happened(
    world: World,
) -> None:
    run_id, payments = _start(world, "pays_unseen")
    assert world.parked(run_id, "ambiguous").summary.hold == "effect_ambiguous"
    listed = world.home.json("effects", "--status", "ambiguous")["effects"]
    effect = next(effect for effect in listed if effect["run_id"] == run_id)
    assert (effect["node"], effect["status"]) == ("pay", "ambiguous")
    refused = world.home.run("resume", run_id, code=4)
    assert "recover" in refused.stderr
    commands = world.home.json("explain", run_id)["explanation"]["commands"]
    assert f"pwf recover {run_id} happened --output JSON" in commands

    world.home.run("recover", run_id, "happened", "--output", '"seen on the statement"')

    assert world.output(run_id) == "seen on the statement"
    assert _payments(payments) == [f"{run_id}:pay:1"]


def test_a_person_who_says_that_it_did_not_happen_has_it_tried_again(world: World) -> None:
    run_id, payments = _start(world, "pays_again")
    world.parked(run_id, "ambiguous")
    world.home.run("recover", run_id, "not-happened")
    assert world.output(run_id) == "paid"
    assert _payments(payments) == [f"{run_id}:pay:1"] * 2  # the same key both times


def test_observe_that_finds_it_done_settles_it_and_the_effect_is_not_repeated(world: World) -> None:
    run_id, payments = _start(world, "pays_observed", verdict='applied("found", ref="tx 1")')
    assert world.output(run_id) == "found"
    assert len(_payments(payments)) == 1
    effect = world.view(run_id).effects[0]
    assert (effect.status, effect.ref) == ("applied", "tx 1")


def test_observe_that_finds_it_not_done_lets_an_interrupted_try_run(world: World) -> None:
    run_id, payments = _start(world, "pays_not", verdict="not_applied()")
    assert world.output(run_id) == "paid"
    assert _payments(payments) == [f"{run_id}:pay:1"] * 2
    assert world.view(run_id).effects[0].status == "applied"


@pytest.mark.parametrize(("options", "payments", "output"), [("", 1, None), (RETRY, 2, "paid")])
def test_observe_that_finds_it_not_done_after_an_error_makes_it_a_failed_try(
    world: World, options: str, payments: int, output: str | None
) -> None:
    name = f"fails_{payments}"
    text = PAYS.replace("os.kill(os.getpid(), signal.SIGKILL)", 'raise OSError("connection reset")')
    world.home.workflow(
        name,
        text.format(name=name, verdict="not_applied()", observe=", observe=look", options=options),
    )
    folder = world.folder(name)
    run_id = world.start(name, str(folder))
    assert world.output(run_id) == output
    assert len(lines(folder / "payments")) == payments
    assert ("pay", "failed") in world.steps(run_id)


def test_observe_that_does_not_know_holds_the_run_and_may_be_asked_again(world: World) -> None:
    verdict = 'applied("later") if (Path(ctx.input) / "known").exists() else unknown()'
    run_id, payments = _start(world, "pays_unknown", verdict=verdict)
    world.parked(run_id, "ambiguous")
    (world.home.project / "outside" / "pays_unknown" / "known").touch()
    world.home.run("recover", run_id, "observe")
    assert world.output(run_id) == "later"
    assert len(_payments(payments)) == 1


@pytest.mark.parametrize("victim", ["daemon", "daemon and runner"])
def test_a_manual_effect_under_a_killed_daemon_is_never_repeated(world: World, victim: str) -> None:
    name = f"slow_{victim.replace(' ', '_')}"
    world.home.workflow(
        name,
        f"""
import os, time
from pathlib import Path

flow = Workflow("{name}")

def look(ctx):
    return applied("found")

@flow.action(effect=manual("pay", observe=look))
def pay(ctx):
    with open(Path(ctx.input) / "payments", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    time.sleep(1000)
""",
    )
    folder = world.folder(name)
    run_id = world.start(name, str(folder))
    (pid,) = wait_for(lambda: lines(folder / "payments"), PATIENCE_S)
    if victim != "daemon":
        kill(int(pid))
    world.kill_daemon()
    assert world.output(run_id) == "found"
    assert len(lines(folder / "payments")) == 1


def test_cancelling_a_run_in_the_middle_of_a_manual_effect_says_that_it_is_ambiguous(world: World) -> None:
    world.home.workflow(
        "cancelled_pay",
        """
import time
from pathlib import Path

flow = Workflow("cancelled_pay")

@flow.action(effect=manual("pay"))
def pay(ctx):
    (Path(ctx.input) / "began").touch()
    time.sleep(1000)
""",
    )
    folder = world.folder("cancelled_pay")
    run_id = world.start("cancelled_pay", str(folder))
    wait_for((folder / "began").exists, PATIENCE_S)
    world.home.run("cancel", run_id)
    assert world.view(run_id).summary.status == "cancelled"
    assert [effect.status for effect in world.view(run_id).effects] == ["ambiguous"]
    refused = world.home.run("restart", run_id, code=4)
    assert "effect" in refused.stderr


def test_a_person_looks_at_an_effect_and_gives_it_up_with_a_note(world: World) -> None:
    run_id, payments = _start(world, "pays_given_up")
    world.parked(run_id, "ambiguous")
    key = f"{run_id}:pay:1"
    shown = world.home.run("effects", "show", f"{run_id[:8]}:pay:1").stdout
    assert f"pwf effects resolve {key} give-up" in shown
    assert "attempt 1  unknown" in shown

    world.home.run("effects", "resolve", key, "give-up", "--note", "the bank is gone")

    assert world.output(run_id) is None  # by the way of failed
    effect = world.view(run_id).effects[0]
    assert (effect.status, effect.note) == ("abandoned", "the bank is gone")
    assert effect.settled_by.startswith("client:")
    assert _payments(payments) == [key]
    again = world.home.run("effects", "resolve", key, "happened", code=4)
    assert "no ambiguous effect" in again.stderr


def test_an_output_that_is_not_of_the_nodes_type_is_refused_and_the_effect_stays_ambiguous(
    world: World,
) -> None:
    world.home.workflow(
        "pays_typed",
        """
import os, signal
flow = Workflow("pays_typed")

@flow.action(effect=manual("pay"))
def pay(ctx) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    run_id = world.start("pays_typed", "")
    world.parked(run_id, "ambiguous")
    refused = world.home.run("recover", run_id, "happened", code=2)
    assert "--output null where it gives nothing" in refused.stderr
    refused = world.home.run("recover", run_id, "happened", "--output", "null", code=2)
    assert "does not fit the type of node 'pay'" in refused.stderr
    assert world.view(run_id).summary.status == "ambiguous"
    world.home.run("recover", run_id, "happened", "--output", "7")
    assert world.output(run_id) == 7


SINK = """
import os, signal
from pathlib import Path
from pwf.runner.base.wire import Wire

flow = Workflow("{name}")

def counted(ctx):
    path = Path(ctx.input) / "sink"
    return path.read_text().splitlines() if path.exists() else []

def look(ctx):
    return applied("found") if counted(ctx) else not_applied()

def die(*words, **more):
    os.kill(os.getpid(), signal.SIGKILL)

@flow.action(effect=manual("count"{observe}))
def apply(ctx):
    first = ctx.attempt == 1
    if first and "{point}" == "before":
        die()
    file = open(Path(ctx.input) / "sink", "a")
    if first and "{point}" == "on its way":
        die()
    file.write("1\\n")
    file.close()
    if first and "{point}" == "answered":
        die()
    if first and "{point}" == "told":
        Wire.send_sequenced = die
    return "done"
"""
POINTS = ("before", "on its way", "answered", "told")


@pytest.mark.parametrize("observed", [True, False])
def test_killed_at_four_points_around_it_an_effect_is_counted_once_or_waits_for_a_person_and_never_twice(
    world: World, observed: bool
) -> None:
    runs = {}
    for number, point in enumerate(POINTS):
        name = f"counts_{observed}_{number}".lower()
        text = SINK.format(name=name, point=point, observe=", observe=look" if observed else "")
        world.home.workflow(name, text)
        folder = world.folder(name)
        runs[point] = world.start(name, str(folder)), folder / "sink"
    for point, (run_id, sink) in runs.items():
        if observed:
            assert world.output(run_id) in ("found", "done")
            assert lines(sink) == ["1"], point
            continue
        world.parked(run_id, "ambiguous")
        assert len(lines(sink)) == (point in ("answered", "told")), point
        listed = world.home.json("effects", "--ambiguous")["effects"]
        assert run_id in {effect["run_id"] for effect in listed}
