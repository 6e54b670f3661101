"""What steps print is kept for each attempt, by the runner that executes them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pwf.protocol.step_output import read_now
from pwf.runner.base.printed import Printed
from pwf.runner.engine import Engine
from pwf.runner.hangup import HangUpWatcher
from pwf.workflow.workflow import Workflow
from tests.runner import peer
from tests.runner.peer import memory_run, run_inline

LIMIT = 4_096


class Pipes:
    """Two pipes in place of stdout and stderr."""

    def __init__(self, folder: Path) -> None:
        pipes = [os.pipe() for _ in range(2)]
        for read, _ in pipes:
            os.set_blocking(read, False)
        self.out, self.err = (write for _, write in pipes)
        self.printed = Printed((pipes[0][0], pipes[1][0]), str(folder), LIMIT)
        self._all = [end for pipe in pipes for end in pipe]

    def close(self) -> None:
        for end in self._all:
            os.close(end)


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[Pipes]:
    made = Pipes(tmp_path / "run")
    yield made
    made.close()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "run").glob("*"))}


def test_an_attempt_that_prints_nothing_makes_no_file_and_no_folder(pipes: Pipes, tmp_path: Path) -> None:
    pipes.printed.begin(1)
    assert pipes.printed.end() == 0
    assert not (tmp_path / "run").exists()


def test_each_attempt_has_its_own_files_whoever_read_them(pipes: Pipes, tmp_path: Path) -> None:
    pipes.printed.begin(1)
    os.write(pipes.out, b"one")
    assert pipes.printed.take(pipes.printed.ends[0])  # the watcher
    os.write(pipes.out, b" more")
    os.write(pipes.err, b"oops")
    assert pipes.printed.end() == 12
    pipes.printed.begin(2)
    os.write(pipes.err, b"two")
    assert pipes.printed.end() == 3
    pipes.printed.begin(3)
    assert pipes.printed.end() == 0
    assert files(tmp_path) == {"1.err": b"oops", "1.out": b"one more", "2.err": b"two"}


def test_files_of_attempts_that_were_never_committed_are_forgotten(pipes: Pipes, tmp_path: Path) -> None:
    for attempt in (1, 2, 10):
        pipes.printed.begin(attempt)
        os.write(pipes.out, b"x")
        pipes.printed.end()
    pipes.printed.forget_from(2)
    assert files(tmp_path) == {"1.out": b"x"}


def test_only_what_the_newest_attempts_printed_is_kept_and_what_is_no_attempts_stays(
    pipes: Pipes, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("2.out", "3.out", "3.err", "10.err", "11.out", "note"):
        (folder / name).write_text("x")
    pipes.printed.keep_newest(2)
    assert sorted(os.listdir(folder)) == ["10.err", "11.out", "note"]


def test_what_is_printed_between_two_runs_is_nobodys(pipes: Pipes, tmp_path: Path) -> None:
    pipes.printed.begin(1)
    os.write(pipes.out, b"one")
    pipes.printed.leave()
    os.write(pipes.out, b"nobody's")
    assert pipes.printed.take(pipes.printed.ends[0])
    os.write(pipes.out, b"nobody's")
    (tmp_path / "next").mkdir()
    pipes.printed.enter(str(tmp_path / "next" / "run"), LIMIT)
    pipes.printed.begin(1)
    os.write(pipes.out, b"two")
    assert pipes.printed.end() == 3
    assert (files(tmp_path), files(tmp_path / "next")) == ({"1.out": b"one"}, {"1.out": b"two"})


def test_what_is_printed_after_the_files_were_closed_is_appended(pipes: Pipes, tmp_path: Path) -> None:
    pipes.printed.begin(1)
    os.write(pipes.out, b"step")
    os.write(pipes.err, b"step")
    assert pipes.printed.end() == 8
    assert pipes.printed.end() == 8
    os.write(pipes.err, b" left a file open")
    assert pipes.printed.end() == 25
    assert files(tmp_path) == {"1.err": b"step left a file open", "1.out": b"step"}


def test_the_engine_says_with_each_end_how_much_is_kept(
    pipes: Pipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def loud(ctx: Any) -> None:
        os.write(pipes.out, b"l" * 100)

    @flow.compute
    def quiet(ctx: Any) -> None:
        return None

    @flow.compute
    def fails(ctx: Any) -> None:
        os.write(pipes.err, b"f" * 10_000)
        raise ValueError

    @flow.checkpoint
    def asks(ctx: Any) -> str:
        os.write(pipes.out, b"a")
        return "?"

    flow.graph(loud >> quiet >> fails, fails.on("failed") >> asks)
    monkeypatch.setattr(peer, "Engine", lambda *of: Engine(*of, pipes.printed))
    run = run_inline(flow, memory_run(flow))
    assert [message.printed for message in run.received if hasattr(message, "printed")] == [
        100,
        0,
        len(files(tmp_path)["3.err"]),
        1,
    ]
    assert set(files(tmp_path)) == {"1.out", "3.err", "4.out"}
    assert len(files(tmp_path)["3.err"]) <= LIMIT


def test_the_last_words_of_a_process_that_ends_while_they_are_read_are_in_its_file_or_still_in_the_pipe(
    tmp_path: Path,
) -> None:
    for number in range(60):
        pipes = Pipes(tmp_path / str(number) / "run")
        (tmp_path / str(number)).mkdir()
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            pipes.printed.begin(1)
            HangUpWatcher(theirs, lambda: None, printed=pipes.printed)
            time.sleep(0.001)
            os.write(pipes.err, b"fatal")
            time.sleep(number / 300_000)  # it is anywhere on the way from the pipe to the file
            os._exit(3)
        os.waitpid(pid, 0)
        read = files(tmp_path / str(number)).get("1.err", b"")
        assert read + (read_now(pipes.printed.ends[1]) or b"") == b"fatal"
        for one in (ours, theirs, pipes):
            one.close()
