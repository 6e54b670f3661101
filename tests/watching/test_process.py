"""The process that watches: what differs from its mark is told, at once and later, with real files."""

from __future__ import annotations

import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from pwf.actors.resources.watcher_process import open_watcher_process
from pwf.errors import RunnerCrashed
from pwf.protocol.watching import Watch, changed_line
from pwf.watching.marks import mark_of_tree

PATIENCE_S = 30


class Watcher:
    def __init__(self, *program: str) -> None:
        words = program or ("-m", "pwf.watching.process")
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def watch(self, *paths: Path) -> None:
        """Watch these as they are now, once what was written is old enough."""
        marks = {str(path): _settled(path) for path in paths}
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(Watch(marks=marks)) + b"\n")
        self.process.stdin.flush()

    def told(self) -> set[str]:
        """The paths of the next line."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE_S)[0], "nothing was told"
        return set(changed_line.decode(self.process.stdout.readline()).marks)

    def wait_for(self, path: Path) -> None:
        """Until it is told of; one change may be told of in two lines, if it was seen half done."""
        while str(path) not in self.told():
            pass

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def _settled(path: Path) -> str:
    """Its mark, once that stays the same."""
    while (mark := mark_of_tree(str(path))) != mark_of_tree(str(path)) or _is_young(path):
        pass
    return mark


def _is_young(path: Path) -> bool:
    first = mark_of_tree(str(path))
    until = time.monotonic() + 0.03
    while time.monotonic() < until:
        pass
    return mark_of_tree(str(path)) != first


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    found = Watcher()
    yield found
    if found.process.poll() is None:
        found.close()


def test_a_change_before_it_watched_is_told_at_once(watcher: Watcher, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    assert watcher.process.stdin is not None
    line = msgspec.json.encode(Watch(marks={str(file): "another", str(tmp_path / "gone"): "absent"}))
    watcher.process.stdin.write(line + b"\n")
    watcher.process.stdin.flush()

    assert watcher.told() == {str(file)}


def test_changes_are_told_as_they_come_and_what_is_replaced_is_still_watched(
    watcher: Watcher, tmp_path: Path
) -> None:
    folder, file, missing = tmp_path / "folder", tmp_path / "file", tmp_path / "not/yet"
    (folder / "deep").mkdir(parents=True)
    file.write_text("one")
    watcher.watch(folder, file, missing)

    (folder / "deep" / "new").write_text("x")
    assert watcher.told() == {str(folder)}
    file.unlink()
    watcher.wait_for(file)
    missing.parent.mkdir()
    missing.write_text("here")
    watcher.wait_for(missing)
    shutil.rmtree(folder)
    folder.mkdir()
    watcher.wait_for(folder)


def test_it_ends_when_nobody_listens_any_more(watcher: Watcher, tmp_path: Path) -> None:
    watcher.watch(tmp_path)

    assert watcher.close() == 0


BLIND = """
import errno
from pwf.watching import process

def watch(*paths, **options):
    raise OSError(errno.ENOSPC, "no watches are left")

process.watch, process.LOOK_S = watch, 0.1
process.main()
"""


def test_where_the_kernel_has_no_watches_left_it_looks_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    watcher = Watcher("-c", BLIND)
    watcher.watch(file)

    file.write_text("another")

    assert watcher.told() == {str(file)}
    assert watcher.close() == 0


def test_one_that_ends_by_itself_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "watchfiles.py").write_text("raise ImportError('no watchfiles today')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def hear() -> None:
        async with open_watcher_process() as watcher:
            with trio.fail_after(PATIENCE_S), pytest.raises(RunnerCrashed, match="no watchfiles today"):
                await watcher.changed()

    trio.run(hear)
