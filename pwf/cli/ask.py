"""Asking an open checkpoint on the spot.

The terminal and the daemon are watched together: a request that somebody else answers meanwhile is let go
at once. What is typed is read as `pwf answer` reads it (`pwf/cli/reading.py`).
"""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING

from pwf.cli.decide import find_decision, show_decision, typed_choice
from pwf.cli.out import Out
from pwf.cli.reading import read_line
from pwf.errors import Conflict, InvalidAnswer, NotFound, PwfError, Rejected
from pwf.present import form, text
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.views import RequestView, RunView

if TYPE_CHECKING:
    from pwf.client.core import Subscription
    from pwf.client.sync import SyncClient
    from pwf.protocol.decisions import DecisionView

PROMPT = "answer> "
LINE_BYTES_MAX = 1024 * 1024


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
            and (REQUESTS[request.kind].plain or REQUESTS[request.kind].decided)
            and view.summary.status == "waiting"
            and request.request_id not in self._left_open
        )

    def ask(self, view: RunView) -> None:
        """Ask until answered (here or elsewhere) or left open with an empty line or Ctrl-D."""
        request = view.request
        assert request is not None
        decision = None
        if REQUESTS[request.kind].decided:
            decision = find_decision(self._client, request.request_id)
        self._show(request, decision)
        while True:
            typed = self._read_line(request)
            if typed is None:
                return
            if not typed.strip():
                self._left_open.add(request.request_id)
                verb = "answer" if decision is None else "decide"
                self._out.print(f"left open; {verb} it with:  pwf {verb} {text.line(request.request_id)}")
                return
            try:
                if decision is None:
                    self._client.answer(request.request_id, read_line(typed, request.schema))
                else:
                    self._client.decide(decision, *typed_choice(typed, decision))
            except (NotFound, Conflict, Rejected) as error:
                self._out.print(f"not taken: {text.line(error.message)}")
                self._left_open.add(request.request_id)
                return
            except InvalidAnswer as error:
                self._out.print(self._out.paint(text.block(error.message), "red"))
            except PwfError as error:
                if error.code not in ("usage", "invalid_value", "invalid_argument", "value_too_large"):
                    raise
                self._out.print(self._out.paint(text.block(error.message), "red"))
                self._out.print(f"hint: {text.line(error.hint or 'answer with one JSON value')}")
            else:
                self._left_open.add(request.request_id)  # until the view says so too
                return

    def _show(self, request: RequestView, decision: DecisionView | None) -> None:
        self._out.print()
        if decision is None:
            show_question(self._client, request, self._out)
        else:
            show_decision(self._client, decision, self._out)
        self._out.print(self._out.paint("  an empty line leaves it open", "dim"))

    def _read_line(self, request: RequestView) -> str | None:
        """The typed line; empty at end of input; None when the request was settled elsewhere."""
        sys.stdout.write("choice> " if REQUESTS[request.kind].decided else PROMPT)
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


def show_question(client: SyncClient, request: RequestView, out: Out) -> None:
    """The whole question, and what it takes."""
    prompt = client.read_value(request.run_id, request.prompt)
    out.print(out.paint(f"? {text.line(request.node)} asks", "yellow"))
    out.print(indent(text.prompt(prompt)))
    for line in form.form_lines(request.schema):
        out.print(out.paint(f"    {text.line(line)}", "dim"))
    if request.deadline_ms is not None:
        out.print(out.paint(f"    {form.waits(request, out.now_ms())}", "dim"))


def indent(words: str) -> str:
    return "\n".join(f"  {line}" for line in words.splitlines())
