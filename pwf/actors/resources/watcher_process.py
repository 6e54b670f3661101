"""The process that watches files, as FileWatch sees it: started, told what to watch, listened to, ended.

Promises: it ends when its scope does, and by itself when the daemon has died. What it says is data, and bounded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
import trio

from pwf.actors.base.kept_process import KeptProcess, kept_process
from pwf.errors import RunnerCrashed
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.watching import Changed, Watch, changed_line

LINE_BYTES_MAX = 16 * 1024 * 1024
RECEIVE_BYTES = 64 * 1024
END_S = 2.0
WHAT = "the process that watches files"


class Watcher(Protocol):
    """What tells of changed files."""

    async def watch(self, marks: dict[str, str]) -> None:
        """Watch these from now on, and nothing else. Raises `RunnerCrashed` when it is gone."""
        ...

    async def changed(self) -> dict[str, str]:
        """What is otherwise than its mark, with its mark of now. Raises `RunnerCrashed` when it is gone."""
        ...


class WatcherProcess:
    """`pwf.watching.process`."""

    def __init__(self, kept: KeptProcess) -> None:
        self._kept = kept
        self._process = kept.process
        self._splitter = FrameSplitter(LINE_BYTES_MAX)
        self._told: list[Changed] = []

    async def watch(self, marks: dict[str, str]) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(msgspec.json.encode(Watch(marks=marks)) + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._ended() from error

    async def changed(self) -> dict[str, str]:
        assert self._process.stdout is not None
        while not self._told:
            data = await self._process.stdout.receive_some(RECEIVE_BYTES)
            if not data:
                raise self._ended()
            try:
                self._told += [changed_line.decode(line) for line in self._splitter.feed(bytes(data))]
            except msgspec.MsgspecError as error:
                raise RunnerCrashed(f"{WHAT} says what it may not: {error}") from error
        return self._told.pop(0).marks

    def _ended(self) -> RunnerCrashed:
        """With the last line that it printed, which most often says why."""
        said = self._kept.last_line()
        return RunnerCrashed(f"{WHAT} has ended" + (f": {said}" if said else ""))


@asynccontextmanager
async def open_watcher_process() -> AsyncIterator[WatcherProcess]:
    """Start it. Raises `RunnerCrashed` where it can't be started."""

    async def end(process: trio.Process) -> None:
        process.kill()  # it has nothing to end

    async with kept_process(WHAT, ["pwf.watching.process"], end=end, end_s=END_S) as kept:
        yield WatcherProcess(kept)
