"""What every request must pass before a page sees it, and the headers that every answer bears.

Owns no state. Promises: a request under a name that is not ours (DNS rebinding), or that another page has made (its
Origin), is refused before anything is looked up; no answer is kept, framed, or allowed to load or run anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX = 64 * 1024
TARGET_BYTES_MAX = 2_048  # path and query

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "cache-control": "no-store",
    # A page's address may be a link that decides. `no-referrer` would hide our own Origin from us as well.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Refusal(NamedTuple):
    """An answer in place of a page."""

    status: int
    message: str


class Guard:
    """Stands in front of the pages. `urls`: under which they are reached, like `http://localhost:7930`."""

    def __init__(self, app: ASGIApp, urls: Iterable[str]) -> None:
        self._app = app
        self._origins = frozenset(url.lower() for url in urls)
        self._hosts = frozenset(urlsplit(url).netloc for url in self._origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            refusal = self._refusal(scope)
            app = self._app if refusal is None else PlainTextResponse(refusal.message, refusal.status)
            await app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Refusal | None:
        named: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            named.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = named.get("host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return Refusal(421, "This server is not known under that name. Set public_url in [web].\n")
        if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_BYTES_MAX:
            return Refusal(414, "The address is too long.\n")
        if scope["method"] in ("GET", "HEAD"):
            return None
        if not self._is_ours(named):
            return Refusal(403, "Another page has sent this.\n")
        return _body_refusal(named)

    def _is_ours(self, named: dict[str, list[str]]) -> bool:
        """Browsers say where a form was; what says nothing is no browser, and has no cookie that a page could use."""
        if any(value not in ("same-origin", "none") for value in named.get("sec-fetch-site", [])):
            return False
        origins = named.get("origin", [])
        if not origins:
            return "cookie" not in named
        return all(origin.lower() in self._origins for origin in origins)


def _body_refusal(named: dict[str, list[str]]) -> Refusal | None:
    sizes = named.get("content-length", [])
    if any(not size.isdecimal() or len(size) > 9 or int(size) > BODY_BYTES_MAX for size in sizes):
        return Refusal(413, "That is too large.\n")
    kinds = [kind.partition(";")[0].strip().lower() for kind in named.get("content-type", [])]
    if any(kind != "application/x-www-form-urlencoded" for kind in kinds):
        return Refusal(415, "Send a form.\n")
    return None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message["headers"], *ours]}
        await send(message)

    return sending
