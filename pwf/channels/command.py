"""A channel that runs a program of the user's own for each message: facts as JSON on stdin, at most once.

A program that ended with 0 has told people. Any other code is a refusal that is final, since nobody knows what the
program did before; one that took too long is ended with all that it started, and ambiguous.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile

import msgspec

from pwf.channels.port import Adapter, Outcome, done, refused, unknown
from pwf.config import CommandChannel
from pwf.protocol.channel_port import ChannelMessage

ERROR_BYTES = 2_000


class CommandAdapter(Adapter[CommandChannel]):
    """See the module."""

    _running: subprocess.Popen[bytes] | None = None

    def show(self, message: ChannelMessage) -> Outcome:
        words = self.settings.command
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    [os.path.expanduser(words[0]), *words[1:]],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                )
            except OSError as error:
                return refused(f"{words[0]} can not be started: {error.strerror}")
            self._running = process
            try:
                process.communicate(facts_of(message), timeout=self.settings.timeout_s)
            except subprocess.TimeoutExpired:
                self.stop()
                process.wait()
                return unknown(f"it took longer than {self.settings.timeout_s:g} s and was ended")
            finally:
                self._running = None
            said.seek(max(0, said.seek(0, os.SEEK_END) - ERROR_BYTES))
            end = said.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        if process.returncode == 0:
            return done()
        why = f"it ended with {process.returncode}"
        return refused(f"{why}: {end}" if end else why, final=True)

    def stop(self) -> None:
        running = self._running
        if running is not None:  # not reaped: its number is its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running.pid, signal.SIGKILL)


def facts_of(message: ChannelMessage, *, token: bool = False) -> bytes:
    """What the program reads: one JSON object, without the token unless it may answer."""
    facts = {
        name: value
        for name, value in msgspec.to_builtins(message).items()
        if (token or name != "token") and value not in (None, "", [], ())
    }
    return msgspec.json.encode(facts) + b"\n"
