"""Slack as its public API says, on this machine: the Web API's methods that pwf calls, and Socket Mode."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.channels.fakes import Fake, serving

APP_TOKEN = "xapp-s3cret-token"
SECTION_CHARS_MAX = 3_000
BUTTON_CHARS_MAX = 75
VALUE_CHARS_MAX = 2_000
ELEMENTS_MAX = 25


class FakeSlack(Fake):
    """One conversation, C7. `errors`: what the next sends answer with 200.

    An envelope that nobody has acknowledged comes again over the next connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.messages: dict[str, dict[str, Any]] = {}
        self.whispers: list[str] = []
        self.forms: list[dict[str, Any]] = []
        self.envelopes: dict[str, dict[str, Any]] = {}  # that nobody has acknowledged
        self.acks: list[dict[str, Any]] = []
        self.sockets = ""
        self.stays_s = 0.0  # a connection, at least
        self.end = "refresh_requested"  # of each connection, when nothing waits

    def sends(self, path: str) -> bool:
        return path.endswith(("chat.postMessage", "chat.update"))

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        name = path.removeprefix("/api/")
        wanted = APP_TOKEN if name == "apps.connections.open" else self.token
        if headers.get("Authorization") != f"Bearer {wanted}":
            return 200, {"ok": False, "error": "invalid_auth"}
        if self.sends(path) and self.errors:
            return 200, {"ok": False, "error": self.errors.pop(0)}
        facts = json.loads(body) if body else {}
        wrong = _wrong(facts)
        if wrong:
            return 200, {"ok": False, "error": wrong}
        return 200, getattr(self, "_" + name.replace(".", "_"))(facts)

    def _apps_connections_open(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True, "url": self.sockets}

    def _chat_postMessage(self, facts: dict[str, Any]) -> dict[str, Any]:
        if facts["channel"] != "C7":
            return {"ok": False, "error": "channel_not_found"}
        ts = f"1700000000.{len(self.messages):06}"
        self.messages[ts] = facts
        self.taken.append(facts)
        return {"ok": True, "channel": "C7", "ts": ts}

    def _chat_update(self, facts: dict[str, Any]) -> dict[str, Any]:
        if facts["ts"] not in self.messages:
            return {"ok": False, "error": "message_not_found"}
        self.messages[facts["ts"]] = facts
        return {"ok": True, "channel": "C7", "ts": facts["ts"]}

    def _chat_postEphemeral(self, facts: dict[str, Any]) -> dict[str, Any]:
        self.whispers.append(facts["text"])
        return {"ok": True, "message_ts": "1"}

    def _views_open(self, facts: dict[str, Any]) -> dict[str, Any]:
        self.forms.append(facts["view"])
        return {"ok": True, "view": {"id": "V1"}}

    # --- people -----------------------------------------------------------------------------------------------

    def press(self, value: str, user: str = "U1", channel: str = "C7") -> None:
        """Somebody presses a button."""
        self._envelope(
            {
                "type": "block_actions",
                "user": {"id": user, "username": f"name-{user}"},
                "channel": {"id": channel},
                "trigger_id": "12.34.ab",
                "actions": [{"type": "button", "action_id": "choice-0", "value": value}],
            }
        )

    def submit(self, form: dict[str, Any], text: str | None, user: str = "U1") -> None:
        """Somebody sends the form."""
        view = {**form, "state": {"values": {"text": {"text": {"type": "plain_text_input", "value": text}}}}}
        self._envelope(
            {"type": "view_submission", "user": {"id": user, "name": f"name-{user}"}, "view": view}
        )

    def _envelope(self, payload: dict[str, Any]) -> None:
        envelope_id = f"e{len(self.envelopes) + len(self.acks)}"
        facts = {"type": "interactive", "envelope_id": envelope_id, "accepts_response_payload": True}
        self.envelopes[envelope_id] = {**facts, "payload": payload}

    def connected(self, socket: Any) -> None:
        """One connection: all that waits, one after another, then an end."""
        socket.send(json.dumps({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"}}))
        until = time.monotonic() + self.stays_s
        while self.envelopes or time.monotonic() < until:
            for envelope_id, envelope in list(self.envelopes.items()):
                socket.send(json.dumps(envelope))
                ack = json.loads(socket.recv(timeout=10))
                assert ack["envelope_id"] == envelope_id
                self.acks.append(ack)
                del self.envelopes[envelope_id]
            time.sleep(0.01)
        socket.send(json.dumps({"type": "disconnect", "reason": self.end}))


@contextmanager
def serving_slack(fake: FakeSlack) -> Iterator[str]:
    """Serve both of its sides; the address of the Web API's server."""
    serve = pytest.importorskip("websockets.sync.server").serve
    with serving(fake) as url, serve(fake.connected, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        fake.sockets = f"ws://127.0.0.1:{server.socket.getsockname()[1]}/link/?ticket=s3cret-ticket"
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()


def _wrong(facts: dict[str, Any]) -> str | None:
    """What Slack does not take."""
    for block in facts.get("blocks", []):
        if block["type"] == "section" and not 1 <= len(block["text"]["text"]) <= SECTION_CHARS_MAX:
            return "invalid_blocks"
        elements = block.get("elements", [])
        if len(elements) > ELEMENTS_MAX or len({one["action_id"] for one in elements}) < len(elements):
            return "invalid_blocks"
        for one in elements:
            if len(one["text"]["text"]) > BUTTON_CHARS_MAX or len(one["value"]) > VALUE_CHARS_MAX:
                return "invalid_blocks"
    return None
