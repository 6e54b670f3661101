"""The state folder: what is made, what is mended in silence, and what is refused with what to do."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import pytest

from pwf import host
from pwf.errors import HomeRefused
from pwf.host.home import prepare_home

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_home_and_the_folders_above_it_are_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        prepare_home(tmp_path / "deep" / "pwf")
    finally:
        os.umask(old)
    assert mode(tmp_path / "deep") == mode(tmp_path / "deep" / "pwf") == 0o700


def test_a_home_that_others_could_only_read_is_made_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    prepare_home(tmp_path)
    assert mode(tmp_path) == 0o700


def test_a_home_that_its_user_made_read_only_stays_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with contextlib.suppress(HomeRefused):  # root may write it all the same
        prepare_home(tmp_path)
    assert mode(tmp_path) == 0o500


@pytest.mark.parametrize("open_mode", [0o777, 0o1777, 0o703])
def test_a_home_that_others_can_write_is_refused_as_it_is_and_names_what_lies_in_it(
    tmp_path: Path, open_mode: int
) -> None:
    (tmp_path / "config.toml").write_text('interpreter = "/tmp/theirs"')
    (tmp_path / "pwf.db").write_text("whose?")
    tmp_path.chmod(open_mode)
    with pytest.raises(HomeRefused, match=r"in it: config\.toml, pwf\.db") as caught:
        prepare_home(tmp_path)
    assert f"chmod 700 {tmp_path}" in (caught.value.hint or "")
    assert mode(tmp_path) == open_mode
    assert sorted(os.listdir(tmp_path)) == ["config.toml", "pwf.db"]


def test_an_open_home_with_many_files_names_the_first_and_counts_the_rest(tmp_path: Path) -> None:
    for number in range(11):
        (tmp_path / f"{number:02}").touch()
    tmp_path.chmod(0o777)
    with pytest.raises(HomeRefused, match="00, 01, 02, 03, 04, 05, 06, 07, and 3 more"):
        prepare_home(tmp_path)


@as_root
def test_a_private_home_with_a_file_of_another_user_is_refused_and_names_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    os.chown(tmp_path / "config.toml", 4_321, -1)
    with pytest.raises(HomeRefused, match=r"files of other users .*: config\.toml"):
        prepare_home(tmp_path)


def test_a_home_on_a_network_file_system_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "is_network_filesystem", lambda path: True)
    monkeypatch.setattr(host, "filesystem_type", lambda path: "nfs4")
    with pytest.raises(HomeRefused, match=r"network file system \(nfs4\)") as caught:
        prepare_home(tmp_path)
    assert "PWF_HOME" in (caught.value.hint or "")


def test_a_home_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(HomeRefused, match="belongs to user"):
        prepare_home(tmp_path)


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeRefused):
        prepare_home(tmp_path / "file")


def test_a_home_that_can_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, how: False)
    with pytest.raises(HomeRefused, match="can not be written"):
        prepare_home(tmp_path)
