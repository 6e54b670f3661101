"""A daemon for tests of clients: a thread behind a real Unix socket that speaks real frames with scripted
answers.

It keeps receipts by idempotency key, as the real one does, and can lose its connections, or die and come
back.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pwf.errors import PwfError, Unavailable
from pwf.places import Places, identity_of
from pwf.protocol.frames import (
    PROTOCOL,
    ErrorBody,
    ErrorFrame,
    Event,
    FrameSplitter,
    Hello,
    Request,
    Response,
    decode_client_frame,
    encode,
)
from pwf.protocol.operations import OPERATIONS, Nothing

Handler = Callable[[Request, Any], Any]
OUTCOMES = {"not_found": "not_found", "conflict": "conflict", "unavailable": "unavailable"}


class FakeDaemon:
    """`on(operation, handler)`; a handler gets the request and its decoded payload, and returns a result
    struct, a `PwfError` to refuse with, or None to stay silent."""

    def __init__(self, home: Path) -> None:
        self.places = Places(home, home / "config.toml", home / "pwf.sock")
        self.requests: list[Request] = []
        self.refuse = 0  # so many connections are closed before the greeting
        self.connections = 0
        self.greeting: bytes | None = None
        self.serves: Path | None = None  # a home other than the one in which it stands
        self.received = bytearray()
        self._handlers: dict[str, Handler] = {"view.unsubscribe": lambda request, payload: Nothing()}
        self._receipts: dict[str, Any] = {}
        self._live: list[socket.socket] = []
        self._subscribers: dict[str, socket.socket] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._listener: socket.socket | None = None
        self.arrived = threading.Condition()

    def __enter__(self) -> FakeDaemon:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.places.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.places.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.places.socket))
        listener.listen(16)
        self._listener = listener
        record = {"pid": os.getpid(), "socket": str(self.places.socket), "home_id": "h", "version": "0"}
        self.places.lock.write_text(json.dumps(record))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.places.socket.unlink(missing_ok=True)
        self.drop()

    def say_goodbye(self) -> None:
        """Stop as the real one does: every connection is told so."""
        error = Unavailable("the daemon was stopped", hint="pwf start")
        body = ErrorBody(code=error.code, message=error.message, hint=error.hint)
        with self._lock:
            for connection in self._live:
                connection.sendall(encode(ErrorFrame(error=body)))
        self.stop()

    def drop(self) -> None:
        """Lose every connection."""
        with self._lock:
            live, self._live = self._live, []
            self._subscribers.clear()
        for connection in live:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def on(self, operation: str, handler: Handler) -> None:
        self._handlers[operation] = handler

    def push(self, subscription: str, kind: Any, revision: int, body: Any) -> None:
        """Send an event to the connection that holds the subscription."""
        raw = msgspec.Raw(msgspec.json.encode(body))
        with self._lock:
            connection = self._subscribers.get(subscription)
        if connection is None:
            return  # lost meanwhile: the client subscribes again
        with contextlib.suppress(OSError):  # its client is gone, which is no fault of who pushes
            connection.sendall(
                encode(Event(subscription=subscription, kind=kind, revision=revision, body=raw))
            )

    def wait_for(self, operation: str, count: int = 1, timeout_s: float = 10.0) -> list[Request]:
        """The requests of this operation, once there are `count` of them."""
        with self.arrived:
            enough = self.arrived.wait_for(lambda: len(self.of(operation)) >= count, timeout_s)
            assert enough, f"{operation}: {len(self.of(operation))} of {count}; got {self.requests}"
            return self.of(operation)

    def of(self, operation: str) -> list[Request]:
        return [request for request in self.requests if request.operation == operation]

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.connections <= self.refuse:
                connection.close()
                continue
            with self._lock:
                self._live.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        whose = identity_of(self.serves or self.places.home)
        hello = Hello(protocol=PROTOCOL, version="0", epoch=1, home="h", home_identity=whose, pid=os.getpid())
        splitter = FrameSplitter()
        try:
            connection.sendall(self.greeting or encode(hello))
            while data := connection.recv(65536):
                self.received += data
                for line in splitter.feed(data):
                    frame = decode_client_frame(line)
                    if isinstance(frame, Request):
                        self._answer(connection, frame)
        except OSError:
            pass
        finally:
            connection.close()

    def _decide(self, request: Request, payload: Any) -> tuple[str, Any]:
        key = request.idempotency_key
        if key is None:
            return "accepted", self._handlers[request.operation](request, payload)
        with self._writing:  # one command at a time, as one connection writes the store
            if key in self._receipts:
                return "adopted", self._receipts[key]
            result = self._handlers[request.operation](request, payload)
            if not isinstance(result, PwfError):
                self._receipts[key] = result
            return "accepted", result

    def _answer(self, connection: socket.socket, request: Request) -> None:
        operation = OPERATIONS[request.operation]
        payload = msgspec.json.decode(request.payload, type=operation.payload)
        if request.operation == "view.subscribe":
            with self._lock:
                self._subscribers[payload.id] = connection
        outcome, result = self._decide(request, payload)
        with self.arrived:
            self.requests.append(request)
            self.arrived.notify_all()
        if result is None:
            return
        connection.sendall(encode(_response(request, outcome, result)))
        followed = self._handlers.get("after:" + request.operation)
        if followed is not None:
            followed(request, payload)


def _response(request: Request, outcome: Any, result: Any) -> Response:
    if isinstance(result, PwfError):
        body = ErrorBody(code=result.code, message=result.message, hint=result.hint)
        refused: Any = OUTCOMES.get(result.code, "rejected")
        return Response(request_id=request.request_id, outcome=refused, error=body)
    raw = msgspec.Raw(msgspec.json.encode(result))
    return Response(
        request_id=request.request_id,
        outcome=outcome,
        result=raw,
        revision=7,
        receipt=request.idempotency_key,
    )
