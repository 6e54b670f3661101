"""An HTTP request that the server takes once: an `Idempotency-Key` header, and a place to read back what became of it.

A request that surely did not reach the server, or that it refused, was not applied. Of an answer that got lost nobody
knows; the read-back asks.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pwf.effects.prepared import Request, ask_again
from pwf.errors import InvalidArgument, PwfError
from pwf.http_taken import UNDECIDED, UNREACHED, opener
from pwf.values import canonical
from pwf.workflow.effects import NotApplied, Observation, applied, not_applied, unknown

KEY_HEADER = "Idempotency-Key"
ANSWER_BYTES_MAX = 1024 * 1024


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The output. `body` is the decoded JSON, or the text where it is none that can be kept; None when it was empty.

    `complete` is false, and `body` None, when the answer is longer than 1 MiB or broke off.
    """

    status: int
    body: Any = None
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class HttpRequest(Request[HttpAnswer]):
    """Send `body` (bytes, or a value as JSON) to `url`.

    The key goes as `Idempotency-Key`. The server must honour it for as long as an attempt may be repeated. `read_back`:
    where to ask, `{key}` stands for the key; 2xx means that it happened (its answer becomes the output), 404 that it
    did not. Without `read_back` a lost answer is for a person. `settle_s`: for how long after its sender has died the
    server may still come to take a request. For so long a 404 is not believed, and is asked again.
    """

    url: str
    body: Any = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    read_back: str | None = None
    timeout_s: float = 30.0
    settle_s: float = 30.0

    def apply(self, key: str) -> HttpAnswer:
        """Send it. `NotApplied` when it can't be sent, nobody could be reached, or the server refused (4xx)."""
        try:
            request = self._request(key)
        except (PwfError, TypeError, ValueError, http.client.HTTPException) as error:
            raise NotApplied(f"this can not be sent to {self.url}: {error}") from error
        try:
            return self._ask(request)
        except urllib.error.HTTPError as error:
            if 400 <= error.code < 500 and error.code not in UNDECIDED:
                raise NotApplied(f"{self.url} refused: {error.code} {error.reason}") from error
            raise
        except urllib.error.URLError as error:
            if isinstance(error.reason, UNREACHED):
                raise NotApplied(f"{self.url} could not be reached: {error.reason}") from error
            raise

    def observe(self, key: str) -> Observation:
        """Ask `read_back`. Anything but a clear answer tells nothing."""
        if self.read_back is None:
            return unknown()
        url = self.read_back.replace("{key}", urllib.parse.quote(key, safe=""))
        return ask_again(lambda: self._look(url), "not_applied", self.settle_s)

    def _look(self, url: str) -> Observation:
        try:
            return applied(self._ask(urllib.request.Request(url, headers=dict(self.headers))), ref=url)
        except urllib.error.HTTPError as error:
            return not_applied() if error.code == 404 else unknown()
        except (OSError, http.client.HTTPException):
            return unknown()

    def _request(self, key: str) -> urllib.request.Request:
        """Finds before a byte is sent what can't be sent."""
        if any(name.lower() == KEY_HEADER.lower() for name in self.headers):
            raise InvalidArgument(
                f"the header {KEY_HEADER} is the effect's own", hint="leave it out of headers="
            )
        headers = {**self.headers, KEY_HEADER: key}
        data = self.body
        if data is not None:
            headers = {"Content-Type": "application/json", **headers}
            data = data if isinstance(data, bytes) else canonical(data, what="the body")
        request = urllib.request.Request(self.url, data=data, headers=headers, method=self.method)
        if not request.host:
            raise ValueError("it names no host")
        trial = http.client.HTTPConnection(request.host)  # is never opened: it knows what may stand where
        trial.host.encode("idna")
        trial.putrequest(self.method, request.selector)
        for name, value in headers.items():
            trial.putheader(name, value)
        return request

    def _ask(self, request: urllib.request.Request) -> HttpAnswer:
        try:
            answer = opener.open(request, timeout=self.timeout_s)
        except urllib.error.HTTPError as error:
            error.close()  # its status says enough
            raise
        with answer:
            text, complete = _read(answer)
            return HttpAnswer(
                status=answer.status, body=_decoded(text) if complete else None, complete=complete
            )


def _read(answer: http.client.HTTPResponse) -> tuple[bytes, bool]:
    """The status has said that it happened: a body that breaks off or is too long changes nothing about that."""
    try:
        text = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException):
        return b"", False
    return text, len(text) <= ANSWER_BYTES_MAX and not answer.length


def _decoded(text: bytes) -> Any:
    if not text:
        return None
    try:
        value = json.loads(text)
        canonical(value)  # an output has no room for NaN, lone surrogates and great depth
        return value
    except (ValueError, RecursionError, PwfError):
        return text.decode("utf-8", "replace")
