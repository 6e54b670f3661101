"""A project with a workflow, and the lab run on it as a person would."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pwf.cli.main import main

Lab = Callable[..., "Found"]
CRASHES = (
    "--crashes",
    "8",
)  # each costs a run, and these find what the tests look for; a test may say how many


class Found:
    """The report of a lab, and the command's exit code."""

    def __init__(self, code: int, report: dict[str, Any]) -> None:
        self.code = code
        self.report = report
        self.findings = {(one["code"], one["node"]): one for one in report["findings"]}

    def step(self, node: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.report["steps"] if one["node"] == node)
        return found


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    """`lab(text, *words)` writes the workflow into a project and types `pwf crashlab FILE --json …`."""
    project = tmp_path / "project"
    (project / ".pwf").mkdir(parents=True)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PWF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def run(text: str, *words: str) -> Found:
        path = project / "flow.py"
        path.write_text(
            "import os\nfrom pathlib import Path\nfrom typing import Literal\nfrom pwf import *\n" + text
        )
        code = main(["crashlab", str(path), "--json", *CRASHES, *words])
        printed = capsys.readouterr()
        assert printed.out, printed.err
        assert not os.path.exists(tmp_path / "home"), "the user's own home is not touched"
        return Found(code, json.loads(printed.out))

    return run
