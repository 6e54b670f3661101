"""Services as their public APIs say, on this machine, with faults that a test orders; and the port without a daemon."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pwf.protocol.channel_port import Verdict

BOT_TOKEN = "12345:s3cret-token"
KEY = "s3cret-key"
HANG_S = 60.0
EMPTY_POLL_S = 0.05


class FakePort:
    """The daemon: remembers what it is told. `verdicts`: what it says to each answer; without one it has died."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.troubles: list[str | None] = []
        self.people = True  # whoever comes
        self.verdict: Callable[[dict[str, Any]], Verdict] = lambda _: Verdict(
            number=1, said="decided: Ship it, by ann", taken=True
        )

    def answer(self, **said: Any) -> Verdict:
        verdict = self.verdict(said)
        self.answers.append(said)
        return verdict

    def may_answer(self, peer: object) -> bool:
        return self.people

    def trouble(self, why: str | None, what_to_do: str | None = None) -> None:
        self.troubles.append(why)

    @property
    def read(self) -> list[str]:
        """How far was read with each answer, without what it is of."""
        return [one["cursor"].partition(":")[2] for one in self.answers]

    @property
    def cursor(self) -> str | None:
        """How far is read."""
        return next((one["cursor"] for one in reversed(self.answers) if one.get("cursor")), None)


class Fake:
    """A service. `faults`: for the next sends: a status, `lose` (taken, and no answer), `hang` (taken, and no answer
    before `released`), or a pair with a body. `token`: what it wants.
    """

    token = BOT_TOKEN

    def __init__(self) -> None:
        self.faults: list[Any] = []
        self.released = threading.Event()
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.taken: list[Any] = []

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        """What it answers."""
        raise NotImplementedError

    def sends(self, path: str) -> bool:
        """Whether such a request is a send, which faults are for."""
        return True


@contextmanager
def serving(fake: Fake) -> Iterator[str]:
    """Serve it; its address."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = dict(self.headers)
            fake.requests.append((self.path, headers, body))
            fault = fake.faults.pop(0) if fake.faults and fake.sends(self.path) else None
            if isinstance(fault, tuple):
                self._say(*fault)
            elif isinstance(fault, int):
                self._say(fault, {})
            else:
                status, answer = fake.handle(self.command, self.path, headers, body)
                if fault == "hang":
                    fake.released.wait(HANG_S)
                elif fault != "lose":
                    self._say(status, answer)
            self.close_connection = True

        do_GET = do_POST = _serve

        def _say(self, status: int, answer: Any) -> None:
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if status in (429, 503):
                self.send_header("Retry-After", "7")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        fake.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class FakeTelegram(Fake):
    """The Bot API: messages, edits, updates that are confirmed by the offset, one poller at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[int, dict[str, Any]] = {}
        self.updates: list[dict[str, Any]] = []
        self.toasts: list[str] = []
        self.other_poller = False

    def sends(self, path: str) -> bool:
        return path.endswith(("sendMessage", "editMessageText"))

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        _, bot, name = path.split("/")
        if bot != f"bot{self.token}":
            return self._no(401, "Unauthorized")
        facts = json.loads(body)
        return getattr(self, f"_{name}")(facts)  # type: ignore[no-any-return]

    def _no(self, status: int, why: str) -> tuple[int, Any]:
        return status, {"ok": False, "error_code": status, "description": why}

    def _yes(self, result: Any) -> tuple[int, Any]:
        return 200, {"ok": True, "result": result}

    def _checked(self, facts: dict[str, Any]) -> str | None:
        if len(facts["text"].encode("utf-16-le")) // 2 > 4096:
            return "Bad Request: message is too long"
        for row in facts.get("reply_markup", {}).get("inline_keyboard", []):
            for button in row:
                if not 1 <= len(button["callback_data"].encode()) <= 64:
                    return "Bad Request: BUTTON_DATA_INVALID"
        return None

    def _sendMessage(self, facts: dict[str, Any]) -> tuple[int, Any]:
        if facts["chat_id"] != 7:
            return self._no(400, "Bad Request: chat not found")
        wrong = self._checked(facts)
        if wrong:
            return self._no(400, wrong)
        number = len(self.messages) + 100
        self.messages[number] = facts
        self.taken.append(facts)
        return self._yes({"message_id": number, "chat": {"id": 7}})

    def _editMessageText(self, facts: dict[str, Any]) -> tuple[int, Any]:
        message = self.messages.get(facts["message_id"])
        if message is None:
            return self._no(400, "Bad Request: message to edit not found")
        if message["text"] == facts["text"] and "reply_markup" not in message:
            return self._no(
                400, "Bad Request: message is not modified: specified new message content is the same"
            )
        self.messages[facts["message_id"]] = facts
        return self._yes(True)

    def _answerCallbackQuery(self, facts: dict[str, Any]) -> tuple[int, Any]:
        self.toasts.append(facts["text"])
        return self._yes(True)

    def _getUpdates(self, facts: dict[str, Any]) -> tuple[int, Any]:
        if self.other_poller:
            return self._no(409, "Conflict: terminated by other getUpdates request")
        self.updates = [one for one in self.updates if one["update_id"] >= facts["offset"]]
        if not self.updates:
            time.sleep(min(facts["timeout"], EMPTY_POLL_S))
        return self._yes(self.updates)

    def press(self, update_id: int, data: str, user: int = 1) -> None:
        """Somebody presses a button."""
        person = {"id": user, "username": f"u{user}"}
        press = {"id": f"q{update_id}", "from": person, "data": data, "message": {"chat": {"id": 7}}}
        self.updates.append({"update_id": update_id, "callback_query": press})

    def reply(self, update_id: int, to: str, text: str, user: int = 1) -> None:
        """Somebody replies to a message of the bot."""
        message = {"chat": {"id": 7}, "from": {"id": user}, "text": text, "reply_to_message": {"text": to}}
        self.updates.append({"update_id": update_id, "message": message})


class FakeNtfy(Fake):
    """Publishing by JSON, and a topic's stream."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[str, list[dict[str, Any]]] = {}
        self.breaks_off = False

    def sends(self, path: str) -> bool:
        return path == "/"

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        parts = urlsplit(path)
        if headers.get("Authorization") != f"Bearer {self.token}":
            return 403, {"code": 40301, "error": "forbidden"}
        if method == "GET":
            topic = parts.path.split("/")[1]
            since = parse_qs(parts.query)["since"][0]
            held = self.topics.get(topic, [])
            known = [one["id"] for one in held]
            after = held[known.index(since) + 1 :] if since in known else held
            lines = [{"event": "open", "id": "x"}, *after]
            broken = b'{"event": "mess' if self.breaks_off else b""
            return 200, b"".join(json.dumps(one).encode() + b"\n" for one in lines) + broken
        if parts.path != "/":
            return 200, self.post(parts.path[1:], body.decode())
        facts = json.loads(body)
        if len(facts["message"].encode()) > 4096 or len(facts.get("actions", [])) > 3:
            return 400, {"code": 40001, "error": "invalid request"}
        self.taken.append(facts)
        return 200, {"id": f"n{len(self.taken)}", "topic": facts["topic"]}

    def post(self, topic: str, message: str) -> dict[str, Any]:
        """What an action does."""
        held = self.topics.setdefault(topic, [])
        held.append({"event": "message", "id": f"r{len(held)}", "message": message})
        return held[-1]


class FakeHook(Fake):
    """Takes whatever is posted."""

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        self.taken.append(json.loads(body))
        return 200, {}
