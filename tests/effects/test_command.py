"""`RunCommand`: told by what it leaves before and after."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from pwf.effects.command import CommandFailed, RunCommand
from pwf.effects.git import GitFailed, git
from pwf.workflow.effects import NotApplied
from tests.effects.killed import KEY, is_told_right_wherever_it_is_killed


def counting(folder: Path, more: str = "") -> RunCommand:
    folder.mkdir(exist_ok=True)
    return RunCommand(words=["sh", "-c", f'echo done >> "{folder}/log"; echo said; {more}'], receipts=folder)


def happened(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_wherever_it_is_killed_it_is_told_right_or_unknown_and_never_runs_twice(tmp_path: Path) -> None:
    is_told_right_wherever_it_is_killed(
        lambda number: counting(tmp_path / str(number)),
        lambda number: happened(tmp_path / str(number)),
        may_be_unknown=True,
    )


def test_what_it_printed_is_its_output_also_when_it_is_found_again(tmp_path: Path) -> None:
    request = counting(tmp_path)
    done = request.apply(KEY)
    assert done.stdout == "said\n"
    assert request.observe(KEY).output == done


def test_a_command_that_fails_is_unknown_unless_its_exit_code_says_that_it_did_nothing(
    tmp_path: Path,
) -> None:
    failing = counting(tmp_path / "failing", "exit 3")
    with pytest.raises(CommandFailed, match="exit code 3"):
        failing.apply(KEY)
    assert failing.observe(KEY).verdict == "unknown"
    undone = RunCommand(words=[sys.executable, "-c", "exit(4)"], receipts=tmp_path, undone_exit_codes=[4])
    with pytest.raises(NotApplied, match="exit code 4"):
        undone.apply(KEY)
    assert undone.observe(KEY).verdict == "not_applied"


def test_where_nobody_could_tell_how_it_ends_it_is_not_begun(tmp_path: Path) -> None:
    request = counting(tmp_path, "exit 3")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(NotApplied, match="SIGCHLD"):
            request.apply(KEY)
        with pytest.raises(GitFailed, match="SIGCHLD"):
            git(tmp_path, "rev-parse", "HEAD")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert happened(tmp_path) == 0


@pytest.mark.parametrize(
    "words", [["/no/such/command"], ["true", "\0"], [], [None]], ids=["absent", "nul", "none", "no text"]
)
def test_a_command_that_can_not_be_run_has_not_happened(tmp_path: Path, words: list[str]) -> None:
    request = RunCommand(words=words, receipts=tmp_path)
    with pytest.raises(NotApplied, match="could not be run"):
        request.apply(KEY)
    assert request.observe(KEY).verdict == "not_applied"


def test_a_command_that_writes_its_receipt_itself_is_found_although_it_died_afterwards(
    tmp_path: Path,
) -> None:
    request = counting(
        tmp_path, 'printf mine > "$PWF_RECEIPT.part"; mv "$PWF_RECEIPT.part" "$PWF_RECEIPT"; kill -9 $$'
    )
    with pytest.raises(CommandFailed):
        request.apply(KEY)
    found = request.observe(KEY)
    assert (found.verdict, found.output.stdout) == ("applied", "mine")


def test_a_folder_of_receipts_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    request = counting(tmp_path / "receipts")
    request.apply(KEY)
    (tmp_path / "receipts").rename(tmp_path / "away")
    assert request.observe(KEY).verdict == "unknown"
    (tmp_path / "away").rename(tmp_path / "receipts")
    assert request.observe(KEY).verdict == "applied"


def test_a_command_that_succeeds_is_done_whatever_it_prints_and_whatever_becomes_of_its_receipt(
    tmp_path: Path,
) -> None:
    request = counting(tmp_path / "bytes", "printf 'a\\377'")
    done = request.apply(KEY)
    assert done.stdout == "said\na\ufffd"
    assert request.observe(KEY).output == done
    gone = counting(tmp_path / "gone", f'mv "{tmp_path}/gone" "{tmp_path}/away"')
    assert gone.apply(KEY).stdout == "said\n"
    assert gone.observe(KEY).verdict == "unknown"


def test_a_receipt_is_on_the_disk_before_it_counts(tmp_path: Path, synced: list[Path]) -> None:
    request = counting(tmp_path)
    receipt = Path(request.apply(KEY).receipt)
    synced.clear()
    assert request.observe(KEY).verdict == "applied"
    assert synced == [receipt, tmp_path]
