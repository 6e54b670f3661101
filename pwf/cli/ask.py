"""Asking an open checkpoint on the spot.

The terminal and the daemon are watched together: a request that somebody else answers meanwhile is let go
at once. The answer is JSON; where the request's schema leaves no doubt, plain text, `yes` and `no` are
taken too.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from pwf.cli.out import Out
from pwf.errors import Conflict, InvalidAnswer, NotFound, PwfError, Rejected
from pwf.present import text
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.views import RequestView, RunView
from pwf.values import parse

if TYPE_CHECKING:
    from pwf.client.core import Subscription
    from pwf.client.sync import SyncClient

PROMPT = "answer> "
LINE_BYTES_MAX = 1024 * 1024
_YES_NO = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


class Asker:
    """Asks the requests of one run, each until it is answered or left open."""

    def __init__(self, client: SyncClient, out: Out, subscription: Subscription) -> None:
        self._client = client
        self._out = out
        self._subscription = subscription
        self._left_open: set[str] = set()
        self._typed = b""

    def wants(self, view: RunView) -> bool:
        """Whether the view has a request that should be asked here."""
        request = view.request
        return (
            request is not None
            and request.status == "pending"
            and REQUESTS[request.kind].plain
            and view.summary.status == "waiting"
            and request.request_id not in self._left_open
        )

    def ask(self, view: RunView) -> None:
        """Ask until answered (here or elsewhere) or left open with an empty line or Ctrl-D."""
        request = view.request
        assert request is not None
        self._show(request)
        while True:
            typed = self._read_line(request)
            if typed is None:
                return
            if not typed.strip():
                self._left_open.add(request.request_id)
                self._out.print(
                    f"left open; answer it with:  pwf answer {text.line(request.request_id)} JSON"
                )
                return
            try:
                self._client.answer(request.request_id, read_answer(typed, request.schema))
            except (NotFound, Conflict, Rejected) as error:
                self._out.print(f"not taken: {text.line(error.message)}")
                self._left_open.add(request.request_id)
                return
            except InvalidAnswer as error:
                self._out.print(self._out.paint(text.block(error.message), "red"))
            except PwfError as error:
                if error.code not in ("invalid_value", "invalid_argument", "value_too_large"):
                    raise
                self._out.print(self._out.paint(text.block(error.message), "red"))
                self._out.print(f"hint: {text.line(error.hint or 'answer with one JSON value')}")
            else:
                self._left_open.add(request.request_id)  # until the view says so too
                return

    def _show(self, request: RequestView) -> None:
        prompt = self._client.read_value(request.run_id, request.prompt)
        self._out.print()
        self._out.print(self._out.paint(f"? {text.line(request.node)} asks", "yellow"))
        self._out.print(indent(prompt_text(prompt)))
        self._out.print(self._out.paint(f"  {expected(request.schema)}; an empty line leaves it open", "dim"))

    def _read_line(self, request: RequestView) -> str | None:
        """The typed line; empty at end of input; None when the request was settled elsewhere."""
        sys.stdout.write(PROMPT)
        sys.stdout.flush()
        stdin = sys.stdin.fileno()
        while b"\n" not in self._typed:
            poll = select.poll()
            poll.register(stdin, select.POLLIN)
            poll.register(self._client.fileno(), select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._client.fileno() in ready:
                self._client.poll(0)
                if self._settled_elsewhere(request):
                    self._out.print("\nsettled elsewhere")
                    return None
            if stdin in ready:
                data = os.read(stdin, 65536)
                if not data or len(self._typed) > LINE_BYTES_MAX:
                    self._typed = b""
                    self._out.print()
                    return ""
                self._typed += data
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace")

    def _settled_elsewhere(self, request: RequestView) -> bool:
        if self._subscription.document is None or self._subscription.ended:
            return self._subscription.ended
        view = self._subscription.value()
        assert isinstance(view, RunView)
        now = view.request
        return now is None or now.request_id != request.request_id or now.status != "pending"


def read_answer(typed: str, schema: dict[str, Any] | None) -> Any:
    """The JSON value that was typed; text and yes/no where the schema says so. Raises `InvalidValue`."""
    kind = resolved(schema)
    words = typed.strip()
    if kind.get("type") == "boolean" and words.lower() in _YES_NO:
        return _YES_NO[words.lower()]
    try:
        return parse(words, what="the answer")
    except PwfError as error:
        if kind.get("type") == "string" or words in kind.get("enum", ()):
            return words
        error.hint = "put text in double quotes" if schema is None else expected(schema)
        raise


def expected(schema: dict[str, Any] | None) -> str:
    """What the answer should be, in words."""
    kind = resolved(schema)
    if "enum" in kind:
        shown = ", ".join(text.json_line(msgspec.json.encode(choice)) for choice in kind["enum"])
        return f"one of {shown}"
    words = {
        "boolean": "yes or no",
        "string": "text",
        "integer": "a whole number",
        "number": "a number",
        "array": "a JSON array",
        "null": "null",
    }
    if kind.get("type") == "object":
        fields = [text.line(str(name), 40) for name in kind.get("properties", {})]
        return "a JSON object" + (f" with {', '.join(fields)}" if fields else "")
    return words.get(str(kind.get("type")), "any JSON value")


def resolved(schema: dict[str, Any] | None) -> dict[str, Any]:
    """The schema, with a reference at its top followed."""
    if not isinstance(schema, dict):
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        found = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        return found if isinstance(found, dict) else {}
    return schema


def prompt_text(data: bytes) -> str:
    """A prompt for people: a string as its text, everything else as indented JSON."""
    try:
        plain = msgspec.json.decode(data)
    except msgspec.MsgspecError:
        plain = None
    return text.block(plain) if isinstance(plain, str) else text.pretty(data)


def indent(words: str) -> str:
    return "\n".join(f"  {line}" for line in words.splitlines())
