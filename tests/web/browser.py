"""A browser without a network: it speaks to the pages, keeps cookies, and says where a form was, as browsers do."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import urlencode

import trio

HOST = "127.0.0.1:7930"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Browser:
    """`get`, `post` and `head` of addresses of the pages; `cookies` is what it was told to keep."""

    def __init__(self, app: Any, host: str = HOST) -> None:
        self._app = app
        self._host = host
        self.cookies: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def head(self, path: str, **headers: str) -> Answer:
        return self.send("HEAD", path, **headers)

    def post(self, path: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
        """As a form of the pages sends it, unless `headers` say otherwise."""
        ours = {"origin": f"http://{self._host}", "sec_fetch_site": "same-origin"}
        kind = {"content_type": "application/x-www-form-urlencoded"}
        return self.send("POST", path, urlencode(form or {}).encode(), **(ours | kind | headers))

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Any request. An empty header is not sent."""
        given = {"host": self._host, "content_length": str(len(body)), **headers}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in given.items() if value
            ],
        }
        answer = trio.run(self._exchange, scope, body)
        cookie: SimpleCookie = SimpleCookie(answer.headers.get("set-cookie", ""))
        self.cookies.update({name: morsel.value for name, morsel in cookie.items()})
        return answer

    async def _exchange(self, scope: dict[str, Any], body: bytes) -> Answer:
        pieces = [body[:1000], body[1000:]]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            piece = pieces.pop(0) if pieces else b""
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
        return Answer(sent[0]["status"], headers, text)
