"""The channel `telegram`: a bot that shows a decision with buttons, and takes presses and replies of the users named.

Four methods of the Bot API over plain HTTP, and not a library's Bot class: that one is asyncio's, and has one error for
a request that left and one that did not, which is what decides here between `refused` and `unknown`.

A press bears the message's token and the choice's number, within the 64 bytes of callback data; a reply to the question
for a text has both in the message that it replies to. So nothing is remembered here. How far updates are read is
stored with the answer, and only then asked for further.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

from pwf.channels.http import NotReached, Reply, Unclear, call, sent
from pwf.channels.port import Adapter, Outcome, done, early
from pwf.channels.words import NOT_NAMED, Press, buttons_of, cut, press_of, text_of
from pwf.config import TelegramChannel
from pwf.protocol.channel_port import ChannelMessage, Close, Verdict

TEXT_UNITS_MAX = 4_096  # of UTF-16
TOAST_CHARS_MAX = 190
LABEL_BYTES_MAX = 100
POLL_S = 50
#: All that is read is confirmed once nothing more comes: the next number may be a lower one (after a week without any).
EARLIEST = "0"
RETRY_S, RETRY_S_MAX = 1.0, 60.0
REPLY = re.compile(r"\[([0-9a-f]{32}:\d{1,2}:text)\]\s*$", re.ASCII)


class TelegramAdapter(Adapter[TelegramChannel]):
    """See the module."""

    listens = True

    def start(self) -> None:
        token = self.secret(self.settings.token)
        self._base = f"{self.settings.server}/bot{token}/"
        self._offset = self.read_from(self.settings.server, token.partition(":")[0]) or EARLIEST

    # --- out ----------------------------------------------------------------------------------------------------

    def show(self, message: ChannelMessage) -> Outcome:
        buttons = [
            [{"text": cut(label, LABEL_BYTES_MAX), "callback_data": value}]
            for label, value in buttons_of(message)
        ]
        facts: dict[str, Any] = {
            "chat_id": self.settings.chat,
            "text": cut(text_of(message, choices=False), TEXT_UNITS_MAX, "utf-16-le"),
        }
        if message.token:
            facts["reply_markup"] = {"inline_keyboard": buttons}
        reply = self._send("sendMessage", facts)
        if isinstance(reply, Outcome):
            return reply
        return done(str(reply.body["result"]["message_id"])) if _ok(reply) else _refusal(reply)

    def close(self, close: Close) -> Outcome:
        text = cut(f"{close.title}\n\n{close.said}", TEXT_UNITS_MAX, "utf-16-le")
        facts = {"chat_id": self.settings.chat, "message_id": _number(close.ref), "text": text}
        reply = self._send("editMessageText", facts)
        if isinstance(reply, Outcome):
            return reply
        if _ok(reply) or "not modified" in _why(reply):
            return done(close.ref)
        return _refusal(reply)

    def _send(self, method: str, facts: dict[str, Any]) -> Reply | Outcome:
        return sent(self._base + method, json.dumps(facts).encode(), {"Content-Type": "application/json"})

    # --- answers ------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        wait_s = RETRY_S
        while True:
            if self.poll():
                wait_s = RETRY_S
            else:
                time.sleep(wait_s)
                wait_s = min(RETRY_S_MAX, wait_s * 2)

    def poll(self, poll_s: float = POLL_S) -> bool:
        """Ask once for updates, and take them in order; False where that failed."""
        facts = {
            "offset": int(self._offset),
            "timeout": poll_s,
            "allowed_updates": ["callback_query", "message"],
        }
        headers = {"Content-Type": "application/json"}
        try:
            reply = call(
                self._base + "getUpdates", json.dumps(facts).encode(), headers, timeout_s=poll_s + 15
            )
        except (NotReached, Unclear) as error:
            self.reading.failed(f"updates can not be read: {error}", "is the network there?")
            return False
        if not _ok(reply):
            self._trouble(reply)
            return False
        self.reading.fine()
        for update in reply.body["result"]:
            offset = str(update["update_id"] + 1)
            self._take(update, self.cursor(offset))
            self._offset = offset
        if not reply.body["result"] and self._offset != EARLIEST:
            self.port.answer(cursor=self.cursor(EARLIEST))
            self._offset = EARLIEST
        return True

    def _trouble(self, reply: Reply) -> None:
        why, what_to_do = f"updates can not be read: {reply.status}: {_why(reply)}", "is the token right?"
        if reply.status == 409:
            why = "409: another program reads the updates of this bot, so that presses do not arrive here"
            what_to_do = "end it, or make a bot of its own for each (a webhook is removed by deleteWebhook)"
        self.reading.failed(why, what_to_do, at_once=True)

    def _take(self, update: dict[str, Any], cursor: str) -> None:
        press, message = update.get("callback_query"), update.get("message")
        if press is not None:
            self._pressed(press, cursor)
        elif message is not None and (found := REPLY.search(_replied_to(message))):
            verdict = self._answer(message, press_of(found[1]), message.get("text"), cursor)
            if verdict is not None:
                self._tell(verdict.said or verdict.asks or "")
        else:
            self.port.answer(cursor=cursor)

    def _pressed(self, press: dict[str, Any], cursor: str) -> None:
        pressed = press_of(str(press.get("data", "")))
        chat = press.get("message", {}).get("chat", {})
        verdict = self._answer({**press, "chat": chat}, pressed, None, cursor)
        said = NOT_NAMED if verdict is None else verdict.said
        if verdict is not None and verdict.asks is not None and pressed is not None:
            replied = f"[{pressed.token}:{pressed.number}:text]"  # one without words asks again
            self._tell(f"{verdict.asks}\n\nReply to this message. {replied}", asks=True)
            said = verdict.asks
        facts = {"callback_query_id": press["id"], "text": cut(said, TOAST_CHARS_MAX)}
        self._send("answerCallbackQuery", facts)  # one that is too old is no loss: the message is edited

    def _answer(
        self, sent_: dict[str, Any], pressed: Press | None, text: str | None, cursor: str
    ) -> Verdict | None:
        """The daemon's verdict; None for a person or a chat that is not named. How far is read is stored."""
        person = sent_.get("from", {})
        named = person.get("id") in self.settings.users and sent_["chat"].get("id") == self.settings.chat
        if not named or pressed is None:
            self.port.answer(cursor=cursor)
            return None
        who = str(person.get("username") or person["id"])
        return self.port.answer(
            token=pressed.token,
            number=pressed.number,
            text=text,
            with_text=pressed.with_text,
            who=who,
            cursor=cursor,
        )

    def _tell(self, text: str, *, asks: bool = False) -> None:
        facts: dict[str, Any] = {"chat_id": self.settings.chat, "text": text}
        if asks:
            facts["reply_markup"] = {"force_reply": True, "selective": True}
        self._send("sendMessage", facts)


def _replied_to(message: dict[str, Any]) -> str:
    return str(message.get("reply_to_message", {}).get("text", ""))


def _ok(reply: Reply) -> bool:
    return reply.ok and isinstance(reply.body, dict) and bool(reply.body.get("ok"))


def _why(reply: Reply) -> str:
    return str((reply.body or {}).get("description", ""))


def _refusal(reply: Reply) -> Outcome:
    if reply.status == 429:
        after = (reply.body or {}).get("parameters", {}).get("retry_after")
        return early(f"429: {_why(reply)}", retry_after_s=float(after) if isinstance(after, int) else 1.0)
    return reply.outcome(_why(reply))


def _number(ref: str) -> int:
    return int(ref) if ref.isdecimal() else 0
