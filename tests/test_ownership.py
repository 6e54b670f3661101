"""Who can write what: everyone, groups, other users; on the whole way to a file, and of what a link leads to."""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path

import pytest

from pwf.errors import HomeRefused
from pwf.ownership import check_own, make_folder, open_own, others_can_write, stranger_on_way

STRANGER = 4_321
WRITE = os.O_WRONLY | os.O_CREAT | os.O_APPEND
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "file"
    path.parent.mkdir(mode=0o755)
    path.write_text("it")
    path.chmod(0o644)
    return path


def why(path: Path) -> str | None:
    return others_can_write(path, path.lstat())


def test_what_only_the_user_can_write_has_no_stranger_on_its_way(file: Path) -> None:
    assert stranger_on_way(file) is None
    assert why(file) is None


def test_what_everyone_can_write_has_and_so_has_all_that_lies_below(file: Path) -> None:
    file.chmod(0o646)
    assert stranger_on_way(file) == (file, "everyone can write it (mode 0646)")
    file.chmod(0o644)
    file.parent.chmod(0o777)
    found = stranger_on_way(file)
    assert found is not None
    assert found.path == file.parent


def test_a_sticky_folder_above_lets_nobody_replace_the_files_of_others(file: Path) -> None:
    file.parent.chmod(0o1777)
    assert stranger_on_way(file) is None
    assert why(file.parent) is not None  # but anybody can put a file there


def test_the_group_of_the_users_own_name_is_private_and_another_is_not(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.chmod(0o664)
    import pwd

    me = pwd.getpwuid(os.geteuid())

    def group(name: str, members: list[str]) -> None:
        found = grp.struct_group((name, "x", me.pw_gid, members))
        monkeypatch.setattr(grp, "getgrgid", lambda gid: found)

    os.chown(file, -1, me.pw_gid)
    group(me.pw_name, [])
    assert why(file) is None
    group(me.pw_name, [me.pw_name, "bob"])
    assert why(file) == f"group {me.pw_name} can write it (mode 0664)"
    group("staff", [])
    assert why(file) == "group staff can write it (mode 0664)"


def test_an_access_list_that_lets_others_write_is_seen(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o664)
    monkeypatch.setattr("pwf.ownership._is_private_group", lambda gid: True)
    monkeypatch.setattr(os, "getxattr", lambda *_, **__: b"a list", raising=False)
    assert why(file) == "its access list lets others write it"


@as_root
def test_what_belongs_to_another_user_is_theirs_to_change(file: Path) -> None:
    os.chown(file, STRANGER, -1)
    assert stranger_on_way(file) == (file, "it belongs to uid 4321")
    os.chown(file, 0, -1)
    os.chown(file.parent, STRANGER, -1)
    assert stranger_on_way(file) == (file.parent, "it belongs to uid 4321")


def test_of_a_link_its_own_folder_counts_and_what_it_leads_to(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "links" / "link"
    link.parent.mkdir()
    link.symlink_to(file)
    assert stranger_on_way(link) is None
    file.chmod(0o646)
    found = stranger_on_way(link)
    assert found is not None
    assert found.path == file
    file.chmod(0o644)
    link.parent.chmod(0o777)
    found = stranger_on_way(link)
    assert found is not None
    assert found.path == link.parent


# --- files of the home ----------------------------------------------------------------------------------------


def test_every_folder_that_is_made_on_the_way_is_the_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b" / "c")
        make_folder(tmp_path / "a" / "b" / "c")
        os.close(open_own(tmp_path / "a" / "file", WRITE))
    finally:
        os.umask(old)
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o700] * 3
    assert stat.S_IMODE((tmp_path / "a" / "file").stat().st_mode) == 0o600


def test_no_link_is_followed_to_a_file_of_the_home(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "daemon.log"
    link.symlink_to(file)
    with pytest.raises(HomeRefused, match="is a link"):
        open_own(link, WRITE)
    with pytest.raises(HomeRefused, match="is a link"):
        check_own(link)
    assert file.read_text() == "it"
    assert not check_own(tmp_path / "nothing")


def test_what_is_no_plain_file_is_refused_and_nobody_waits_for_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(HomeRefused, match="no plain file"):
            open_own(tmp_path / name, WRITE)


@as_root
def test_the_file_of_another_user_is_refused(file: Path) -> None:
    os.chown(file, STRANGER, -1)
    with pytest.raises(HomeRefused, match="belongs to uid 4321"):
        open_own(file, WRITE)
