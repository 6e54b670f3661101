"""The channel `slack`: a bot that shows a decision with buttons in one conversation, and presses over Socket Mode.

A press bears the message's token and the choice's number; a form that asks for a text bears both, too. So nothing is
remembered here. An envelope is acknowledged after the answer's commit: one that is sent again is the same answer again.
What is shown is plain text, so nothing that a run says mentions people or hides a link.
"""

from __future__ import annotations

import importlib
import json
import time
from typing import Any

from pwf.channels.http import NotReached, Reply, Unclear, call, sent
from pwf.channels.port import Adapter, Outcome, done, early, refused, unknown
from pwf.channels.words import NOT_NAMED, buttons_of, cut, press_of, text_of
from pwf.config import SlackChannel
from pwf.errors import extra_missing
from pwf.protocol.channel_port import ChannelMessage, Close, Verdict

TEXT_UNITS_MAX = 3_000  # of a section
LABEL_UNITS_MAX = 75
BUTTONS_MAX = 25  # of one block
FORM_TITLE_UNITS_MAX = 24
INPUT_LABEL_UNITS_MAX = 2_000
INPUT_CHARS_MAX = 3_000
OPEN_S = 15.0
IDLE_S = 20.0  # then it is asked whether it is still there, and has as long to say so
RETRY_S, RETRY_S_MAX = 1.0, 60.0
BUSY = frozenset({"ratelimited", "rate_limited", "service_unavailable", "request_timeout"})
UNREADABLE = "its answer can not be read"
UNDECIDED = frozenset({"internal_error", "fatal_error", UNREADABLE})  # some of it may have been done


class SlackAdapter(Adapter[SlackChannel]):
    """See the module."""

    listens = True

    def start(self) -> None:
        try:
            library: Any = importlib.import_module("websockets.sync.client")
        except ImportError:
            raise extra_missing("a channel of the kind slack", "websockets", "slack") from None
        self._connect = library.connect
        self._broken: tuple[type[Exception], ...] = (
            OSError,
            importlib.import_module("websockets.exceptions").WebSocketException,
        )
        self._bot = self.secret(self.settings.token)
        self._app = self.secret(self.settings.app_token)
        self._in_trouble = False

    # --- out ----------------------------------------------------------------------------------------------------

    def show(self, message: ChannelMessage) -> Outcome:
        blocks = [_section(text_of(message, choices=not message.token))]
        buttons = [
            {
                "type": "button",
                "action_id": f"choice-{number}",
                "text": _plain(label, LABEL_UNITS_MAX),
                "value": value,
            }
            for number, (label, value) in enumerate(buttons_of(message))
        ]
        if message.token:
            blocks += [
                {"type": "actions", "elements": buttons[at : at + BUTTONS_MAX]}
                for at in range(0, len(buttons), BUTTONS_MAX)
            ]
        facts = {"blocks": blocks, "text": _escaped(message.title), "unfurl_links": False}
        return self._outcome(self._send("chat.postMessage", {"channel": self.settings.channel, **facts}))

    def close(self, close: Close) -> Outcome:
        facts = {"channel": self.settings.channel, "ts": close.ref, "text": _escaped(close.said)}
        blocks = [_section(f"{close.title}\n\n{close.said}")]
        return self._outcome(self._send("chat.update", {**facts, "blocks": blocks}))

    def _send(self, method: str, facts: dict[str, Any]) -> Reply | Outcome:
        return sent(f"{self.settings.server}/{method}", json.dumps(facts).encode(), _headers(self._bot))

    def _outcome(self, reply: Reply | Outcome) -> Outcome:
        """Slack says most of what is wrong with 200."""
        if isinstance(reply, Outcome):
            return reply
        error = _error(reply)
        if not reply.ok:
            return reply.outcome(error)
        if error == "":
            return done(str(reply.body.get("ts") or "") or None)
        if error in UNDECIDED:
            return unknown(error)
        if error in BUSY:
            return early(error, retry_after_s=reply.retry_after_s())
        return refused(error, final=True)

    # --- answers ------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        wait_s = RETRY_S
        while True:
            began = time.monotonic()
            if self.follow() and time.monotonic() - began > RETRY_S:
                wait_s = RETRY_S
            else:
                time.sleep(wait_s)
                wait_s = min(RETRY_S_MAX, wait_s * 2)

    def follow(self) -> bool:
        """Take what one connection brings, until it ends; whether another is to be opened at once."""
        url = self._address()
        if url is None:
            return False
        try:
            with self._connect(
                url, open_timeout=OPEN_S, ping_interval=IDLE_S, ping_timeout=IDLE_S, close_timeout=1
            ) as socket:
                return self._serve(socket)
        except self._broken as error:
            self._trouble(f"the connection to Slack has ended: {type(error).__name__}", None)
            return False

    def _address(self) -> str | None:
        """Where to connect: it is good once, and soon."""
        try:
            reply = call(f"{self.settings.server}/apps.connections.open", b"", _headers(self._app))
        except (NotReached, Unclear) as silent:
            self._trouble(f"Slack does not answer: {silent}", None)
            return None
        error = _error(reply)
        if reply.ok and error == "":
            return str(reply.body["url"])
        what_to_do = "app_token names an app-level token (xapp-…) with connections:write"
        self._trouble(f"presses can not be read: {error or reply.status}", what_to_do)
        if reply.status == 429:
            time.sleep(min(reply.retry_after_s() or 0, RETRY_S_MAX))
        return None

    def _serve(self, socket: Any) -> bool:
        while True:
            said = json.loads(socket.recv())
            kind = said.get("type")
            if kind == "hello" and self._in_trouble:
                self._in_trouble = False
                self.port.trouble(None)
            elif kind == "disconnect":
                if said.get("reason") == "link_disabled":
                    self._trouble("Socket Mode of the app is off", "switch it on in the app's settings")
                    return False
                return True
            elif "envelope_id" in said:
                answer = self._take(said.get("payload") or {}) if kind == "interactive" else None
                ack = {"envelope_id": said["envelope_id"]}
                socket.send(json.dumps(ack if answer is None else {**ack, "payload": answer}))

    def _trouble(self, why: str, what_to_do: str | None) -> None:
        if not self._in_trouble:
            self._in_trouble = True
            self.port.trouble(self.masked(why), what_to_do)

    def _take(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """One press, or one form; what is answered to that."""
        if payload.get("type") == "view_submission":
            return self._submitted(payload)
        if payload.get("type") == "block_actions":
            for action in payload.get("actions", []):
                self._pressed(payload, str(action.get("value", "")))
        return None

    def _pressed(self, payload: dict[str, Any], value: str) -> None:
        here = payload.get("channel", {}).get("id") == self.settings.channel
        verdict = self._answer(payload.get("user", {}), value, None) if here else None
        if verdict is None:
            self._whisper(payload, NOT_NAMED)
        elif verdict.asks is not None:
            self._send(
                "views.open", {"trigger_id": payload.get("trigger_id"), "view": _form(verdict.asks, value)}
            )
        elif not verdict.taken:  # what is taken is shown to all: the message is edited
            self._whisper(payload, verdict.said)

    def _submitted(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        view = payload.get("view", {})
        text = view.get("state", {}).get("values", {}).get("text", {}).get("text", {}).get("value")
        verdict = self._answer(payload.get("user", {}), str(view.get("private_metadata", "")), text or "")
        if verdict is not None and verdict.taken:
            return None
        said = NOT_NAMED if verdict is None else verdict.said
        return {"response_action": "errors", "errors": {"text": said or "a text is needed"}}

    def _answer(self, person: dict[str, Any], value: str, text: str | None) -> Verdict | None:
        """The daemon's verdict; None for a person who is not named, and for what is no press of ours."""
        pressed = press_of(value)
        if person.get("id") not in self.settings.users or pressed is None:
            return None
        who = str(person.get("username") or person.get("name") or person["id"])
        return self.port.answer(
            token=pressed.token,
            number=pressed.number,
            text=text,
            with_text=pressed.with_text,
            who=who,
        )

    def _whisper(self, payload: dict[str, Any], said: str) -> None:
        """To the one who has pressed. One that is lost is no loss: nothing was decided by the press."""
        where = {"channel": payload.get("channel", {}).get("id"), "user": payload.get("user", {}).get("id")}
        self._send("chat.postEphemeral", {**where, "text": _escaped(said)})


def _headers(token: str) -> dict[str, str]:
    return {"Content-Type": "application/json; charset=utf-8", "Authorization": f"Bearer {token}"}


def _error(reply: Reply) -> str:
    """What Slack says is wrong; "" where nothing is."""
    body = reply.body if isinstance(reply.body, dict) else {}
    return "" if body.get("ok") else str(body.get("error", UNREADABLE if reply.ok else ""))


def _plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": cut(text, most, "utf-16-le"), "emoji": False}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _plain(text, TEXT_UNITS_MAX)}


def _form(label: str, value: str) -> dict[str, Any]:
    box = {"type": "plain_text_input", "action_id": "text", "multiline": True, "max_length": INPUT_CHARS_MAX}
    return {
        "type": "modal",
        "title": _plain("Your answer", FORM_TITLE_UNITS_MAX),
        "submit": _plain("Decide", FORM_TITLE_UNITS_MAX),
        "private_metadata": value,
        "blocks": [
            {
                "type": "input",
                "block_id": "text",
                "label": _plain(label, INPUT_LABEL_UNITS_MAX),
                "element": box,
            }
        ],
    }


def _escaped(text: str) -> str:
    """As text of a message, in which `<!here>` would call everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
