"""What a start takes along from where it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pwf.client.origin import origin, with_wanted
from pwf.errors import ConfigError, InvalidArgument, VariablesWanted
from pwf.places import Places, places
from pwf.protocol.operations import StartPayload


@pytest.fixture
def at(tmp_path: Path) -> Places:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "project" / ".pwf").mkdir(parents=True)
    return places({"PWF_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})


HAS = {"PATH": "/bin", "CI": "1", "GITHUB_TOKEN": "t", "OTHER": "o"}


def test_variables_that_either_configuration_names_are_passed_on(at: Places, tmp_path: Path) -> None:
    at.config.write_text('[environment]\npass = ["CI"]\n')
    project = tmp_path / "project"
    (project / ".pwf" / "config.toml").write_text('[environment]\npass = ["GITHUB_*"]\n')
    found = origin(at, "release", cwd=project, environment=HAS)
    assert found.environment == {"PATH": "/bin", "CI": "1", "GITHUB_TOKEN": "t"}
    assert not found.whole


def test_the_project_of_a_file_that_is_given_by_path_counts(at: Places, tmp_path: Path) -> None:
    (tmp_path / "project" / ".pwf" / "config.toml").write_text('[environment]\npass = ["CI"]\n')
    found = origin(at, "project/release.py", cwd=tmp_path, environment=HAS)
    assert found.environment == {"PATH": "/bin", "CI": "1"}


def test_a_projects_file_that_others_can_change_is_refused(at: Places, tmp_path: Path) -> None:
    path = tmp_path / "project" / ".pwf" / "config.toml"
    path.write_text("")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="others can change"):
        origin(at, "release", cwd=tmp_path / "project", environment=HAS)


def test_what_a_caller_gives_is_over_what_is_set_here(at: Places, tmp_path: Path) -> None:
    found = origin(at, cwd=tmp_path, environment=HAS, more={"PATH": "/opt", "STAGE": "test"})
    assert found.environment == {"PATH": "/opt", "STAGE": "test"}


@pytest.mark.parametrize("name", ["", "A=B", "A\0", "PWF_RUN_MARKER"])
def test_a_name_that_no_run_can_have_is_refused(at: Places, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument):
        origin(at, cwd=tmp_path, environment=HAS, more={name: "x"})


def test_what_a_workflow_declares_is_brought_as_far_as_it_is_set_here(at: Places, tmp_path: Path) -> None:
    first = StartPayload(
        workflow="release", origin=origin(at, cwd=tmp_path, environment=HAS, more={"STAGE": "test"})
    )
    wanted = VariablesWanted(details={"names": ["GITHUB_TOKEN", "ABSENT"]})
    again = with_wanted(first, wanted, HAS | {"STAGE": "of the shell"})
    assert again.origin.environment == {"PATH": "/bin", "STAGE": "test", "GITHUB_TOKEN": "t"}
    assert again.origin.whole
