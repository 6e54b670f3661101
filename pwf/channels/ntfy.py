"""The channel `ntfy`, on ntfy.sh or a server of one's own: a notification with up to three actions.

An action opens the answer page, where there is one, or posts a one-time token to the reply topic. A settled decision
replaces its notification by the same sequence id; where server or app know none, they show a second, quiet one.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
from typing import Any

from pwf.channels.http import sent, stream
from pwf.channels.port import Adapter, Outcome, Port, done
from pwf.channels.words import cut, text_of
from pwf.config import NtfyChannel
from pwf.protocol.channel_port import Begin, ChannelMessage, Close

TITLE_BYTES_MAX = 250
MESSAGE_BYTES_MAX = 4_000  # ntfy makes an attachment of what is longer than 4,096
LABEL_BYTES_MAX = 60
ACTIONS_MAX = 3
LINE_S_MAX = 90.0  # a server says something every 45 s
RETRY_S, RETRY_S_MAX = 1.0, 60.0


class NtfyAdapter(Adapter[NtfyChannel]):
    """See the module."""

    def __init__(self, port: Port, begin: Begin, settings: NtfyChannel) -> None:
        super().__init__(port, begin, settings)
        self.listens = settings.reply_topic is not None
        self._headers: dict[str, str] = {}

    def start(self) -> None:
        if self.settings.token is not None:
            self._headers = {"Authorization": f"Bearer {self.secret(self.settings.token)}"}

    def show(self, message: ChannelMessage) -> Outcome:
        actions = self._actions(message)
        return self._publish(
            {
                "title": cut(message.title, TITLE_BYTES_MAX),
                "message": cut(
                    text_of(message, choices=len(actions) < len(message.choices)), MESSAGE_BYTES_MAX
                ),
                "priority": self.settings.priority,
                "sequence_id": message.message_id,
                **({"actions": actions} if actions else {}),
                **({"click": message.link} if message.link else {}),
            }
        )

    def _actions(self, message: ChannelMessage) -> list[dict[str, Any]]:
        if message.link is not None:
            return [{"action": "view", "label": "Decide", "url": message.link}]
        if self.settings.reply_topic is None or not message.token:
            return []
        url = f"{self.settings.server}/{self.settings.reply_topic}"
        return [
            {
                "action": "http",
                "label": cut(choice.label, LABEL_BYTES_MAX),
                "url": url,
                "method": "POST",
                "body": f"{message.token} {number}",
            }
            for number, choice in enumerate(message.choices)
            if choice.text is None or not choice.text.required
        ][:ACTIONS_MAX]

    def close(self, close: Close) -> Outcome:
        facts = {"title": cut(close.title, TITLE_BYTES_MAX), "message": cut(close.said, MESSAGE_BYTES_MAX)}
        return self._publish({**facts, "priority": 1, "sequence_id": close.message_id})

    def _publish(self, facts: dict[str, Any]) -> Outcome:
        body = json.dumps({"topic": self.settings.topic, **facts}).encode()
        headers = {"Content-Type": "application/json", **self._headers}
        reply = sent(self.settings.server, body, headers)
        if isinstance(reply, Outcome):
            return reply
        if reply.ok:
            return done(str((reply.body or {}).get("id", "")) or None)
        return reply.outcome(str((reply.body or {}).get("error", "")))

    # --- answers ------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        cursor, wait_s = self.begin.cursor, RETRY_S
        while True:
            try:
                cursor = self._follow(cursor)
                wait_s = RETRY_S
            except urllib.error.HTTPError as error:
                self.port.trouble(
                    f"the reply topic can not be read: {error.code}", "is the token allowed to?"
                )
            except (OSError, http.client.HTTPException):
                pass  # it is tried again
            time.sleep(wait_s)
            wait_s = min(RETRY_S_MAX, wait_s * 2)

    def _follow(self, cursor: str | None) -> str | None:
        """Read until the server ends it; how far."""
        since = urllib.parse.quote(cursor or str(int(time.time())))
        url = f"{self.settings.server}/{self.settings.reply_topic}/json?since={since}"
        with stream(url, self._headers, timeout_s=LINE_S_MAX) as lines:
            self.port.trouble(None)
            for line in lines:
                said = json.loads(line)
                if said.get("event") == "message":
                    cursor = str(said["id"])
                    self._take(str(said.get("message", "")), cursor)
        return cursor

    def _take(self, words: str, cursor: str) -> None:
        token, _, rest = words.partition(" ")
        number, _, text = rest.partition(" ")
        if not number.isdecimal() or len(number) > 2:
            self.port.answer(cursor=cursor)
            return
        self.port.answer(token=token, number=int(number), text=text or None, who="ntfy", cursor=cursor)
