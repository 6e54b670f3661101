"""The workflows that come with pwf and run commands: `monitor` and `command-batch`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from pwf import minutes, testing
from pwf.builtin_workflows import monitor
from pwf.discovery import BUILTIN_WORKFLOWS
from pwf.errors import InvalidInput

GOOD = {"check": ["test", "-e", "ok"], "until": "healthy", "every_minutes": 5}
REAL = ["check", "repair"]


def watched(root: Path, answers: Any = None, **more: Any) -> testing.Tested:
    return testing.run(monitor.flow, {**GOOD, **more}, real=REAL, answers=answers or {}, root=root)


def left(done: testing.Tested) -> tuple[Any, ...]:
    assert done.status == "completed", done.error
    ended = done.output
    return ended.exit, ended.rounds


def test_what_is_well_is_left_at_once_or_watched_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "ok").touch()
    assert left(watched(tmp_path)) == ("healthy", 1)
    done = watched(tmp_path, until="rounds", rounds=3)
    assert left(done) == ("rounds", 3)
    assert done.waited == 2 * minutes(5)


def test_a_repair_under_authority_mends_it(tmp_path: Path) -> None:
    done = watched(tmp_path, authority="auto", repair=["touch", "ok"])
    assert left(done) == ("healthy", 2)
    assert done.path.count("repair") == 1


@pytest.mark.parametrize("more", [{"authority": "none", "repair": ["touch", "ok"]}, {"authority": "auto"}])
def test_without_authority_or_means_nothing_is_repaired(tmp_path: Path, more: dict[str, Any]) -> None:
    done = watched(tmp_path, rounds=3, **more)
    assert left(done) == ("rounds", 3)
    assert "repair" not in done.path
    assert left(watched(tmp_path, **more | {"until": "failed"})) == ("failed", 1)


def test_repairs_that_change_nothing_end_as_stuck(tmp_path: Path) -> None:
    done = watched(tmp_path, authority="auto", repair=["true"], patience=2)
    assert left(done) == ("stuck", 3)
    assert done.path.count("repair") == 2


def test_a_person_decides_each_repair(tmp_path: Path) -> None:
    asked = {"authority": "ask", "repair": ["touch", "ok"], "patience": 1}
    words = [
        {"choice": "leave", "text": None},
        {"choice": "leave", "text": None},
        {"choice": "repair", "text": None},
    ]
    done = watched(tmp_path, {"authorize": testing.each(*words)}, **asked)
    assert left(done) == ("healthy", 4)  # what is left alone is no repair that changed nothing
    (tmp_path / "ok").unlink()
    done = watched(tmp_path, {"authorize": {"choice": "stop", "text": "known"}}, **asked)
    assert (left(done), done.output.text) == (("stopped", 1), "known")
    assert watched(tmp_path, **asked).status == "waiting"


def test_what_has_changed_and_the_end_are_told_and_nothing_twice(tmp_path: Path) -> None:
    done = watched(tmp_path, authority="ask", repair=["touch", "ok"], rounds=9, until="rounds", answers={
        "authorize": testing.each({"choice": "leave", "text": None}, {"choice": "repair", "text": None})
    })  # fmt: skip
    told = [step.output for step in done.steps if step.node in ("tell", "close")]
    assert told == [
        "test -e ok fails: exit code 1",
        "test -e ok: all is well again",
        "test -e ok is watched no more (rounds, round 9)",
    ]


def batch_flow() -> Any:
    spec = importlib.util.spec_from_file_location("command_batch", BUILTIN_WORKFLOWS / "command-batch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.flow


@pytest.mark.parametrize(
    "wrong",
    [
        {"commands": []},
        {"commands": [{"name": "a", "words": []}]},
        {"commands": [{"name": "a", "words": ["x"]}], "parallel": 0},
    ],
)
def test_a_batch_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        testing.run(batch_flow(), wrong)
