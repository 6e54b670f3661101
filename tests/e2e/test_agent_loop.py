"""`pwf agent-loop`: a person plays the agent, behind a real terminal, from the start of a run to its end."""

from __future__ import annotations

import sys
from typing import Any

import pexpect

from tests.e2e.test_agents import JUDGED
from tests.e2e.world import World

EDITOR = """
import sys
from pathlib import Path
path = Path(sys.argv[1])
path.write_text(path.read_text().replace('""', '"ship"', 1))
"""


def played(world: World, *words: str, **environment: str) -> Any:
    return pexpect.spawn(
        sys.executable,
        ["-m", "pwf", "agent-loop", *words],
        env={**world.home.environment, "NO_COLOR": "1", "TERM": "xterm", **environment},
        cwd=str(world.home.project),
        dimensions=(40, 110),
        encoding="utf-8",
        timeout=60,
    )


def exit_code(child: Any) -> int:
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus)


def test_a_person_plays_an_agent_is_corrected_leaves_and_comes_back(world: World) -> None:
    world.home.workflow("agent_judged", JUDGED)
    first = played(world, "agent_judged", "--input", '{"tests": 7}', "--session", "ada")
    first.expect("review of agent_judged")
    first.expect("Review it.")
    first.expect("verdict: text, required")
    first.expect("for example  verdict='some text'")
    first.expect("submit> ")
    first.sendline("ship it")
    first.expect("does not fit; it takes object")
    first.expect("submit> ")
    first.sendline('{"verdict": 3}')
    first.expect("pwf: .*verdict")
    first.expect("submit> ")
    first.sendline("verdict=ship")
    first.expect("rejected: say why, after 7 tests")
    first.expect("submit> ")
    first.sendintr()
    first.expect("go on with:  pwf agent-loop --session ada")
    assert exit_code(first) == 130

    refused = played(world, "agent_judged", "--session", "ada")
    refused.expect("session ada has a run that goes on")
    refused.expect("hint: go on with it: pwf agent-loop --session ada")
    assert exit_code(refused) == 4

    second = played(world, "--session", "ada")
    second.expect("review of agent_judged")
    second.expect("submit> ")
    second.sendeof()
    second.expect("go on with:  pwf agent-loop --session ada")
    assert exit_code(second) == 7

    third = played(world, "--session", "ada")
    third.expect("submit> ")
    third.sendline('{"verdict": "ship", "why": "all pass"}')
    third.expect("accepted")
    third.expect('"ship"')
    assert exit_code(third) == 0


def test_an_editor_begins_with_what_the_type_wants_and_what_it_saved_is_submitted(world: World) -> None:
    world.home.workflow("agent_judged", JUDGED.replace("if not review.why", "if False"))
    script = world.folder("editor") / "editor.py"
    script.write_text(EDITOR)
    child = played(world, "agent_judged", "--input", '{"tests": 7}', EDITOR=f"{sys.executable} {script}")
    child.expect("submit> ")
    child.sendline(":edit")
    child.expect("accepted")
    child.expect('"ship"')
    assert exit_code(child) == 0


def test_what_a_person_decides_elsewhere_is_told_and_a_step_that_is_over_is_let_go(world: World) -> None:
    world.home.workflow("agent_judged", JUDGED)
    child = played(world, "agent_judged", "--input", '{"tests": 7}')
    child.expect(r"run (\w+), session (\S+)")
    run_id = child.match.group(1)
    child.expect("submit> ")
    world.home.run("pause", run_id)
    said = ["this step is over", f"pwf resume {run_id}"]
    assert {child.expect(said), child.expect(said)} == {0, 1}
    world.home.run("resume", run_id)
    child.expect("review of agent_judged")
    world.home.run("cancel", run_id)
    assert exit_code(child) == 6
