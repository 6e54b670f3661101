"""A channel that speaks to a program over HTTP: signed POSTs out, and signed POSTs back with answers.

A signature is HMAC-SHA256 over the time, a dot and the body. What comes back is refused unless it is signed, at most
`SKEW_S` old, younger than this process, and new: so nothing counts twice, also after a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import threading
import time
from typing import Any

import msgspec

from pwf.channels.command import facts_of
from pwf.channels.http import sent
from pwf.channels.port import Adapter, Outcome, Port, done
from pwf.config import WebhookChannel
from pwf.errors import ConfigError
from pwf.protocol.channel_port import Begin, ChannelMessage, Close

SKEW_S = 300
BODY_BYTES_MAX = 64 * 1024
SEEN_MAX = 10_000
DIGITS_MAX = 12  # of a time in seconds; int() of a very long text is an error
READ_S = 10.0


class SignedAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is posted back."""

    token: str
    choice: str
    who: str
    text: str | None = None


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whoever connects would fill the file that says why a process has ended."""


class WebhookAdapter(Adapter[WebhookChannel]):
    """See the module."""

    def __init__(self, port: Port, begin: Begin, settings: WebhookChannel) -> None:
        super().__init__(port, begin, settings)
        self.listens = settings.listen is not None
        self._since = int(time.time())
        self._seen: dict[str, int] = {}
        self._taking = threading.Lock()  # each connection has a thread
        self.server: http.server.ThreadingHTTPServer | None = None

    def start(self) -> None:
        self._key = self.secret(self.settings.secret).encode()
        if self.settings.listen is not None:
            host, _, port = self.settings.listen.rpartition(":")
            try:
                self.server = _Server((host, int(port)), _handler_for(self))
            except (OSError, OverflowError) as error:
                raise ConfigError(
                    f"listen = {self.settings.listen!r} in [channels.{self.begin.name}]: "
                    f"{getattr(error, 'strerror', None) or 'there is no such port'}",
                    hint="name another port, or end what listens there",
                ) from None

    def show(self, message: ChannelMessage) -> Outcome:
        return self._post(facts_of(message, token=self.listens), message.message_id)

    def close(self, close: Close) -> Outcome:
        facts = {"event": "closed", "message_id": close.message_id, "title": close.title, "said": close.said}
        return self._post(json.dumps(facts).encode(), close.message_id)

    def _post(self, body: bytes, message_id: str) -> Outcome:
        at = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "X-Pwf-Timestamp": at,
            "X-Pwf-Signature": signature(self._key, at, body),
            "X-Pwf-Message": message_id,
        }
        reply = sent(self.settings.url, body, headers, timeout_s=self.settings.timeout_s)
        if isinstance(reply, Outcome):
            return reply
        return done(message_id) if reply.ok else reply.outcome("")

    def listen(self) -> None:
        assert self.server is not None
        self.server.serve_forever()

    def stop(self) -> None:
        if self.server is not None:
            self.server.server_close()

    def take(self, at: str, signed: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and answer for one POST."""
        now = int(time.time())
        fresh = (
            at.isdecimal()
            and len(at) <= DIGITS_MAX
            and abs(now - int(at)) <= SKEW_S
            and int(at) >= self._since
        )
        if not hmac.compare_digest(signature(self._key, at, body).encode(), signed.encode()) or not fresh:
            return 401, {"error": "not signed, or too old"}
        with self._taking:
            for known in [one for one, seen in self._seen.items() if seen < now - 2 * SKEW_S]:
                del self._seen[known]
            if signed in self._seen or len(self._seen) >= SEEN_MAX:
                return 409, {"error": "this was sent before"}
            self._seen[signed] = now
        try:
            said = msgspec.json.decode(body, type=SignedAnswer)
        except msgspec.MsgspecError as error:
            return 400, {"error": str(error)}
        verdict = self.port.answer(token=said.token, choice=said.choice, text=said.text, who=said.who)
        return 200, {"taken": verdict.taken, "said": verdict.said or verdict.asks}


def signature(key: bytes, at: str, body: bytes) -> str:
    """What stands in the header."""
    return "sha256=" + hmac.new(key, at.encode() + b"." + body, hashlib.sha256).hexdigest()


def _handler_for(adapter: WebhookAdapter) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = READ_S

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
                self._say(413, {"error": "too long"})
                return
            body = self.rfile.read(int(length))
            at, signed = (self.headers.get(f"X-Pwf-{name}", "") for name in ("Timestamp", "Signature"))
            self._say(*adapter.take(at, signed, body))

        def _say(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: what is asked may hold a token."""

    return Handler
