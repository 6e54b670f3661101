"""Watched files: what one look at a folder may stand for."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pwf import watch
from pwf.watch import Watched, mark_of, still_valid

PAUSE_S = 0.012  # between two changes: longer than any file system's tick here
NAMES = ("a.py", "b/__init__.py", "b", "c/d/e.py", "c", "link", "link/x.py")


@pytest.fixture(autouse=True)
def _soon_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SETTLED_NS", 10_000_000)


def looks(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    real = watch.mark_of

    def counted(path: str) -> watch.Mark | None:
        seen.append(path)
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(watch, "mark_of", counted)
        act()
    return seen


def test_one_look_at_the_folder_stands_for_all_that_is_absent_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(tmp_path / name) for name in ("x.py", "x.so", "x/__init__.py", "x")]
    time.sleep(PAUSE_S)
    watched = Watched(dict.fromkeys(names))
    assert watched.hold()

    assert looks(monkeypatch, watched.hold) == [str(tmp_path)]
    (tmp_path / "x.so").touch()
    assert not watched.hold()


def test_another_file_beside_the_absent_ones_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched({str(tmp_path / "x.py"): None})
    assert watched.hold()
    (tmp_path / "output.txt").touch()
    time.sleep(PAUSE_S)

    assert watched.hold()
    assert watched.hold()
    assert looks(monkeypatch, watched.hold) == [str(tmp_path)]


def test_what_a_dangling_link_leads_to_is_looked_at_by_itself(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "x.py").symlink_to(elsewhere / "real.py")
    time.sleep(PAUSE_S)
    watched = Watched({str(tmp_path / "here" / "x.py"): None})
    assert watched.hold()
    assert watched.hold()

    (elsewhere / "real.py").touch()

    assert not watched.hold()


@pytest.mark.parametrize("seed", range(3))
def test_the_answer_is_always_that_of_a_look_at_each_path(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    paths = [str(tmp_path / name) for name in NAMES]
    kept = {path: mark_of(path) for path in paths}
    time.sleep(PAUSE_S)
    watched = Watched(kept)
    for _ in range(60):
        change(source, tmp_path)
        time.sleep(PAUSE_S)
        each = all(mark_of(path) == kept[path] for path in paths)
        assert watched.hold() == each == still_valid(kept)
        if not each:  # a resolver would look afresh now
            kept = {path: mark_of(path) for path in paths}
            watched = Watched(kept)


def change(source: random.Random, root: Path) -> None:
    name = root / source.choice((*NAMES, "other", "b/other", "target", "target/x.py"))
    act = source.choice(("make", "make folder", "link", "remove", "write", "nothing"))
    if act == "remove" and os.path.lexists(name):
        if name.is_dir() and not name.is_symlink():
            shutil.rmtree(name)
        else:
            name.unlink()
    elif act == "write" and name.is_file():
        name.write_text(str(source.random()))
    elif act != "nothing" and name.parent.is_dir() and not os.path.lexists(name):
        if act == "make folder":
            name.mkdir()
        elif act == "link":
            name.symlink_to(root / "target")
        else:
            name.touch()


def test_a_look_that_began_after_somebody_asked_answers_them_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.py"
    file.touch()
    time.sleep(PAUSE_S)
    watched = Watched({str(file): watch.mark_to_keep_of(str(file))})
    asked_ns = time.monotonic_ns()
    assert watched.hold(asked_ns)
    assert looks(monkeypatch, lambda: watched.hold(asked_ns)) == []
    file.write_text("changed")
    assert not watched.hold(time.monotonic_ns()), "who asks now is not answered by it"
