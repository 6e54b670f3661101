"""The channel `mcp`: MCP hosts that put a decision before their person as a form (elicitation), and bring answers back.

The processes of `pwf mcp serve` connect to a socket of this one, and give the channel's token and the name of their
host; one that the configuration does not name is turned away. So is a process that the daemon takes for no person's,
which it judges anew with each answer. What is open is held here, and offered to each host that
comes. It goes with this process: so the next one is given all of it anew.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
import threading
from collections.abc import Iterator

import msgspec

from pwf import host
from pwf.channels.port import Adapter, Outcome, Port, done
from pwf.channels.words import text_of
from pwf.config import McpChannel
from pwf.errors import ConfigError, ProtocolError
from pwf.host.identity import Identity
from pwf.places import places
from pwf.protocol.channel_port import Begin, ChannelMessage, Close, line_of
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.host_port import Answer, Heard, Hello, Offer, Withdraw, from_host, socket_of

HELLO_S = 5.0
SEND_S = 5  # to a host that does not read: then it is let go
HOSTS_MAX = 64
LINE_BYTES_MAX = 256 * 1024
RECEIVE_BYTES = 64 * 1024


class _Host:
    """One that is connected. `say` is for any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._writing = threading.Lock()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))

    def say(self, said: msgspec.Struct) -> None:
        """Tell it. One that is gone, or does not read, hears nothing more."""
        with self._writing:
            try:
                self._connection.sendall(line_of(said))
            except OSError:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)


class HostsAdapter(Adapter[McpChannel]):
    """See the module."""

    listens = True

    def __init__(self, port: Port, begin: Begin, settings: McpChannel) -> None:
        super().__init__(port, begin, settings)
        self._held: dict[str, ChannelMessage] = {}  # what is open, by its request
        self._hosts: list[_Host] = []
        self._lock = threading.Lock()  # both of them
        self._stopped = False
        self.path = socket_of(places(), begin.name)

    def start(self) -> None:
        self._token = self.secret(self.settings.token).encode()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            self._socket.bind(str(self.path))
            self.path.chmod(0o600)
            self._socket.listen(HOSTS_MAX)
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"the channel {self.begin.name} can not listen at {self.path}: {error.strerror or error}",
                hint="give the channel a shorter name, or look at that folder",
            ) from None

    # --- out ----------------------------------------------------------------------------------------------------

    def show(self, message: ChannelMessage) -> Outcome:
        if message.request_id is not None:
            with self._lock:
                self._held[message.request_id] = message
                self._tell(_offer(message))
        return done(message.message_id)

    def close(self, close: Close) -> Outcome:
        with self._lock:
            for request_id in [key for key, held in self._held.items() if held.message_id == close.ref]:
                del self._held[request_id]
                self._tell(Withdraw(request_id=request_id))
        return done(close.ref)

    def _tell(self, said: msgspec.Struct) -> None:
        for speaker in self._hosts:
            speaker.say(said)

    # --- answers ------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._stopped:
                    return
                raise
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def stop(self) -> None:
        self._stopped = True
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # `listen` waits in it
        self._socket.close()

    def _serve(self, connection: socket.socket) -> None:
        speaker = _Host(connection)
        with connection, contextlib.suppress(OSError, ProtocolError, msgspec.MsgspecError):
            try:
                self._converse(connection, speaker)
            finally:
                with self._lock:
                    if speaker in self._hosts:
                        self._hosts.remove(speaker)

    def _converse(self, connection: socket.socket, speaker: _Host) -> None:
        connection.settimeout(HELLO_S)
        said = _lines(connection)
        hello = next(said, None)
        if not isinstance(hello, Hello) or not self._is_named(hello):
            return
        peer = host.peer_process(connection)
        if peer is None or not self.port.may_answer(peer):
            return
        connection.settimeout(None)
        with self._lock:
            if len(self._hosts) >= HOSTS_MAX:
                return
            self._hosts.append(speaker)
            for message in self._held.values():
                speaker.say(_offer(message))
        for answer in said:
            if isinstance(answer, Answer):
                speaker.say(self._answered(answer, hello.host, peer))

    def _is_named(self, hello: Hello) -> bool:
        return hmac.compare_digest(hello.token.encode(), self._token) and hello.host in self.settings.hosts

    def _answered(self, answer: Answer, named: str, peer: Identity) -> Heard:
        with self._lock:
            message = self._held.get(answer.request_id)
        if message is None:
            return Heard(request_id=answer.request_id)
        verdict = self.port.answer(
            token=message.token,
            choice=answer.choice,
            text=answer.text,
            who=f"the person at {named}",
            peer=peer,
        )
        if verdict.taken:
            return Heard(request_id=answer.request_id)
        return Heard(request_id=answer.request_id, again=verdict.asks or verdict.said)


def _offer(message: ChannelMessage) -> Offer:
    assert message.request_id is not None, "what is held asks something"
    return Offer(request_id=message.request_id, text=text_of(message, choices=True), choices=message.choices)


def _lines(connection: socket.socket) -> Iterator[Hello | Answer]:
    splitter = FrameSplitter(LINE_BYTES_MAX)
    while data := connection.recv(RECEIVE_BYTES):
        for line in splitter.feed(data):
            yield from_host.decode(line)
