"""A process that the daemon keeps, beside those of runs: started, ended with its scope, and why it has ended.

Promises: it bears no run's marker, has a session of its own, and is killed where it does not end by itself. What it
prints on stderr is kept as long as it lives: its last line most often says why it has ended.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import BinaryIO, NamedTuple

import trio

from pwf.errors import RunnerCrashed
from pwf.protocol.runner import MARKER_VARIABLE

COMPLAINT_BYTES = 2_000


class KeptProcess(NamedTuple):
    """`complaints`: what it has printed on stderr."""

    process: trio.Process
    complaints: BinaryIO

    def last_line(self, beginning: str = "") -> str:
        """The last line on stderr that is not empty, and begins so; "" when there is none."""
        end = self.complaints.seek(0, os.SEEK_END)
        self.complaints.seek(max(0, end - COMPLAINT_BYTES))
        lines = self.complaints.read().decode("utf-8", "replace").split("\n")
        return next(
            (line.strip() for line in reversed(lines) if line.strip() and line.startswith(beginning)), ""
        )


@asynccontextmanager
async def kept_process(
    what: str,
    module: list[str],
    *,
    end: Callable[[trio.Process], Awaitable[None]],
    end_s: float,
    stdin: int | socket.socket = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
) -> AsyncIterator[KeptProcess]:
    """Start `python -m MODULE…`. `end` asks it to end; after `end_s` it is killed, and waited for as long again.

    Raises `RunnerCrashed`, which names `what`, where it can't be started.
    """
    environment = {name: value for name, value in os.environ.items() if name != MARKER_VARIABLE}
    with tempfile.TemporaryFile() as complaints:
        try:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", *module],
                stdin=stdin,
                stdout=stdout,
                stderr=complaints,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise RunnerCrashed(f"{what} can not be started: {error}") from error
        try:
            yield KeptProcess(process, complaints)
        finally:
            with trio.CancelScope(shield=True):
                await end(process)
                for _ in range(2):
                    with trio.move_on_after(end_s):
                        await process.wait()
                    process.kill()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        await stream.aclose()
