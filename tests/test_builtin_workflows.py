"""The workflows that come with pwf: what each mode, answer and deadline leads to."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf import hours, minutes, testing
from pwf.builtin_workflows import approve
from pwf.discovery import BUILTIN_WORKFLOWS
from pwf.errors import InvalidInput
from pwf.protocol.graph import SourceFile
from pwf.runner.load.resolve import resolve
from pwf.testing import NO_ANSWER, run
from tests.runner.forked import forked

PAGE = Path(__file__).parents[1] / "docs/builtins.md"
INCLUDES = {"implement.py": ["plan.py"]}
BASE = {"title": "Deploy", "summary": "Deploy 1.4?"}


def left(answer: Any = NO_ANSWER, **more: Any) -> testing.Tested:
    return run(approve.flow, {**BASE, **more}, answers={"ask": answer})


@pytest.mark.parametrize("mode", ["required", "auto"])
@pytest.mark.parametrize(
    ("choice", "text"), [("go", None), ("stop", None), ("stop", "too late"), ("revise", "smaller")]
)
def test_an_approval_is_left_by_what_the_person_chose_with_the_words(
    mode: str, choice: str, text: str | None
) -> None:
    done = left({"choice": choice, "text": text}, mode=mode)
    assert done.output == approve.Approval(exit=choice, text=text)  # type: ignore[arg-type]
    assert done.title == "approve Deploy"


def test_an_approval_that_is_skipped_asks_nobody() -> None:
    done = left(mode="skip")
    assert (done.output, done.asked) == (approve.Approval(exit="go"), [])


@pytest.mark.parametrize(
    ("more", "exit", "waited"),
    [
        ({"mode": "auto"}, "go", hours(1)),
        ({"mode": "auto", "timeout_minutes": 5}, "go", minutes(5)),
        ({"mode": "auto", "default": "stop"}, "stop", hours(1)),
        ({"timeout_minutes": 5}, "stop", minutes(5)),
        ({"timeout_minutes": 0.5, "default": "stop"}, "stop", minutes(0.5)),
    ],
)
def test_when_nobody_decides_auto_takes_its_default_and_required_stops(
    more: dict[str, Any], exit: str, waited: timedelta
) -> None:
    done = left(**more)
    assert done.output == approve.Approval(exit=exit)  # type: ignore[arg-type]
    assert done.waited == waited


def test_a_required_approval_waits_for_ever_and_is_never_a_go_by_itself() -> None:
    assert left().status == "waiting"
    assert left(timeout_minutes=5, default="go").status == "failed"


def test_what_is_asked_is_shown_with_its_details() -> None:
    (asked,) = left(details="two\nlines").asked
    shown = {"title": "Deploy", "summary": "Deploy 1.4?"}
    assert asked.prompt == {**shown, "blocks": [{"block": "preformatted", "text": "two\nlines"}]}


def test_a_gate_fails_unless_it_is_a_go() -> None:
    assert left({"choice": "go", "text": None}, gate=True).status == "completed"
    failed = left({"choice": "revise", "text": "smaller"}, gate=True)
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.message == "no go: revise, smaller"


@pytest.mark.parametrize(
    "more", [{"mode": "never"}, {"timeout_minutes": 0}, {"default": "revise"}, {"mod": 1}]
)
def test_an_input_that_means_nothing_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        left(**more)


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"documented_{path.stem}".replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sources(root: Path, path: Path) -> list[SourceFile]:
    found = forked(resolve, str(path), str(root))
    assert found.definition is not None, found.error
    return list(found.definition.sources)


def test_a_built_in_workflow_is_pinned_with_what_it_includes_and_nothing_else_in_whichever_project_it_runs(
    tmp_path: Path,
) -> None:
    checkout = BUILTIN_WORKFLOWS.parents[1]
    files = sorted(BUILTIN_WORKFLOWS.glob("[!_]*.py"))
    assert files
    for path in files:
        for root in (Path(os.path.realpath(tmp_path)), checkout):
            found = {os.path.join(root, one.path) for one in sources(root, path)}
            assert found == {str(path)} | {
                str(BUILTIN_WORKFLOWS / name) for name in INCLUDES.get(path.name, ())
            }


def test_each_built_in_workflow_is_documented_with_a_start_command_whose_input_it_takes() -> None:
    commands = re.findall(r"^pwf run (\S+) .*--input '(.*)'$", PAGE.read_text("utf-8"), re.MULTILINE)
    names = {path.stem for path in BUILTIN_WORKFLOWS.glob("[!_]*.py")}
    assert {name for name, _ in commands} == names - {"approve"}  # that one is on the page of decisions
    for name, given in commands:
        flow = vars(load(BUILTIN_WORKFLOWS / f"{name}.py"))["flow"]
        msgspec.json.decode(given, type=flow.input_type)
