"""What every adapter over HTTP does, against a service that fails in each way: it says what is known, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.channels.http import Reply
from pwf.channels.ntfy import NtfyAdapter
from pwf.channels.port import Adapter
from pwf.channels.slack import SlackAdapter
from pwf.channels.telegram import TelegramAdapter
from pwf.channels.webhook import WebhookAdapter
from pwf.config import NtfyChannel, SlackChannel, TelegramChannel, WebhookChannel
from pwf.http_taken import UNREACHED
from pwf.protocol.channel_port import Begin, Close
from pwf.protocol.decision_spec import ChoiceSpec
from tests.channels.fake_slack import APP_TOKEN, FakeSlack
from tests.channels.fakes import BOT_TOKEN, KEY, Fake, FakeHook, FakeNtfy, FakePort, FakeTelegram, serving
from tests.channels.messages import decision
from tests.secret_files import keep_secret

LONG = "🚀 اشحن الإصدار الآن " * 150  # 3,000 characters, right to left


class Case:
    """One adapter, its service and its port."""

    def __init__(self, kind: str, folder: Path, url: str, fake: Fake) -> None:
        self.kind, self.url, self.fake, self.port = kind, url, fake, FakePort()
        for name, value in (("bot", BOT_TOKEN), ("key", KEY), ("app", APP_TOKEN)):
            keep_secret(folder / "secrets" / name, value)
        self.config = folder / "config.toml"

    def adapter(self, url: str | None = None, cursor: str | None = None) -> Adapter[Any]:
        """A process of it begins."""
        url = url or self.url
        settings: Any = {
            "webhook": WebhookChannel(url=url, secret="key"),
            "ntfy": NtfyChannel(topic="t", server=url, token="bot", reply_topic="answers"),
            "telegram": TelegramChannel(token="bot", chat=7, users=(1, 2), server=url),
            "slack": SlackChannel(
                token="bot", app_token="app", channel="C7", users=("U1", "U2"), server=f"{url}/api"
            ),
        }[self.kind]
        made = {
            "webhook": WebhookAdapter,
            "ntfy": NtfyAdapter,
            "telegram": TelegramAdapter,
            "slack": SlackAdapter,
        }[self.kind]
        begin = Begin(
            epoch=1,
            name="x",
            kind=self.kind,
            settings=msgspec.Raw(b"{}"),
            config=str(self.config),
            cursor=cursor,
        )
        adapter: Adapter[Any] = made(self.port, begin, settings)  # type: ignore[arg-type]
        adapter.start()
        return adapter


@pytest.fixture(params=["webhook", "ntfy", "telegram", "slack"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    if request.param == "slack":
        pytest.importorskip("websockets")
    kinds: dict[str, type[Fake]] = {
        "webhook": FakeHook,
        "ntfy": FakeNtfy,
        "telegram": FakeTelegram,
        "slack": FakeSlack,
    }
    fake = kinds[request.param]()
    with serving(fake) as url:
        yield Case(request.param, tmp_path, url, fake)


def test_a_decision_arrives_once_with_its_reference(case: Case) -> None:
    came = case.adapter().show(decision())
    assert (came.outcome, bool(came.ref)) == ("done", True)
    assert len(case.fake.taken) == 1
    assert "release: approve" in str(case.fake.taken)


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_is_busy_is_asked_again_when_it_says(case: Case, status: int) -> None:
    case.fake.faults = [status]
    came = case.adapter().show(decision())
    assert (came.outcome, came.final, came.early) == ("refused", False, True)
    assert came.retry_after_s is not None
    assert case.fake.taken == []


@pytest.mark.parametrize(("said", "after_s"), [("9" * 5_000, 3_600), ("7", 7), ("soon", None), ("-1", None)])
def test_no_service_holds_a_channel_for_longer_than_an_hour(said: str, after_s: float | None) -> None:
    assert Reply(429, {"Retry-After": said}, None).outcome("").retry_after_s == after_s


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_final_and_says_why(case: Case, status: int) -> None:
    case.fake.faults = [status]
    came = case.adapter().show(decision())
    assert (came.outcome, came.final) == ("refused", True)
    assert str(status) in (came.why or "")


@pytest.mark.parametrize("fault", ["lose", 500, 502, 302])
def test_what_may_have_arrived_is_unknown(case: Case, fault: Any) -> None:
    case.fake.faults = [fault]
    assert case.adapter().show(decision()).outcome == "unknown"
    assert len(case.fake.requests) == 1


def test_nobody_there_has_got_nothing(case: Case) -> None:
    came = case.adapter("http://127.0.0.1:9").show(decision())
    assert (came.outcome, came.final, came.early) == ("refused", False, True)
    assert UNREACHED


def test_closing_is_safe_to_repeat(case: Case) -> None:
    adapter = case.adapter()
    ref = adapter.show(decision()).ref or ""
    close = Close(
        attempt=1, ref=ref, message_id="m7xm7xm7xm7x", title="release: approve", said="decided: Ship it"
    )
    assert [adapter.close(close).outcome for _ in range(2)] == ["done", "done"]
    assert "decided: Ship it" in repr(case.fake.taken) + repr(getattr(case.fake, "messages", ""))


def test_a_label_of_any_length_and_script_fits_with_a_mark(case: Case) -> None:
    choices = (ChoiceSpec(id="ship", label=LONG), ChoiceSpec(id="fix", label="Fix"))
    message = decision(choices=choices, title=LONG[:190])
    assert case.adapter().show(message).outcome == "done"
    shown = case.fake.taken[0]
    if case.kind == "ntfy":
        assert shown["actions"][0]["label"].endswith("…")
    if case.kind == "slack":
        assert shown["blocks"][1]["elements"][0]["text"]["text"].endswith("…")
    if case.kind == "telegram":
        assert shown["reply_markup"]["inline_keyboard"][0][0]["text"].endswith("…")


def test_no_secret_is_in_what_it_says(case: Case) -> None:
    said = []
    for fault in (400, 500, "lose"):
        case.fake.faults = [fault]
        said.append(case.adapter().show(decision()))
    said.append(case.adapter("http://127.0.0.1:9").show(decision()))
    assert BOT_TOKEN not in repr(said)
    assert KEY not in repr(said)
