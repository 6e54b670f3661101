"""What type checkers know about a workflow. One run of mypy over the right sample and a wrong one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).with_name("typing_sample.py")
ROOT = SAMPLE.parents[2]

WRONG = """\
import msgspec
from pwf import Context, Workflow, idempotent
class Input(msgspec.Struct):
    version: str
class Review(msgspec.Struct):
    score: int
flow = Workflow("wrong", input=Input)
@flow.compute
def review(ctx: Context[Input]) -> Review:
    return Review(ctx.input.versoin)
@flow.compute
def late(ctx: Context[Input]) -> str:
    return ctx[review].score
@flow.action()
def bare(ctx: Context[Input]) -> None: ...
@flow.shell(effect=idempotent("x"), parse="jsn")
def run(ctx: Context[Input]) -> list[str]:
    return ["ls"]
@flow.shell(effect=idempotent("x"))
def number(ctx: Context[Input]) -> int:
    return 3
@flow.wait
def nap(ctx: Context[Input]) -> int:
    return 3
"""
WRONG_LINES = {10, 13, 14, 16, 19, 22}


@pytest.mark.rest
def test_a_type_checker_knows_every_node_and_finds_mistakes(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong_sample.py"
    wrong.write_text(WRONG)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    done = subprocess.run(
        [*command, SAMPLE, wrong], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert {int(line.split(":")[1]) for line in found if line.startswith(str(wrong))} == WRONG_LINES, (
        done.stdout
    )
    assert [line for line in found if not line.startswith(str(wrong))] == []
    assert done.stderr == ""
