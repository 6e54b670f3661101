"""The files of what a step prints: bounded, marked, and never the step's business."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pwf.protocol.step_output import MARK_BYTES, OutputFile, file_of, read_now

LIMIT = 1_024


def written(folder: Path, *pieces: bytes) -> bytes:
    file = OutputFile(str(folder), 1, "out", LIMIT)
    for piece in pieces:
        file.write(piece)
    size = file.close()
    data = (folder / "1.out").read_bytes()
    assert size == len(data)
    return data


def test_what_fits_is_kept_exactly(tmp_path: Path) -> None:
    assert written(tmp_path, b"\xff\x00", b"x" * (LIMIT - MARK_BYTES - 2))[:2] == b"\xff\x00"


def test_a_file_never_has_more_than_its_limit_and_says_how_much_is_missing(tmp_path: Path) -> None:
    data = written(tmp_path, *[b"y" * 300] * 1_000)
    assert len(data) <= LIMIT
    kept = data.count(b"y" * 10)
    assert kept
    missing = 300_000 - (LIMIT - MARK_BYTES)
    mark = f"\n[pwf: {missing:,} more bytes came, and are not kept: the limit is 1,024 bytes (max_output_bytes)]\n"
    assert data.endswith(mark.encode())


def test_the_mark_stands_there_before_the_end_so_that_a_kill_leaves_it(tmp_path: Path) -> None:
    file = OutputFile(str(tmp_path), 1, "out", LIMIT)
    file.write(b"z" * 5_000)
    assert b"[pwf: more came, and is not kept" in (tmp_path / "1.out").read_bytes()
    file.close()


def test_a_second_writer_keeps_the_limit_and_one_mark(tmp_path: Path) -> None:
    written(tmp_path, b"a" * 5_000)
    again = written(tmp_path, b"b" * 5_000)
    assert len(again) <= LIMIT
    assert again.count(b"[pwf:") == 1
    assert b"b" * 10 not in again


def test_files_and_their_folder_are_the_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = os.umask(0)
    try:
        written(folder, b"x")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "1.out").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("fault", ["link", "no folder"])
def test_a_file_that_can_not_be_written_raises_nothing_and_follows_no_link(
    tmp_path: Path, fault: str
) -> None:
    folder = tmp_path / "run"
    if fault == "link":
        folder.mkdir()
        (folder / "1.out").symlink_to(tmp_path / "elsewhere")
    else:
        folder.write_bytes(b"")
    file = OutputFile(str(folder), 1, "out", LIMIT)
    file.write(b"x")
    assert file.close() == 0
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_loses_output_and_says_so_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OutputFile(str(tmp_path), 1, "out", LIMIT)
    file.write(b"before")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        file.write(b"lost")
    file.close()
    data = Path(file_of(str(tmp_path), 1, "out")).read_bytes()
    assert data == b"before\n[pwf: 4 more bytes came, and are not kept: No space left on device]\n"


def test_reading_tells_nothing_now_from_nobody_there() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    assert read_now(read) is None
    os.write(write, b"x")
    assert read_now(read) == b"x"
    os.close(write)
    assert read_now(read) == b""
    os.close(read)


def test_what_comes_through_a_pipe_is_in_the_pipe_or_in_the_file_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    file = OutputFile(str(tmp_path), 1, "out", LIMIT)
    file.write(b"so far, ")
    assert file.take(read) is None
    with monkeypatch.context() as patch:
        patch.setattr("pwf.protocol.step_output.read_now", lambda end: pytest.fail("it is held in memory"))
        for piece in (b"one", b"two"):
            os.write(write, piece)
            assert file.take(read) == 3
            assert (tmp_path / "1.out").read_bytes().endswith(piece)
    os.write(write, b"x" * 2_000)
    while file.take(read) is not None:
        pass
    os.close(write)
    assert file.take(read) == 0
    assert file.close() <= LIMIT
    os.close(read)
    data = (tmp_path / "1.out").read_bytes()
    assert data.startswith(b"so far, onetwoxxx")
    assert b"more bytes came, and are not kept" in data


@pytest.mark.parametrize("fault", [errno.EINVAL, errno.ENOSPC])
def test_what_can_not_be_spliced_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    def refuses(*_: object, **__: object) -> int:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "splice", refuses)
    read, write = os.pipe()
    os.set_blocking(read, False)
    file = OutputFile(str(tmp_path), 1, "out", LIMIT)
    os.write(write, b"kept")
    assert file.take(read) == 4
    assert file.take(read) is None
    file.close()
    assert (tmp_path / "1.out").read_bytes() == b"kept"
    os.close(read)
    os.close(write)
