"""A mark is the same as long as nothing was changed, and another one after any change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pwf.watching import marks
from pwf.watching.marks import ABSENT, mark_of_tree


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tree/below").mkdir(parents=True)
    (tmp_path / "tree/file").write_text("one")
    (tmp_path / "tree/below/other").write_text("two")
    (tmp_path / "tree/link").symlink_to("file")
    monkeypatch.setattr(marks, "SETTLED_NS", -(10**15))  # all of it counts as old
    return tmp_path / "tree"


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes of the same length": lambda tree: (tree / "file").write_text("eno"),
    "a longer file": lambda tree: (tree / "file").write_text("longer"),
    "a file far below": lambda tree: (tree / "below/other").write_text("x"),
    "a new name": lambda tree: (tree / "below/new").touch(),
    "a new folder": lambda tree: (tree / "empty").mkdir(),
    "a name that goes": lambda tree: (tree / "below/other").unlink(),
    "another name": lambda tree: (tree / "file").rename(tree / "elif"),
    "another file of the same facts": lambda tree: _replace(tree / "file"),
    "a link that leads elsewhere": lambda tree: (
        (tree / "link").unlink(),
        (tree / "link").symlink_to("below"),
    ),
    "permissions": lambda tree: (tree / "file").chmod(0o600),
}


def _replace(path: Path) -> None:
    facts = path.stat()
    new = path.with_name("new")
    new.write_text("eno")
    os.utime(new, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    new.rename(path)


@pytest.mark.parametrize("name", CHANGES)
def test_any_change_gives_another_mark(tree: Path, name: str) -> None:
    before = mark_of_tree(str(tree))
    assert mark_of_tree(str(tree)) == before

    CHANGES[name](tree)

    assert mark_of_tree(str(tree)) != before


def test_a_single_file_has_a_mark_and_a_missing_one_says_so(tree: Path) -> None:
    before = mark_of_tree(str(tree / "file"))

    (tree / "file").write_text("eno")

    assert mark_of_tree(str(tree / "file")) not in (before, ABSENT)
    assert mark_of_tree(str(tree / "gone")) == ABSENT


def test_what_was_written_just_now_agrees_with_no_later_mark(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    young = mark_of_tree(str(tmp_path))

    later = time.monotonic() + 5
    while mark_of_tree(str(tmp_path)) == young:
        assert time.monotonic() < later


def test_a_tree_without_end_is_looked_at_up_to_its_bound(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "ENTRIES_MAX", 3)

    assert mark_of_tree(str(tree)) == mark_of_tree(str(tree)) != ABSENT
