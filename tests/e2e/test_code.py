"""Which code a run executes, whatever happens to the files meanwhile (C1, C2, load_failed)."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.home import wait_for
from tests.e2e.world import PATIENCE_S, World

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

ASKS = """
{head}
flow = Workflow("{name}"{options})

@flow.compute
def before(ctx):
    return "{version}"

@flow.checkpoint
def ask(ctx):
    return "go on?"

@flow.compute
def after(ctx):
    return [ctx[before], "{version}", ctx[ask]{more}]

flow.graph(before >> ask >> after)
"""


def _write(
    world: World, name: str, version: str, *, head: str = "", options: str = "", more: str = ""
) -> None:
    text = ASKS.format(name=name, version=version, head=head, options=options, more=more)
    world.home.workflow(name, text)


def test_a_parked_run_goes_on_with_the_code_it_started_with_and_show_says_that_newer_exists(
    world: World,
) -> None:
    _write(world, "edited", "old")
    _write(world, "unrelated", "old")
    run_id = world.start("edited")
    world.question(run_id)
    assert not world.view(run_id).newer_code

    _write(world, "unrelated", "new")
    _write(world, "edited", "new")
    world.kill_daemon()
    shown = world.home.run("show", run_id).stdout
    world.answer(run_id, "yes")

    assert world.output(run_id) == ["old", "old", "yes"]
    assert "newer code" in shown
    assert world.view(run_id).newer_code
    assert world.home.json("run", "edited", "--detach")["run_id"]  # a new run takes what is there now


EMPTY = """
import bare
import kit

flow = Workflow("empty", input=str, files=["bare.txt"])

@flow.shell(effect=idempotent("silent"))
def silent(ctx):
    return ["true"]

@flow.compute
def done(ctx):
    return [ctx.input, ctx[silent].stdout, ctx.file("bare.txt").decode(), kit.__name__]

flow.graph(silent >> done)
"""


def test_what_has_no_byte_works_as_module_helper_pinned_file_input_and_output(world: World) -> None:
    (world.home.workflows / "bare.py").write_text("")
    (world.home.project / "kit").mkdir()
    (world.home.project / "kit" / "__init__.py").write_text("")
    (world.home.project / "bare.txt").write_text("")
    world.home.workflow("empty", EMPTY)

    assert world.output(world.start("empty", "")) == ["", "", "", "kit"]


def test_a_restart_takes_the_current_code(world: World) -> None:
    _write(world, "restarted", "old")
    run_id = world.start("restarted")
    world.question(run_id)
    _write(world, "restarted", "new")
    world.answer(run_id, 1)
    world.finish(run_id)
    again = world.home.json("restart", run_id)["run_id"]
    assert again != run_id
    world.answer(again, 2)
    assert world.output(again) == ["new", "new", 2]


def test_a_helper_that_is_edited_or_deleted_meanwhile_is_still_the_one_of_the_start(world: World) -> None:
    helper = world.home.workflows / "paint.py"
    helper.write_text("COLOUR = 'red'\n")
    _write(world, "painted", "1", more=", __import__('paint').COLOUR", head="import paint")
    run_id = world.start("painted")
    gone = world.start("painted")
    world.question(run_id)
    world.question(gone)

    helper.write_text("COLOUR = 'blue'\n")
    world.answer(run_id, None)
    assert world.output(run_id) == ["1", "1", None, "red"]
    helper.unlink()
    world.kill_daemon()
    world.answer(gone, None)
    assert world.output(gone) == ["1", "1", None, "red"]


def test_with_verify_an_edited_file_holds_the_run_which_keeps_its_answer_until_the_file_is_restored(
    world: World,
) -> None:
    options = ', source="verify"'
    _write(world, "verified", "old", options=options)
    run_id = world.start("verified")
    world.question(run_id)

    _write(world, "verified", "new", options=options)
    world.answer(run_id, "kept")
    held = world.parked(run_id, "held").summary
    assert held.hold == "source_changed"
    explained = world.home.json("explain", run_id)
    assert explained["explanation"]["code"] == "source_changed"
    reason = explained["explanation"]["reason"]
    assert "verified.py" in reason
    commands = explained["explanation"]["commands"]
    assert {command.split()[1] for command in commands} >= {"resume", "cancel"}

    refused = world.home.run("resume", run_id, code=4)  # the file still differs
    assert "verified.py" in refused.stderr or "differ" in refused.stderr
    _write(world, "verified", "old", options=options)
    world.home.run("resume", run_id)
    assert world.output(run_id) == ["old", "old", "kept"]


def test_the_error_of_changed_sources_names_run_recorded_and_present_identity(world: World) -> None:
    options = ', source="verify"'
    _write(world, "identified", "old", options=options)
    run_id = world.start("identified")
    world.question(run_id)
    _write(world, "identified", "new", options=options)
    world.answer(run_id, None)
    world.parked(run_id, "held")
    said = world.home.run("explain", run_id).stdout
    assert run_id in said
    path = world.home.workflows / "identified.py"
    from hashlib import sha256

    present = sha256(path.read_bytes()).hexdigest()[:12]
    recorded = sha256(path.read_bytes().replace(b"new", b"old")).hexdigest()[:12]
    assert present in said
    assert recorded in said


def test_a_run_whose_pinned_code_no_longer_loads_is_held_and_resume_tries_again(world: World) -> None:
    """A package outside the project is no pinned code: when it is gone, the run waits for it."""
    packages = world.home.project.parent / "packages"
    package = packages / "brush"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("WIDTH = 3\n")
    head = f"import sys\nsys.path.insert(0, {str(packages)!r})\nimport brush"
    _write(world, "needs_brush", "1", head=head, more=", brush.WIDTH")
    run_id = world.start("needs_brush")
    world.question(run_id)
    away = packages / "away"
    shutil.move(package, away)
    world.kill_daemon()  # a warm template would still have it

    world.answer(run_id, "x")
    assert world.parked(run_id, "held").summary.hold == "load_failed"
    explained = world.home.json("explain", run_id)["explanation"]
    assert "brush" in explained["reason"]
    assert f"pwf resume {run_id}" in explained["commands"]
    revision = world.view(run_id).summary.revision
    world.home.run("resume", run_id)
    wait_for(lambda: _held_again(world, run_id, revision), PATIENCE_S)

    shutil.move(away, package)
    world.home.run("resume", run_id)
    assert world.output(run_id) == ["1", "1", "x", 3]


def _held_again(world: World, run_id: str, revision: int) -> bool:
    summary = world.view(run_id).summary
    return summary.revision > revision + 1 and summary.hold == "load_failed"


@pytest.mark.parametrize("isolate", ["fork", "spawn"])
def test_a_pool_of_spawned_processes_works_with_the_pinned_code(world: World, isolate: str) -> None:
    name = f"pools_{isolate}"
    folder = world.folder(name)
    world.home.workflow(
        name,
        f"""
import multiprocessing, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

flow = Workflow("{name}", isolate="{isolate}")

def square(number):
    return number * number

@flow.action(effect=idempotent("pool"))
def work(ctx):
    while not Path("{folder}/edited").exists():
        time.sleep(0.01)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        return list(pool.map(square, range(4)))
""",
    )
    run_id = world.start(name)
    world.until(run_id, "executing")
    world.home.workflow(name, "raise RuntimeError('edited')")
    (folder / "edited").touch()
    assert world.output(run_id) == [0, 1, 4, 9]
