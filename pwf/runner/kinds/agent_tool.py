"""The tool by which an agent that works by itself hands in the result of its step, and hears at once what comes of it.

Owns a private socket for as long as the step lasts, whose name is in the agent's environment, and in that of all that
it starts. Promises: only processes below this one are heard; nothing but this step's result can be said; a connection
that goes wrong costs that connection. It is served on the main thread, while the agent is: who judges is the author's
code.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec

from pwf import host
from pwf.protocol.own_step import STEP, SUBMIT_VARIABLE, VARIABLE, ReadStep, StepAnswer, read_asked
from pwf.runner.kinds.command import Running

CONNECTIONS_MAX = 16
RECEIVE_BYTES = 256 * 1024
#: For the agent to end its turn, once its result is accepted: till then only this process has it. Less than a daemon
#: that stops waits for a step (`drain_s` is 10 unless set), also with the second that the agent then has to end.
ACCEPTED_S = 8.0
ANSWER_S = 2.0  # for the other side to take its answer
AROUND_BYTES = 1_024  # of a message, around its value
DISCARDED_BYTES_MAX = (
    64 * 1024 * 1024
)  # of one that is too long, so that who says it has an ear for the answer
COMMAND = (sys.executable, "-P", "-m", "pwf")
SERVES = (*COMMAND[1:], "mcp", "serve", "--grant", "step")  # an MCP server, by the same interpreter
SUBMITS = shlex.join((*COMMAND, "submit", STEP))


class _Line:
    """What a connection has said. Only what may be a message is kept."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0


class Tool:
    """See the module. `judge` gets a value as it was submitted, and raises nothing."""

    def __init__(
        self, judge: Callable[[bytes], StepAnswer], schema: msgspec.Raw, value_bytes_max: int
    ) -> None:
        self._judge = judge
        self._schema = schema
        self._line_bytes_max = value_bytes_max + AROUND_BYTES
        self._running: Running | None = None
        self._heard: dict[socket.socket, _Line] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self.address = host.bind_private(self._listener)
            self._listener.listen(CONNECTIONS_MAX)
            self._listener.setblocking(False)
        except BaseException:
            self._listener.close()
            raise

    def environment(self) -> dict[str, str]:
        """What the agent is started with."""
        return {**os.environ, **self.names()}

    def names(self) -> dict[str, str]:
        """What of it leads here."""
        return {VARIABLE: self.address, SUBMIT_VARIABLE: SUBMITS}

    def serve(self, running: Running) -> None:
        """From now on, as long as this one is served."""
        self._running = running
        running.watch(self._listener.fileno(), self._accept)

    def rest(self) -> None:
        """Nobody is served any more; who is connected is let go."""
        if self._running is not None:
            for connection in list(self._heard):
                self._let_go(connection)
            self._running.unwatch(self._listener.fileno())
            self._running = None

    def close(self) -> None:
        """The step is over."""
        self.rest()
        self._listener.close()
        host.unbind_private(self.address)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone again, or there is no descriptor left just now
            return
        if self._running is None or len(self._heard) >= CONNECTIONS_MAX or not _is_below(connection):
            connection.close()
            return
        connection.setblocking(False)
        self._heard[connection] = _Line()
        self._running.watch(connection.fileno(), lambda: self._read(connection))

    def _read(self, connection: socket.socket) -> None:
        heard = self._heard[connection]
        try:
            data = connection.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        heard.size += len(data)
        if heard.size <= self._line_bytes_max:
            heard.data += data
        if data and b"\n" not in data and heard.size <= DISCARDED_BYTES_MAX:
            return
        if data:
            with suppress(OSError):
                connection.settimeout(ANSWER_S)
                connection.sendall(msgspec.json.encode(self._answer(heard)))
        self._let_go(connection)

    def _answer(self, heard: _Line) -> StepAnswer:
        if heard.size > self._line_bytes_max:
            limit = self._line_bytes_max - AROUND_BYTES
            return StepAnswer(
                verdict="rejected", reason=f"it is larger than the limit of a value, {limit:,} bytes"
            )
        try:
            asked = read_asked(heard.data)
        except (msgspec.MsgspecError, RecursionError) as error:
            return StepAnswer(verdict="rejected", reason=f"it can not be read: {error}")
        if isinstance(asked, ReadStep):
            return StepAnswer(verdict="wanted", schema=self._schema)
        assert self._running is not None
        with self._running.lifted():
            answer = self._judge(bytes(asked.value))
        if answer.verdict == "accepted":
            self._running.hurry(ACCEPTED_S)
        return answer

    def _let_go(self, connection: socket.socket) -> None:
        del self._heard[connection]
        if self._running is not None:
            self._running.unwatch(connection.fileno())
        connection.close()


def _is_below(connection: socket.socket) -> bool:
    """Whether a process of this step has connected."""
    try:
        peer = host.peer_process(connection)
    except OSError:
        return False
    return peer is not None and peer in host.descendants(os.getpid())
