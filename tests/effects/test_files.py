"""`WriteFile`: whole or not at all, told by digest and by the new file beside it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pwf.effects.files import ANYTHING, NOTHING, WriteFile, digest_of
from pwf.workflow.effects import NotApplied
from tests.effects.killed import KEY, is_told_right_wherever_it_is_killed

OLD, NEW = hashlib.sha256(b"old").hexdigest(), hashlib.sha256(b"new").hexdigest()


@pytest.mark.parametrize("replaces", [ANYTHING, OLD], ids=["anything", "named"])
def test_wherever_it_is_killed_it_is_told_right_and_the_file_is_whole(tmp_path: Path, replaces: str) -> None:
    def make(number: int) -> WriteFile:
        (tmp_path / f"{number}").write_text("old")
        return WriteFile(path=tmp_path / f"{number}", data="new", replaces=replaces)

    def happened(number: int) -> int:
        text = (tmp_path / f"{number}").read_text()
        assert text in ("old", "new")
        return text == "new"

    is_told_right_wherever_it_is_killed(make, happened)
    assert not list(tmp_path.glob(".*")), "nothing is left beside it"


def test_what_was_written_and_then_changed_by_another_is_unknown_where_the_request_names_what_it_replaces(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    request = WriteFile(path=path, data="new", replaces=NOTHING)
    assert request.apply(KEY).digest == NEW
    path.write_text("another's")
    assert request.observe(KEY).verdict == "unknown"
    path.unlink()
    assert request.observe(KEY).verdict == "not_applied"


def test_a_file_that_is_not_what_the_request_replaces_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("another's")
    with pytest.raises(NotApplied, match="other bytes"):
        WriteFile(path=path, data="new", replaces=OLD).apply(KEY)
    assert path.read_text() == "another's"


def test_a_folder_that_is_not_there_is_no_unknown_outcome(tmp_path: Path) -> None:
    with pytest.raises(NotApplied, match="was not written"):
        WriteFile(path=tmp_path / "no" / "file", data="new").apply(KEY)


def test_a_link_stays_a_link_and_a_script_stays_executable(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o755)
    link.symlink_to(real)
    WriteFile(path=link, data="new").apply(KEY)
    assert (link.is_symlink(), real.read_text(), os.stat(real).st_mode & 0o777) == (True, "new", 0o755)
    assert digest_of(link) == NEW
