"""`WriteFile`: whole or not at all, told by digest and by the new file beside it."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from pwf.effects.files import ANYTHING, NOTHING, WriteFile, digest_of
from pwf.workflow.effects import NotApplied
from tests.effects.killed import KEY, is_told_right_wherever_it_is_killed

OLD, NEW = hashlib.sha256(b"old").hexdigest(), hashlib.sha256(b"new").hexdigest()


@pytest.mark.parametrize("replaces", [ANYTHING, OLD, NOTHING], ids=["anything", "named", "nothing"])
def test_wherever_it_is_killed_it_is_told_right_and_the_file_is_whole(tmp_path: Path, replaces: str) -> None:
    def make(number: int) -> WriteFile:
        if replaces != NOTHING:
            (tmp_path / f"{number}").write_text("old")
        return WriteFile(path=tmp_path / f"{number}", data="new", replaces=replaces)

    def happened(number: int) -> int:
        path = tmp_path / f"{number}"
        text = path.read_text() if path.exists() else "old"
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


def test_a_file_is_on_the_disk_before_it_counts_as_written(tmp_path: Path, synced: list[Path]) -> None:
    request = WriteFile(path=tmp_path / "file", data="new")
    request.apply(KEY)
    synced.clear()
    assert request.observe(KEY).verdict == "applied"
    assert synced == [tmp_path]


def test_a_file_that_comes_in_between_is_never_written_over_where_there_must_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, look = tmp_path / "file", digest_of

    def then_another_comes(place: Path) -> str:
        found = look(place)
        path.write_text("another's")
        return found

    monkeypatch.setattr("pwf.effects.files.digest_of", then_another_comes)
    with pytest.raises(NotApplied, match="File exists"):
        WriteFile(path=path, data="new", replaces=NOTHING).apply(KEY)
    assert path.read_text() == "another's"
    assert os.listdir(tmp_path) == ["file"], "what was not written leaves nothing beside it"


def test_a_disk_that_is_full_leaves_nothing_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotApplied, match="No space left"):
        WriteFile(path=tmp_path / "file", data="new").apply(KEY)
    assert os.listdir(tmp_path) == []


def test_a_file_has_not_been_written_before_it_has_the_mode_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("new")
    path.chmod(0o644)
    request = WriteFile(path=path, data="new", mode=0o600)
    assert request.observe(KEY).verdict == "not_applied"
    request.apply(KEY)
    assert (path.stat().st_mode & 0o777, request.observe(KEY).verdict) == (0o600, "applied")


@pytest.mark.parametrize("replaces", [ANYTHING, OLD, NOTHING], ids=["anything", "named", "nothing"])
def test_a_folder_that_is_gone_tells_nothing_of_its_files(tmp_path: Path, replaces: str) -> None:
    request = WriteFile(path=tmp_path / "folder" / "file", data="new", replaces=replaces)
    assert request.observe(KEY).verdict == "unknown"


@pytest.mark.parametrize("fault", [{"data": "\ud800"}, {"path": "\0"}], ids=["data", "path"])
def test_what_can_not_be_written_has_not_happened(tmp_path: Path, fault: dict[str, str]) -> None:
    with pytest.raises(NotApplied, match="was not written"):
        WriteFile(**{"path": str(tmp_path / "file"), "data": "new", **fault}).apply(KEY)  # type: ignore[arg-type]
