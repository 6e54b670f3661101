"""The daemon's log: one record a line, in files that are bounded in size and number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pwf.actors.base import logging
from pwf.actors.base.logging import LOG_FILES, Log
from pwf.actors.base.supervise import log_last_words
from tests.actors.no_log import NoLog
from tests.store.world import HandClock

LIMIT = 2_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "LOG_BYTES_MAX", LIMIT)


def records(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


def test_a_full_file_makes_room_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    log = Log(HandClock(), path)
    for number in range(1_000):
        log("some.event", number=number)
    files = [path, *(path.with_name(f"daemon.log.{number}") for number in range(1, LOG_FILES))]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(LIMIT / 2 < file.stat().st_size <= LIMIT for file in files[1:])
    kept = [number for file in reversed(files) for number in records(file)]
    assert kept == list(range(kept[0], 1_000))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_was_there_is_gone_on_with_and_one_that_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    Log(HandClock(), path)("some.event", number=1)
    log = Log(HandClock(), path)
    log("some.event", number=2)
    assert records(path) == [1, 2]
    path.unlink()
    log("some.event", number=3)
    assert records(path) == [3]


def test_where_the_file_can_not_be_opened_records_go_to_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "daemon.log"
    path.symlink_to(tmp_path / "elsewhere")
    Log(HandClock(), path)("some.event", number=1)
    assert json.loads(capfd.readouterr().err)["number"] == 1
    assert not (tmp_path / "elsewhere").exists()


def test_what_a_process_said_becomes_one_bounded_record(tmp_path: Path) -> None:
    path = tmp_path / "daemon.err"
    log = NoLog()
    log_last_words(path, log)
    path.write_bytes(b"x" * 10_000 + b"\xff the end\n")
    log_last_words(path, log)
    log_last_words(path, log)
    ((event, facts),) = log.events
    assert event == "daemon.last_words"
    assert str(facts["text"]).endswith("x\N{REPLACEMENT CHARACTER} the end")
    assert facts["bytes"] == 10_010
    assert path.read_bytes() == b""
