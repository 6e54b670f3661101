"""What others can change is not executed: files, folders and environments, on every way to them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from pwf import watch
from pwf.actors.code.whereabouts import Where, Whereabouts
from pwf.discovery import Found
from pwf.errors import Untrusted
from pwf.protocol.origin import Origin
from tests.actors.test_whereabouts import PAUSE_S

STRANGER = 4_321


class Place:
    """A project with a workflow and an environment, a user's workflow, and who asks from the project's root."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.above = folder / "above"
        self.project = self.above / "project"
        self.file = self.project / ".pwf" / "workflows" / "flow.py"
        self.config = folder / "config" / "config.toml"
        self.own = self.config.parent / "workflows" / "own.py"
        self.venv = self.project / ".venv"
        self.packages = self.venv / "lib" / "python3.11" / "site-packages"
        for path in (self.file, self.own, self.packages / "pwf" / "__init__.py", self.venv / "pyvenv.cfg"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            path.write_text("# Workflow")
            path.chmod(0o644)
        (self.venv / "bin").mkdir()
        (self.venv / "bin" / "python").symlink_to(sys.executable)
        self.whereabouts = Whereabouts(self.config, None)
        time.sleep(PAUSE_S)

    def ask(self, workflow: str = "flow", cwd: Path | None = None) -> Where:
        origin = Origin(cwd=str(cwd or self.project), python=sys.executable)
        return self.whereabouts.find(workflow, origin)

    def trust(self, *folders: Path) -> None:
        self.config.write_text(f"trusted_folders = [{', '.join(repr(str(folder)) for folder in folders)}]")

    def give_away(self, path: Path) -> None:
        """Only root can do it in earnest; to everybody else all that is theirs belongs to somebody else from now on."""
        if os.geteuid() == 0:
            os.chown(path, STRANGER, -1)
        else:
            uid = os.geteuid() + 1
            self._monkeypatch.setattr(os, "geteuid", lambda: uid)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(watch, "SETTLED_NS", 10_000_000)
    return Place(tmp_path, monkeypatch)


PARTS = {
    "file": "above/project/.pwf/workflows/flow.py",
    "its folder": "above/project/.pwf/workflows",
    "a folder between": "above/project/.pwf",
    "the root": "above/project",
    "a folder above": "above",
    "the environment": "above/project/.venv",
    "its settings": "above/project/.venv/pyvenv.cfg",
    "its programs": "above/project/.venv/bin",
    "its packages": "above/project/.venv/lib/python3.11/site-packages",
}


def test_what_only_the_user_and_root_can_change_is_executed(place: Place) -> None:
    assert place.ask().interpreter == str(place.venv / "bin" / "python")
    assert place.ask("own").found.scope == "user"


@pytest.mark.parametrize("part", PARTS)
def test_what_everyone_can_write_is_refused_with_the_path_and_what_to_type(
    place: Place, tmp_path: Path, part: str
) -> None:
    path = tmp_path / PARTS[part]
    path.chmod(0o777)

    with pytest.raises(Untrusted) as caught:
        place.ask()

    assert "is not trusted" in caught.value.message
    assert str(path) in caught.value.message
    assert "everyone can write it (mode 0777)" in caught.value.message
    assert caught.value.hint == (
        f"chmod go-w {path}; or, if they may run programs as you: "
        f'trusted_folders = ["{place.project}"] in {place.config}'
    )


@pytest.mark.parametrize("part", PARTS)
def test_what_belongs_to_another_user_is_refused(place: Place, tmp_path: Path, part: str) -> None:
    place.give_away(tmp_path / PARTS[part])

    with pytest.raises(Untrusted, match="it belongs to ") as caught:
        place.ask()

    assert f'trusted_folders = ["{place.project}"]' in (caught.value.hint or "")
    assert "chmod" not in (caught.value.hint or "")


@pytest.mark.parametrize("part", PARTS)
def test_what_has_become_writable_since_it_was_looked_at_is_refused(
    place: Place, tmp_path: Path, part: str
) -> None:
    place.ask()
    (tmp_path / PARTS[part]).chmod(0o777)

    with pytest.raises(Untrusted):
        place.ask()


@pytest.mark.parametrize("part", PARTS)
def test_a_trusted_folder_is_executed_from_at_once_whoever_can_write_in_it(
    place: Place, tmp_path: Path, part: str
) -> None:
    (tmp_path / PARTS[part]).chmod(0o777)
    with pytest.raises(Untrusted):
        place.ask()

    place.trust(place.project)
    assert place.ask().found.root == place.project
    assert place.ask().found.root == place.project

    place.trust(place.project / "other")
    with pytest.raises(Untrusted):
        place.ask()


def test_trust_in_a_folder_is_none_in_its_neighbours(place: Place) -> None:
    other = place.above / "project2"
    (other / ".pwf" / "workflows").mkdir(parents=True)
    (other / ".pwf" / "workflows" / "flow.py").write_text("# Workflow")
    place.above.chmod(0o777)
    place.trust(place.project)

    assert place.ask().found.root == place.project
    with pytest.raises(Untrusted):
        place.ask(cwd=other)


def test_a_sticky_folder_may_stand_above_a_project_but_not_be_one_or_hold_a_workflow(place: Place) -> None:
    place.above.chmod(0o1777)
    assert place.ask().found.root == place.project

    (place.above / "flow.py").write_text("# Workflow")
    with pytest.raises(Untrusted, match="the workflow's folder"):
        place.ask(str(place.above / "flow.py"))
    with pytest.raises(Untrusted, match=f"the project {place.above} is not trusted"):
        place.ask("own", cwd=place.above)


def test_a_link_of_another_user_on_the_way_is_refused_though_it_leads_to_what_is_ours(
    place: Place, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "middle").symlink_to(place.project)
    (tmp_path / "link").symlink_to(shared / "middle")
    assert place.ask(str(tmp_path / "link" / ".pwf" / "workflows" / "flow.py")).found.name == "flow"

    shared.chmod(0o777)  # now they can make it lead elsewhere
    with pytest.raises(Untrusted, match=f"{shared}: everyone can write it"):
        place.ask(str(tmp_path / "link" / ".pwf" / "workflows" / "flow.py"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives links away")
def test_a_link_in_a_sticky_folder_is_its_owners_to_change(place: Place, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "flow.py").symlink_to(place.file)
    os.chown(shared / "flow.py", STRANGER, -1, follow_symlinks=False)
    (place.file.parent / "linked.py").symlink_to(shared / "flow.py")

    with pytest.raises(Untrusted, match=f"{shared}/flow.py: it belongs to uid 4321"):
        place.ask("linked")


def test_an_environment_that_is_not_used_is_not_looked_at(place: Place) -> None:
    (place.packages / "pwf" / "__init__.py").unlink()
    place.venv.chmod(0o777)

    assert place.ask().interpreter == sys.executable


def test_a_file_that_is_known_is_looked_at_again(place: Place) -> None:
    found = Found("flow", place.file, "path", place.project)  # as a restart has it
    place.file.chmod(0o646)

    with pytest.raises(Untrusted):
        place.whereabouts.chosen(found, Origin(cwd=str(place.project), python=sys.executable))


@pytest.mark.parametrize("part", ["disk.py", ""], ids=["its file", "its folder"])
def test_a_resource_manager_that_others_can_change_is_refused_until_its_folder_is_trusted(
    place: Place, part: str
) -> None:
    folder = place.project / ".pwf" / "resources"
    folder.mkdir()
    (folder / "disk.py").write_text("# ResourceManager")
    origin = Origin(cwd=str(place.project), python=sys.executable)
    assert place.whereabouts.find("disk", origin, sort="resources").found.path == folder / "disk.py"
    (folder / part).chmod(0o777)

    with pytest.raises(Untrusted, match="the manager") as caught:
        place.whereabouts.find("disk", origin, sort="resources")
    assert "chmod go-w" in (caught.value.hint or "")
    place.trust(place.project)
    assert place.whereabouts.find("disk", origin, sort="resources").found.name == "disk"
