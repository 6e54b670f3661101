"""HTTP as adapters speak it: one request, and whether it has surely not been taken, or nobody knows.

With the standard library alone: what matters here is whether a request has left, and that no error names the address,
which has the bot's token in it.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from pwf.channels.port import Outcome, early, refused, unknown
from pwf.http_taken import UNDECIDED, UNREACHED, opener

ANSWER_BYTES_MAX = 4 * 1024 * 1024
BUSY = frozenset({429, 503})


class Reply(NamedTuple):
    """What a service answered. `body`: decoded JSON, None where it is none."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def ok(self) -> bool:
        """Whether it was taken."""
        return 200 <= self.status < 300

    def outcome(self, why: str) -> Outcome:
        """What an answer that is not `ok` means of a send. `why`: the service's words."""
        said = f"{self.status}: {why}" if why else str(self.status)
        if self.status in BUSY:
            return early(said, retry_after_s=self.retry_after_s())
        if 400 <= self.status < 500 and self.status not in UNDECIDED:
            return refused(said, final=True)
        return unknown(said)

    def retry_after_s(self) -> float | None:
        """When the service wants to be asked again."""
        said = self.headers.get("Retry-After", "")
        return float(said[:9]) if said.isdecimal() else None


class NotReached(Exception):
    """Nobody has got it."""


class Unclear(Exception):
    """It may have been taken."""


def call(
    url: str, data: bytes | None, headers: Mapping[str, str] | None = None, *, timeout_s: float = 30.0
) -> Reply:
    """One request: a POST of `data`, or a GET. Raises `NotReached` and `Unclear`, with words that name no address."""
    request, until = _request(url, data, headers), time.monotonic() + timeout_s
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return Reply(answer.status, dict(answer.headers), _decoded(answer, until))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, dict(error.headers), _decoded(error, until))
    except urllib.error.URLError as error:
        if isinstance(error.reason, UNREACHED):
            raise NotReached(f"it can not be reached: {_plain(error.reason)}") from None
        raise Unclear(_plain(error.reason)) from None
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise Unclear(_plain(error)) from None


def stream(url: str, headers: Mapping[str, str] | None = None, *, timeout_s: float) -> Any:
    """An answer that is read line by line; each line must come within the time."""
    return opener.open(_request(url, None, headers), timeout=timeout_s)


def _request(url: str, data: bytes | None, headers: Mapping[str, str] | None) -> urllib.request.Request:
    """What is to be sent. Raises `NotReached` for what no library would send, whose error would quote it."""
    headers = dict(headers or {})
    try:
        url.encode("ascii")
        for value in headers.values():
            value.encode("latin-1")
        if not all(words.isprintable() for words in (url, *headers.values())) or " " in url:
            raise ValueError
        return urllib.request.Request(url, data=data, headers=headers)
    except ValueError:
        raise NotReached("the address or a secret has a character that can not be sent") from None


def sent(
    url: str, data: bytes, headers: Mapping[str, str] | None = None, *, timeout_s: float = 30.0
) -> Reply | Outcome:
    """The service's answer to a send, or what came of it where there is none."""
    try:
        return call(url, data, headers, timeout_s=timeout_s)
    except NotReached as error:
        return early(str(error))
    except Unclear as error:
        return unknown(str(error))


def _decoded(answer: Any, until: float) -> Any:
    """Its JSON. What breaks off, drips in until the time is over or is no JSON is None: the status says what counts."""
    data = b""
    try:
        while len(data) < ANSWER_BYTES_MAX and (more := answer.read1(ANSWER_BYTES_MAX - len(data))):
            data += more
            if time.monotonic() > until:
                return None
        return json.loads(data)
    except (ValueError, RecursionError, OSError, http.client.HTTPException):
        return None


def _plain(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    words = getattr(error, "strerror", None)
    return words if isinstance(words, str) else type(error).__name__
