"""Services of channels as a real daemon's adapters meet them: where they are, what they got, how somebody answers."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pwf.channels.webhook import signature
from tests.channels.fake_slack import APP_TOKEN, FakeSlack, serving_slack
from tests.channels.fakes import BOT_TOKEN, KEY, Fake, FakeHook, FakeNtfy, FakeTelegram, serving
from tests.e2e.home import Home, wait_for
from tests.e2e.test_web import free_port
from tests.e2e.world import PATIENCE_S
from tests.secret_files import keep_secret

WEBHOOK = '[channels.out]\nkind = "webhook"\nurl = "{url}"\nsecret = "key"\nlisten = "127.0.0.1:{port}"\n'
NTFY = (
    '[channels.out]\nkind = "ntfy"\nserver = "{url}"\ntopic = "t"\ntoken = "bot"\nreply_topic = "answers"\n'
)
TELEGRAM = '[channels.out]\nkind = "telegram"\nserver = "{url}"\ntoken = "bot"\nchat = 7\nusers = [1]\n'
SLACK = (
    '[channels.out]\nkind = "slack"\nserver = "{url}/api"\ntoken = "bot"\napp_token = "app"\n'
    'channel = "C7"\nusers = ["U1"]\n'
)


class Service:
    """One kind of channel, called `out`, with its service."""

    section = ""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.url = ""
        self.port = free_port()

    def config(self) -> str:
        """Its part of the configuration."""
        return self.section.format(url=self.url, port=self.port)

    def shown(self) -> list[Any]:
        """The decisions that people see."""
        return self.fake.taken

    def ref(self) -> str:
        """What the service calls the first message."""
        raise NotImplementedError

    def press(self) -> None:
        """Somebody takes the first choice of the first message; again: the same once more."""
        raise NotImplementedError


class Webhook(Service):
    section = WEBHOOK

    def __init__(self) -> None:
        super().__init__(FakeHook())
        self._at = 0

    def shown(self) -> list[Any]:
        return [one for one in self.fake.taken if one["event"] == "decide"]

    def ref(self) -> str:
        return str(self.fake.taken[0]["message_id"])

    def press(self) -> None:
        shown = self.fake.taken[0]
        answer = {"token": shown["token"], "choice": shown["choices"][0]["id"], "who": "ann"}
        body = json.dumps(answer).encode()
        self._at = max(self._at + 1, int(time.time()))  # the same at the same time would be a replay
        stamp = str(self._at)
        headers = {"X-Pwf-Timestamp": stamp, "X-Pwf-Signature": signature(KEY.encode(), stamp, body)}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}", data=body, headers=headers)
        wait_for(lambda: self._posted(request), PATIENCE_S)

    def _posted(self, request: urllib.request.Request) -> bool:
        """Whether somebody listens already."""
        try:
            urllib.request.urlopen(request).close()
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            return False
        return True


class Ntfy(Service):
    section = NTFY

    def __init__(self) -> None:
        super().__init__(FakeNtfy())

    def shown(self) -> list[Any]:
        return [one for one in self.fake.taken if "actions" in one]

    def ref(self) -> str:
        return "n1"

    def press(self) -> None:
        assert isinstance(self.fake, FakeNtfy)
        self.fake.post("answers", self.fake.taken[0]["actions"][0]["body"])


class Telegram(Service):
    section = TELEGRAM

    def __init__(self) -> None:
        super().__init__(FakeTelegram())
        self._update = 40

    def ref(self) -> str:
        return "100"

    def press(self) -> None:
        assert isinstance(self.fake, FakeTelegram)
        self._update += 1
        keyboard = self.fake.taken[0]["reply_markup"]["inline_keyboard"]
        self.fake.press(self._update, keyboard[0][0]["callback_data"])


class Slack(Service):
    section = SLACK

    def __init__(self) -> None:
        fake = FakeSlack()
        fake.stays_s = 2.0
        super().__init__(fake)

    def ref(self) -> str:
        return "1700000000.000000"

    def press(self) -> None:
        assert isinstance(self.fake, FakeSlack)
        self.fake.press(self.fake.taken[0]["blocks"][1]["elements"][0]["value"])


SERVICES = {"webhook": Webhook, "ntfy": Ntfy, "telegram": Telegram, "slack": Slack}


@contextmanager
def service_of(home: Home, kind: str, more: str = "") -> Iterator[Service]:
    """The service runs, and the home has a channel to it; `more` stands before it in the configuration."""
    service: Service = SERVICES[kind]()
    fake = service.fake
    with serving_slack(fake) if isinstance(fake, FakeSlack) else serving(fake) as service.url:
        home.config(more + service.config())
        keep_secret(home.home / "secrets" / "bot", BOT_TOKEN)
        keep_secret(home.home / "secrets" / "key", KEY)
        keep_secret(home.home / "secrets" / "app", APP_TOKEN)
        yield service
