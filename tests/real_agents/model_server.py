"""A model on loopback, made for tests: it speaks as OpenAI's chat completions do, and says what a script tells it.

Each request takes the next act of the script; the last one goes on for ever. What was asked is kept.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: act -> status, headers and message of a refusal
REFUSALS: dict[str, tuple[int, dict[str, str], str]] = {
    "limited": (429, {}, "You have hit your usage limit. Try again in 3 hours."),
    "limited_no_time": (429, {}, "Rate limit reached"),
    "broken": (400, {}, "the model is broken"),
}
USED = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
PRICE = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}  # dollars for a million tokens


class ModelServer:
    """`acts`: `text:ANSWER`, `tool:COMMAND` (the agent's shell), `submit:JSON` (pwf's), or a name of `REFUSALS`."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.asked: list[dict[str, Any]] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                server.answer(self, json.loads(self.rfile.read(length)))

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    @contextmanager
    def serving(self) -> Iterator[ModelServer]:
        thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()

    def play(self, *acts: str) -> None:
        """From the next request on."""
        self.acts, self.asked = list(acts), []

    def answer(self, to: http.server.BaseHTTPRequestHandler, asked: dict[str, Any]) -> None:
        act = self.acts[min(len(self.asked), len(self.acts) - 1)]
        self.asked.append(asked)
        if act in REFUSALS:
            status, headers, message = REFUSALS[act]
            self._send(to, status, headers, json.dumps({"error": {"message": message, "type": act}}).encode())
            return
        kind, _, text = act.partition(":")
        delta: dict[str, Any] = {"role": "assistant", "content": text}
        if kind in ("tool", "submit"):
            name, given = (
                ("bash", {"command": text}) if kind == "tool" else ("submit", {"value": json.loads(text)})
            )
            call = {"name": name, "arguments": json.dumps(given)}
            delta = {
                "role": "assistant",
                "tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": call}],
            }
        body = b"".join(_event(part) for part in _parts(delta, "stop" if kind == "text" else "tool_calls"))
        self._send(to, 200, {"content-type": "text/event-stream"}, body + b"data: [DONE]\n\n")

    def _send(
        self, to: http.server.BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        to.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            to.send_header(name, value)
        to.send_header("content-length", str(len(body)))
        to.end_headers()
        to.wfile.write(body)


def _parts(delta: dict[str, Any], ends: str) -> Iterator[dict[str, Any]]:
    """A streamed answer: its text in two pieces, its end, what it has used."""
    text = delta.get("content")
    if text is not None:
        half = len(text) // 2
        yield {"choices": [{"index": 0, "delta": {**delta, "content": text[:half]}, "finish_reason": None}]}
        delta = {"content": text[half:]}
    yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": ends}]}
    yield {"choices": [], "usage": USED}


def _event(part: dict[str, Any]) -> bytes:
    whole = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", **part}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"
