"""A client without manners: it sends what it is told, frame by frame."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

from tests.e2e.home import Home


class Raw:
    """A connection that sends what it is told."""

    def __init__(self, home: Home) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(home.record.socket)
        self._file = self._socket.makefile("rb")
        self._number = 0
        self.send({"type": "hello", "protocol": "pwf.client.v1", "version": "raw", "client_id": "raw"})
        assert self.receive()["type"] == "hello"

    def send(self, frame: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(frame).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        return dict(json.loads(self._file.readline()))

    def ask(self, operation: str, payload: object, **more: object) -> dict[str, Any]:
        """Send one request; its answer (events in between are passed over)."""
        self._number += 1
        request_id = f"r{self._number}"
        self.send(
            {
                "type": "request",
                "request_id": request_id,
                "client_id": "raw",
                "operation": operation,
                "payload": payload,
                **more,
            }
        )
        while (frame := self.receive()).get("request_id") != request_id:
            assert frame["type"] == "event", frame
        return frame

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def origin(home: Home) -> dict[str, Any]:
    """Where a start says that it was typed."""
    return {"cwd": str(home.project), "python": sys.executable, "environment": {}}
