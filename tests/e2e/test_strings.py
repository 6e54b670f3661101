"""Hostile strings through the real command line: inputs, outputs, ids, keys, names of files and of workflows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pwf.discovery import BUILTIN_WORKFLOWS, list_workflow_files
from pwf.errors import PwfError
from pwf.protocol.operations import RunListPayload
from tests.e2e.world import World

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

STRINGS: list[str] = json.loads((Path(__file__).parents[1] / "data" / "strings" / "blns.json").read_text())
SAMPLE = [
    "",
    "undefined",
    "$HOME",
    "'; DROP TABLE runs; --",
    "\u202etest\u202e",
    "表ポあA鷗ŒéＢ逍Üßªąñ丂㐀𠀀",
    "Ṱ̺̺̕o͞ ̷i̲̬͇̪͙n̝̗͕v̟̜̘̦͟o̶̙̰̠kè͚̮̺̪̹̱̤",
    "\u2028\u2029\ufeff",
    "`touch /tmp/pwf-blns`",
    "%s%n{0}[/red]",
    "\x1b[31mred\x1b[0m\x07",
    "../../../etc/passwd",
    "a" * 4096,
]

ECHO = """
flow = Workflow("strings", title=lambda ctx: str(ctx.input)[:80])

@flow.shell(effect=idempotent("echo"), stdin=lambda ctx: str(ctx.input))
def shelled(ctx):
    return ["cat"]

@flow.compute
def echo(ctx):
    return [ctx.input, ctx[shelled].stdout]

flow.graph(shelled >> echo)
"""


@pytest.fixture
def strings(world: World) -> World:
    world.home.workflow("strings", ECHO)
    return world


def test_all_of_them_at_once_come_back_as_they_went_in(strings: World) -> None:
    path = strings.home.project / "blns.json"
    path.write_text(json.dumps(STRINGS))
    done = strings.home.run("run", "strings", "--input", f"@{path}", "--detach", "--json")
    run_id = json.loads(done.stdout)["run_id"]
    assert strings.output(run_id)[0] == STRINGS
    assert json.loads(strings.home.run("show", run_id, "--input", "--json").stdout) == STRINGS
    as_keys: dict[str, Any] = {text: number for number, text in enumerate(STRINGS)}
    assert strings.output(strings.start("strings", as_keys))[0] == as_keys


@pytest.mark.rest
def test_each_is_shown_in_safe_lines_and_kept_exactly(strings: World) -> None:
    runs = {strings.start("strings", {"text": text}): text for text in SAMPLE}
    for run_id, text in runs.items():
        assert strings.output(run_id)[0] == {"text": text}
        _assert_safe(strings.home.run("show", run_id).stdout)
    for words in (("ls", "--limit", "50"), ("events", next(iter(runs))), ("show", "@last", "--output")):
        _assert_safe(strings.home.run(*words).stdout)
    assert not Path("/tmp/pwf-blns").exists()


@pytest.mark.parametrize("number", [3, 4, 6])
def test_each_can_be_typed_on_the_command_line(strings: World, number: int) -> None:
    text = SAMPLE[number]
    done = strings.home.run("run", "strings", "--set", f"text={json.dumps(text)}", "--key", text)
    assert strings.output(done.stdout.split()[1])[0] == {"text": text}
    _assert_safe(done.stdout)


def _assert_safe(shown: str) -> None:
    """Nothing in it moves the cursor, changes colours, or turns the writing around."""
    assert not any(ord(char) < 32 and char != "\n" for char in shown)
    assert not {"\u202e", "\u2066", "\ufeff"} & set(shown)


REFUSED = {"invalid_argument", "protocol_rejected"}


def _started(strings: World, **options: Any) -> tuple[str, str]:
    """(run, error code), one of them empty."""
    try:
        return strings.start("strings", 1, **options), ""
    except PwfError as error:
        return "", error.code


def test_as_ids_they_name_one_run_each_or_are_refused_without_a_trace(strings: World) -> None:
    before = strings.count()
    found = {text: _started(strings, run_id=text) for text in STRINGS}
    assert all(run_id == text for text, (run_id, _) in found.items() if run_id)
    assert {code for _, code in found.values()} <= {"", *REFUSED}
    assert strings.count() == before + sum(1 for run_id, _ in found.values() if run_id)


def test_as_keys_they_start_one_run_each_or_are_refused_without_a_trace(strings: World) -> None:
    before = strings.count()
    first = {text: _started(strings, key=text) for text in STRINGS[::6]}
    again = {text: _started(strings, key=text) for text in STRINGS[::6]}
    assert first == again
    assert {code for _, code in first.values()} <= {"", *REFUSED}
    runs = [run_id for run_id, _ in first.values() if run_id]
    assert len(set(runs)) == len(runs)
    assert strings.count() == before + len(runs)


def test_as_references_and_names_of_workflows_they_are_not_found(strings: World) -> None:
    known = {run.run_id for run in strings.client.call("run.list", RunListPayload(limit=1000)).runs}
    for text in STRINGS:
        if not any(run_id.startswith(text) for run_id in known):
            with pytest.raises(PwfError) as caught:
                strings.client.call("run.cancel", run_id=text)
            assert caught.value.code in {"not_found", *REFUSED}, text
        with pytest.raises(PwfError) as caught:
            strings.start(text)
        assert caught.value.code in {"not_found", *REFUSED}, text


def test_as_file_names_they_are_workflows_like_others(strings: World) -> None:
    project = strings.folder("names")
    workflows = project / ".pwf" / "workflows"
    workflows.mkdir(parents=True)
    names = {text.replace("/", "_").replace("\0", "")[:60] for text in STRINGS}
    names = {name for name in names if name and not name.startswith((".", "__"))}
    for name in names:
        (workflows / f"{name}.py").write_text("from pwf import *\n" + ECHO)
    for name in sorted(names)[::60]:
        assert strings.output(strings.start(f".pwf/workflows/{name}.py", 1, cwd=project))[0] == 1
        assert strings.output(strings.start(name, 2, cwd=project))[0] == 2
    listed = {found.name for found in list_workflow_files(project, strings.home.home)}
    assert listed - names == {path.stem for path in BUILTIN_WORKFLOWS.glob("[!_]*.py")}
    assert names <= listed
