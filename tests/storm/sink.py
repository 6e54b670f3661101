"""The outside world: a local HTTP service, and files, which count what was done to them under each effect key.

The service knows a fence: `look` answers whether a key was applied, and refuses from then on what an earlier
attempt of it may still have under way. So its answer "not applied" is true for ever, as `not_applied()` demands.
It lives in the storm's own process, and nobody kills it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


@dataclass
class Ledger:
    """What happened: applications by key, and the highest attempt that is refused by key."""

    applied: Counter[str] = field(default_factory=Counter)
    fenced: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def apply(self, key: str, attempt: int) -> bool:
        """One application, unless this attempt was fenced off."""
        with self.lock:
            if attempt <= self.fenced.get(key, 0):
                self.refused += 1
                return False
            self.applied[key] += 1
            return True

    def look(self, key: str, attempt: int) -> int:
        """How often the key was applied; attempts before this one can't apply it any more."""
        with self.lock:
            self.fenced[key] = max(self.fenced.get(key, 0), attempt - 1)
            return self.applied[key]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    ledger: Ledger

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that was killed in the middle of its request is what this is all about."""


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        ledger = self.server.ledger  # type: ignore[attr-defined]
        key, attempt = query["key"], int(query["attempt"])
        if url.path == "/apply":
            answer: object = {"applied": ledger.apply(key, attempt)}
        else:
            answer = {"count": ledger.look(key, attempt)}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


class Outside:
    """The service, and the folder whose files count lines. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.ledger = Ledger()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.ledger = self.ledger
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="sink", daemon=True)

    def __enter__(self) -> Outside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self.close()
        self._thread.join(5)

    def close(self) -> None:
        """Of one that never served."""
        self._server.server_close()

    def count(self, kind: str, key: str) -> int:
        """How often an effect was applied, by its type: `http…` or `file…`."""
        if kind.startswith("http"):
            return self.ledger.applied[key]
        try:
            return (self.folder / key.replace(":", "_")).read_text().count("\n")
        except FileNotFoundError:
            return 0
