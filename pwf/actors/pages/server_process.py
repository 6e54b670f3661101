"""The process that serves the answer pages (`pwf web`), as Pages sees it: started, ready, ended.

Promises: it ends when its scope does, and by itself when the daemon has died, which ends its stdin. It bears no
run's marker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from pwf import host
from pwf.actors.base.kept_process import KeptProcess, kept_process
from pwf.errors import RunnerCrashed
from pwf.host.identity import Identity

END_S = 3.0
ERROR = "pwf: "  # how a command says what is wrong


class Server(Protocol):
    """What serves the pages."""

    @property
    def identity(self) -> Identity | None:
        """Its process; None where it has ended at once."""
        ...

    async def ready(self) -> None:
        """It can be reached. Raises `RunnerCrashed` when it ends instead."""
        ...

    async def ended(self) -> RunnerCrashed:
        """Wait for its end; why."""
        ...


class ServerProcess:
    """`python -m pwf web --supervised`."""

    def __init__(self, kept: KeptProcess) -> None:
        self._kept = kept
        self._process = kept.process
        self.identity = host.process_identity(kept.process.pid)

    async def ready(self) -> None:
        assert self._process.stdout is not None
        if not await self._process.stdout.receive_some(100):
            raise await self.ended()

    async def ended(self) -> RunnerCrashed:
        await self._process.wait()
        said = self._kept.last_line(ERROR).removeprefix(ERROR) or self._kept.last_line()
        return RunnerCrashed(said or f"it ended with {self._process.returncode}")


@asynccontextmanager
async def open_server_process() -> AsyncIterator[ServerProcess]:
    """Start it. Raises `RunnerCrashed` where it can't be started."""

    async def end(process: trio.Process) -> None:
        process.terminate()

    async with kept_process("it", ["pwf", "web", "--supervised"], end=end, end_s=END_S) as kept:
        yield ServerProcess(kept)
