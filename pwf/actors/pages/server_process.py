"""The process that serves the answer pages (`pwf web`), as Pages sees it: started, ready, ended.

Promises: it ends when its scope does, and by itself when the daemon has died, which ends its stdin. It bears no
run's marker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO, Protocol

import trio

from pwf import host
from pwf.actors.base.complaints import last_line
from pwf.errors import RunnerCrashed
from pwf.host.identity import Identity
from pwf.protocol.runner import MARKER_VARIABLE

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

    def __init__(self, process: trio.Process, complaints: BinaryIO) -> None:
        self._process = process
        self._complaints = complaints
        self.identity = host.process_identity(process.pid)

    async def ready(self) -> None:
        assert self._process.stdout is not None
        if not await self._process.stdout.receive_some(100):
            raise await self.ended()

    async def ended(self) -> RunnerCrashed:
        await self._process.wait()
        said = last_line(self._complaints, ERROR).removeprefix(ERROR) or last_line(self._complaints)
        return RunnerCrashed(said or f"it ended with {self._process.returncode}")


@asynccontextmanager
async def open_server_process() -> AsyncIterator[ServerProcess]:
    """Start it. Raises `RunnerCrashed` where it can't be started."""
    environment = {name: value for name, value in os.environ.items() if name != MARKER_VARIABLE}
    with tempfile.TemporaryFile() as complaints:
        try:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "pwf", "web", "--supervised"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise RunnerCrashed(f"it can not be started: {error}") from error
        try:
            yield ServerProcess(process, complaints)
        finally:
            with trio.CancelScope(shield=True):
                process.terminate()
                with trio.move_on_after(END_S):
                    await process.wait()
                process.kill()
                await process.wait()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        await stream.aclose()
