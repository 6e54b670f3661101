"""The daemon's hold on a runner's pipes: last words are kept, and a step that holds the interpreter is not stuck."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pwf.actors.processes.output_ends import OutputEnds
from pwf.actors.upkeep.output_files import prepare_output


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[OutputEnds]:
    made = OutputEnds()
    made.folder, made.attempt, made.limit = str(tmp_path / "run"), 3, 1_000_000
    yield made
    made.close()


def test_what_a_dead_runner_left_in_its_pipes_is_appended_to_its_attempt(
    ends: OutputEnds, tmp_path: Path
) -> None:
    out, err = ends.of_runner[2:]
    os.write(out, b"so far, ")
    assert ends.keep() == 8
    os.write(out, b"and the last")
    os.write(err, b"fatal")
    ends.close_written()
    assert ends.keep() == 25
    assert (tmp_path / "run" / "3.out").read_bytes() == b"so far, and the last"
    assert (tmp_path / "run" / "3.err").read_bytes() == b"fatal"


def test_without_a_folder_what_they_hold_is_thrown_away(ends: OutputEnds, tmp_path: Path) -> None:
    ends.folder = ""
    os.write(ends.of_runner[2], b"x")
    assert ends.keep() == 0
    assert not list(tmp_path.iterdir())


def test_only_what_has_lain_there_for_a_whole_look_is_stuck(ends: OutputEnds) -> None:
    out = ends.of_runner[2]
    assert not ends.is_stuck()
    os.write(out, b"x")
    assert not ends.is_stuck()  # its runner may be about to read it
    assert ends.is_stuck()
    os.write(out, b"y")
    assert not ends.is_stuck()


def test_a_writer_that_waits_for_room_goes_on_when_it_is_read_here(ends: OutputEnds, tmp_path: Path) -> None:
    out = ends.of_runner[2]
    writer = threading.Thread(target=os.write, args=(out, b"w" * 300_000))
    writer.start()
    while ends.keep() < 300_000:
        writer.join(0.001)
    writer.join(5)
    assert not writer.is_alive()
    assert (tmp_path / "run" / "3.out").stat().st_size == 300_000


def test_what_another_life_of_the_home_left_is_no_runs_output(tmp_path: Path) -> None:
    folder = tmp_path / "output"
    prepare_output(folder, "first")
    (folder / "run").mkdir()
    prepare_output(folder, "first")
    assert (folder / "run").is_dir()
    prepare_output(folder, "second")
    assert not (folder / "run").exists()
    assert folder.stat().st_mode & 0o777 == 0o700
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".home").write_text("second")
    os.rename(folder, tmp_path / "aside")
    folder.symlink_to(elsewhere)
    prepare_output(folder, "second")
    assert not folder.is_symlink()
    assert (elsewhere / ".home").exists()
