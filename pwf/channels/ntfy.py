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

from pwf.channels.http import NotReached, sent, stream
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
        self.begin_reading()
        wait_s = RETRY_S
        while True:
            wait_s = RETRY_S if self.follow() else wait_s
            time.sleep(wait_s)
            wait_s = min(RETRY_S_MAX, wait_s * 2)

    def begin_reading(self) -> None:
        """From now on, where nothing was read: stored, so that no answer is lost in a gap before the first."""
        source = (self.settings.server, self.settings.reply_topic or "")
        self._read = self.read_from(*source) or str(int(time.time()))
        self.port.answer(cursor=self.cursor(self._read))

    def follow(self) -> bool:
        """Read until it ends, or fails; whether there was anything to read from."""
        url = (
            f"{self.settings.server}/{self.settings.reply_topic}/json?since={urllib.parse.quote(self._read)}"
        )
        opened = False
        try:
            with stream(url, self._headers, timeout_s=LINE_S_MAX) as lines:
                opened = True
                for line in lines:
                    said = json.loads(line)
                    self.reading.fine()
                    if said.get("event") == "message":
                        read = str(said["id"])
                        self._take(str(said.get("message", "")), self.cursor(read))
                        self._read = read
        except urllib.error.HTTPError as error:
            why = f"the reply topic can not be read: {error.code}"
            self.reading.failed(why, "is the token allowed to?", at_once=True)
        except (NotReached, ValueError, OSError, http.client.HTTPException) as error:
            self.reading.failed(
                f"the reply topic can not be read: {type(error).__name__}", "is the server there?"
            )
        return opened

    def _take(self, words: str, cursor: str) -> None:
        token, _, rest = words.partition(" ")
        number, _, text = rest.partition(" ")
        if not number.isdecimal() or len(number) > 2:
            self.port.answer(cursor=cursor)
            return
        self.port.answer(token=token, number=int(number), text=text or None, who="ntfy", cursor=cursor)
