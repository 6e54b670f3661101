"""Space that is kept back."""

import os
from types import SimpleNamespace

import pytest

from pwf.store.ballast import Ballast

SIZE = 64 * 1024


@pytest.fixture
def ballast(tmp_path):
    return Ballast(tmp_path / "ballast", SIZE)


def test_the_ballast_is_really_allocated_and_private(ballast, tmp_path):
    assert ballast.build()
    facts = (tmp_path / "ballast").stat()
    assert facts.st_size == SIZE
    assert facts.st_blocks * 512 >= SIZE
    assert facts.st_mode & 0o777 == 0o600


def test_a_platform_without_fallocate_writes_the_bytes(ballast, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    assert ballast.build()
    facts = (tmp_path / "ballast").stat()
    assert facts.st_size == SIZE
    assert facts.st_blocks * 512 >= SIZE


def test_a_file_system_that_can_not_allocate_gets_the_bytes_written(ballast, tmp_path, monkeypatch):
    def unsupported(descriptor, offset, size):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported, raising=False)
    assert ballast.build()
    assert (tmp_path / "ballast").stat().st_blocks * 512 >= SIZE


def test_it_is_released_once(ballast):
    ballast.build()
    assert ballast.release()
    assert not ballast.release()
    assert not ballast.present


def test_it_is_not_built_when_it_would_take_the_last_space(ballast, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=SIZE, f_frsize=1))
    assert not ballast.build()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_under_it_leaves_no_half_of_it(ballast, tmp_path, monkeypatch):
    def no_space(descriptor, offset, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space, raising=False)
    assert not ballast.build()
    assert list(tmp_path.iterdir()) == []


def test_a_half_that_a_crash_left_does_not_count(ballast, tmp_path):
    (tmp_path / "ballast.new").write_bytes(b"x")
    (tmp_path / "ballast").write_bytes(b"x" * 10)
    assert not ballast.present
    assert ballast.build()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ballast"]


def test_no_link_in_the_ballasts_place_is_followed(ballast, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("precious" * SIZE)
    for name in ("ballast", "ballast.new"):
        (tmp_path / name).symlink_to(theirs)
    assert not ballast.present
    assert ballast.build()
    assert ballast.present
    assert theirs.read_text() == "precious" * SIZE
    assert not (tmp_path / "ballast").is_symlink()
