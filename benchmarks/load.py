"""Load from many clients at once, at little cost of its own: one thread, one connection per client, frames as bytes.

A client is a generator: it yields a request and is sent the response. The daemon sees what any client sends,
idempotency keys included; what is spared is the typed decoding on our side, which would share the machine's cores
with what is measured.
"""

from __future__ import annotations

import itertools
import selectors
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from socket import socket

import msgspec

import pwf
from benchmarks.daemon import Daemon
from pwf.client.origin import origin
from pwf.ids import Ids
from pwf.protocol.frames import (
    PROTOCOL,
    Event,
    FrameSplitter,
    Hello,
    Request,
    Response,
    decode_daemon_frame,
    encode,
)
from pwf.protocol.operations import StartPayload, WaitPayload

Client = Generator[Request, Response, None]

RECEIVE_BYTES = 256 * 1024
SILENCE_S_MAX = 120.0
TOMORROW_MS = 24 * 3_600_000
_WAIT = msgspec.Raw(msgspec.json.encode(WaitPayload()))


class Requests:
    """Builds the requests of one client."""

    def __init__(self) -> None:
        self._client_id = Ids().new()
        self._numbers = itertools.count(1)

    def make(
        self, operation: str, payload: msgspec.Raw, *, run_id: str | None = None, changes: bool = False
    ) -> Request:
        """A request; one that changes something gets a key, as every client gives it."""
        request_id = f"{self._client_id}-{next(self._numbers)}"
        return Request(
            request_id=request_id,
            client_id=self._client_id,
            operation=operation,
            run_id=run_id,
            idempotency_key=request_id if changes else None,
            payload=payload,
        )


class Connection:
    """A connection that has greeted. Not blocking once it is `drive`n."""

    def __init__(self, daemon: Daemon) -> None:
        self.socket: socket = daemon.connect()
        self._splitter = FrameSplitter()
        self.send_bytes(encode(Hello(protocol=PROTOCOL, version=pwf.__version__, client_id=Ids().new())))
        assert isinstance(next(iter(self.receive())), Hello)

    def send_bytes(self, data: bytes) -> None:
        """Send all of it; what benchmarks send fits into the socket's buffer, or waits for it."""
        self.socket.setblocking(True)
        self.socket.sendall(data)

    def receive(self) -> Iterator[Hello | Response | Event]:
        """Every frame that one read brings; waits for the first bytes."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise RuntimeError("the daemon closed the connection")
        for line in self._splitter.feed(data):
            frame = decode_daemon_frame(line)
            if isinstance(frame, Hello | Response | Event):
                yield frame
            else:
                raise RuntimeError(f"the daemon refused the connection: {frame.error.message}")

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def drive(daemon: Daemon, clients: Iterable[Client]) -> None:
    """Run all clients to their ends, each on a connection of its own. Raises on the first refusal."""
    with selectors.DefaultSelector() as selector:
        try:
            for client in clients:
                connection = Connection(daemon)
                selector.register(connection.socket, selectors.EVENT_READ, (connection, client))
            for key in list(selector.get_map().values()):
                connection, client = key.data
                _advance(selector, connection, client, None)
            while selector.get_map():
                ready = selector.select(SILENCE_S_MAX)
                if not ready:
                    raise RuntimeError(f"no client was answered for {SILENCE_S_MAX:g} s")
                for key, _ in ready:
                    connection, client = key.data
                    for frame in connection.receive():
                        if isinstance(frame, Response):
                            _advance(selector, connection, client, frame)
        finally:
            for key in list(selector.get_map().values()):
                key.data[0].close()


def _advance(
    selector: selectors.BaseSelector, connection: Connection, client: Client, response: Response | None
) -> None:
    if response is not None and response.error is not None:
        raise RuntimeError(f"{response.error.code}: {response.error.message}")
    try:
        request = next(client) if response is None else client.send(response)
    except StopIteration:
        selector.unregister(connection.socket)
        connection.close()
        return
    connection.send_bytes(encode(request))


# --- the usual clients ------------------------------------------------------------------------------------------


class _Started(msgspec.Struct):
    run_id: str


_started = msgspec.json.Decoder(_Started)


def start_payload(
    daemon: Daemon, workflow: str, input: object = None, *, later: bool = False, agent: str | None = None
) -> msgspec.Raw:
    """What `run.start` is given. `later`: due tomorrow, so that it is accepted and nothing else happens. `agent`: who
    does the steps of agents.
    """
    payload = StartPayload(
        workflow=workflow,
        origin=origin(daemon.at, cwd=daemon.folder),
        input=msgspec.Raw(msgspec.json.encode(input)),
        at_ms=time.time_ns() // 1_000_000 + TOMORROW_MS if later else None,
        agent=agent,
    )
    return msgspec.Raw(msgspec.json.encode(payload))


def start_runs(
    daemon: Daemon,
    payload: Callable[[], msgspec.Raw] | msgspec.Raw,
    runs: int,
    *,
    clients: int,
    wait: bool = True,
) -> list[float]:
    """Start `runs` runs from so many clients, each in a closed loop; the latencies in seconds.

    `wait`: until each run has ended, else only until it is accepted.
    """
    left = itertools.repeat(None, runs)
    latencies: list[float] = []

    def client() -> Client:
        requests = Requests()
        for _ in left:
            body = payload() if callable(payload) else payload
            begin = time.perf_counter()
            response = yield requests.make("run.start", body, changes=True)
            if wait:
                run_id = _started.decode(response.result or b"{}").run_id
                yield requests.make("run.wait", _WAIT, run_id=run_id)
            latencies.append(time.perf_counter() - begin)

    drive(daemon, [client() for _ in range(clients)])
    return latencies
