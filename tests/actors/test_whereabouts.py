"""What a start means is remembered, and never otherwise than a fresh look would say."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pwf import watch
from pwf.actors.code import whereabouts
from pwf.actors.code.whereabouts import Where, Whereabouts
from pwf.discovery import choose_interpreter, find_workflow_file
from pwf.errors import NotFound, PwfError
from pwf.protocol.origin import Origin

PAUSE_S = 0.012  # between two changes: longer than any file system's tick here


@pytest.fixture(autouse=True)
def _soon_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SETTLED_NS", 10_000_000)


class Place:
    """A project two folders deep, and who asks from within it."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "home"
        self.project = self.top / "project"
        self.cwd = self.project / "src"
        self.config = folder / "config"
        self.file = self.project / ".pwf" / "workflows" / "flow.py"
        self.cwd.mkdir(parents=True)
        self.file.parent.mkdir(parents=True)
        self.file.write_text("# Workflow")
        self.whereabouts = Whereabouts(self.config / "config.toml", None)
        self.origin = Origin(cwd=str(self.cwd), python=sys.executable)
        time.sleep(PAUSE_S)

    def ask_from(self, cwd: Path) -> None:
        cwd.parent.mkdir(exist_ok=True)
        self.cwd = cwd
        self.origin = Origin(cwd=str(cwd), python=sys.executable)

    def now(self) -> Where | str:
        try:
            found = find_workflow_file("flow", self.cwd, self.config)
            return Where(found, choose_interpreter(found.root, None, sys.executable))
        except PwfError as error:
            return error.code

    def remembered(self) -> Where | str:
        try:
            return self.whereabouts.find("flow", self.origin)
        except PwfError as error:
            return error.code


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_has_not_changed_is_not_looked_up_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, shared = whereabouts._marks, set(map(str, place.top.parents))  # where others write meanwhile
    monkeypatch.setattr(whereabouts, "_marks", lambda paths: marks(set(paths) - shared))
    first = place.whereabouts.find("flow", place.origin)

    def never(*_: Any) -> Any:
        raise AssertionError("looked up")

    monkeypatch.setattr(whereabouts, "find_workflow_file", never)
    monkeypatch.setattr(whereabouts, "choose_interpreter", never)

    assert place.whereabouts.find("flow", place.origin) is first
    assert first.found.root == place.project


def test_a_refusal_is_not_remembered(place: Place) -> None:
    with pytest.raises(NotFound):
        place.whereabouts.find("later", place.origin)
    place.file.with_name("later.py").write_text("# Workflow")

    assert place.whereabouts.find("later", place.origin).found.name == "later"


def test_a_project_that_was_moved_and_linked_back_has_its_new_root(place: Place) -> None:
    assert place.whereabouts.find("flow", place.origin).found.root == place.project
    moved = place.project.with_name("moved")
    place.project.rename(moved)
    place.project.symlink_to(moved)

    assert place.whereabouts.find("flow", place.origin).found.root == moved


@pytest.mark.parametrize("name", [".pwf", ".git"])
@pytest.mark.parametrize("cwd", ["link", "link/.."])
def test_a_folder_that_only_a_link_leads_into_is_on_the_way(tmp_path: Path, name: str, cwd: str) -> None:
    place = Place(tmp_path / "here")
    below = place.project / "a" / "b" / "c"
    below.mkdir(parents=True)
    place.ask_from(tmp_path / "elsewhere" / "link")
    place.cwd.symlink_to(below)
    place.ask_from(tmp_path / "elsewhere" / cwd)
    (place.config / "workflows").mkdir(parents=True)
    (place.config / "workflows" / "flow.py").write_text("# Workflow")
    time.sleep(PAUSE_S)
    first = place.remembered()
    assert place.remembered() == first

    (place.project / "a" / name).mkdir()

    assert place.remembered() == place.now()


@pytest.mark.parametrize(
    "link",
    [
        "src/.pwf",
        ".pwf/workflows/flow.py",
        ".venv/bin/python",
        ".venv/lib/python3.11/site-packages/pwf",
        ".venv/lib/python3.11/site-packages/pwf/__init__.py",
    ],
)
def test_what_a_dangling_link_leads_to_may_come_later(tmp_path: Path, link: str) -> None:
    place = Place(tmp_path / "here")
    (place.config / "workflows").mkdir(parents=True)
    shutil.copy(place.file, place.config / "workflows")
    for name in (".venv/bin/python", ".venv/lib/python3.11/site-packages/pwf/__init__.py"):
        (place.project / name).parent.mkdir(parents=True, exist_ok=True)
        (place.project / name).touch(0o755)
    named = place.project / link
    target = tmp_path / "elsewhere" / "target"
    target.parent.mkdir()
    if named.exists():
        named.rename(target.with_name("kept"))
    named.symlink_to(target)
    time.sleep(PAUSE_S)
    before = place.remembered()
    assert place.remembered() == before

    target.mkdir() if link.endswith(".pwf") else target.with_name("kept").rename(target)

    assert place.remembered() == place.now() != before


def test_a_project_that_comes_about_above_a_file_given_by_path_owns_it(tmp_path: Path) -> None:
    place = Place(tmp_path / "here")
    file = tmp_path / "elsewhere" / "deep" / "flow.py"
    file.parent.mkdir(parents=True)
    file.write_text("# Workflow")
    time.sleep(PAUSE_S)
    assert place.whereabouts.find(str(file), place.origin).found.root == file.parent

    (tmp_path / "elsewhere" / ".pwf").mkdir()

    assert place.whereabouts.find(str(file), place.origin).found.root == tmp_path / "elsewhere"


@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_always_that_of_a_fresh_look(place: Place, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(50):
        change(source, place)
        time.sleep(PAUSE_S)
        assert place.remembered() == place.now()
        assert place.remembered() == place.now()


def change(source: random.Random, place: Place) -> None:
    venv = place.project / ".venv"
    names = [
        *(folder / ".pwf" / "workflows" / "flow.py" for folder in (place.top, place.project, place.cwd)),
        *(folder / ".pwf" for folder in (place.top, place.project, place.cwd)),
        *(folder / ".git" for folder in (place.top, place.project, place.cwd)),
        place.config / "workflows" / "flow.py",
        venv / "bin" / "python",
        venv / "lib" / "python3.11" / "site-packages" / "pwf" / "__init__.py",
        venv,
    ]
    name = source.choice(names)
    if os.path.lexists(name):
        shutil.rmtree(name) if name.is_dir() else name.unlink()
    elif name.name in (".pwf", ".git", ".venv"):
        name.mkdir(parents=True, exist_ok=True)
    else:
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_text("")
        name.chmod(source.choice((0o755, 0o644)))
