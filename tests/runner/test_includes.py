"""What a file includes by name or by path is recorded with it, and a run executes what was recorded (C1)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.runner.project import Project, run_pinned, sources, with_pinned

CHILD = """
from pwf import Workflow
{head}
flow = Workflow("child")

@flow.compute
def step(ctx):
    return {value}
"""
PARENT = """
from pwf import Workflow

flow = Workflow("flow")
flow.graph({ways})
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("PWF_HOME", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Project(Path(os.path.realpath(tmp_path)) / "project")


def child(project: Project, path: str, value: str, head: str = "") -> Path:
    return project.write(path, CHILD.format(value=value, head=head))


def parent(project: Project, *included: str) -> None:
    ways = [f"flow.include({given!r}, id='m{number}')" for number, given in enumerate(included)]
    project.write(".pwf/workflows/flow.py", PARENT.format(ways=" >> ".join(ways)))


def test_an_included_file_is_recorded_with_what_it_imports_and_executed_as_it_was(project: Project) -> None:
    child(project, ".pwf/workflows/child.py", "words.WORD", head="import words")
    words = project.write(".pwf/workflows/words.py", "WORD = 'recorded'")
    parent(project, "child", "./child.py")
    definition = project.definition()
    found = sources(definition)["child.py"]
    assert found.kind == "included"
    assert found.module.split("\n") == [found.path, "child"]
    assert sources(definition)["words.py"].kind == "module"
    bundle = project.bundle()
    words.write_text("WORD = 'edited'")
    assert run_pinned(bundle, "m0.step") == "recorded"
    shutil.rmtree(project.root)
    assert run_pinned(bundle, "m1.step") == "recorded"
    assert with_pinned(bundle, lambda flow: list(flow.nodes)) == ["m0", "m0.step", "m1", "m1.step"]


def test_a_name_means_the_project_s_file_before_the_user_s_and_that_pwf_has_comes_last(
    project: Project,
) -> None:
    user = "../config/pwf/workflows/{}"
    child(project, user.format("child.py"), "beside.WORD", head="import beside")
    project.write(user.format("beside.py"), "WORD = 'the user has it'")
    parent(project, "child", "approve")
    answer = project.resolve()
    bundle = project.bundle()
    assert run_pinned(bundle, "m0.step") == "the user has it"
    assert with_pinned(bundle, lambda flow: flow.exits)["m1"] == ("m1.go", "m1.stop", "m1.revise")
    hiding = project.root / ".pwf/workflows/child.py"
    assert answer.watch[str(hiding)] is None, "the answer is over when a file comes to stand there"
    child(project, ".pwf/workflows/child.py", "'the project has it'")
    assert run_pinned(project.bundle(), "m0.step") == "the project has it"


def test_a_path_is_relative_to_the_file_that_includes_it(project: Project) -> None:
    child(project, "lib/inner/child.py", "1")
    project.write("lib/middle.py", PARENT.format(ways="flow.include('inner/child.py', id='c')"))
    parent(project, "../../lib/middle.py")
    bundle = project.bundle()
    shutil.rmtree(project.root)
    assert run_pinned(bundle, "m0.c.step") == 1


def test_what_is_not_there_or_goes_round_is_said_with_its_place(project: Project) -> None:
    parent(project, "chlid")
    child(project, ".pwf/workflows/child.py", "1")
    answer = project.resolve()
    assert answer.error_code == "graph_error"
    assert answer.error is not None
    assert "flow.py:5: includes 'chlid'" in answer.error
    assert "'child'" in str(answer.hint)
    project.write(".pwf/workflows/chlid.py", PARENT.format(ways="flow.include('flow', id='x')"))
    circle = project.resolve().error
    assert circle is not None
    assert "flow.py includes" in circle
    assert "chlid.py includes" in circle


def test_an_included_file_that_is_edited_changes_what_a_later_run_executes(project: Project) -> None:
    file = child(project, ".pwf/workflows/child.py", "1")
    parent(project, "child")
    before = project.resolve()
    assert str(file) in before.watch
    child(project, ".pwf/workflows/child.py", "2")
    assert project.definition().definition_id != before.definition.definition_id  # type: ignore[union-attr]


def test_what_an_included_file_imports_is_what_it_imports_alone_or_it_is_refused(project: Project) -> None:
    child(project, "lib/child.py", "words.WORD", head="import words")
    project.write("lib/words.py", "WORD = 'its own'")
    parent(project, "../../lib/child.py")
    assert run_pinned(project.bundle(), "m0.step") == "its own"
    project.write(".pwf/workflows/words.py", "WORD = 'another'")
    answer = project.resolve()
    assert answer.error_code == "graph_error"
    assert answer.error is not None
    assert "lib/child.py:3: imports 'words', which stands beside it, and would get that of" in answer.error
    assert "rename" in str(answer.hint)
