"""Answers through Telegram, ntfy and a webhook: each once, from those who may, read for good only when stored."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.channels.ntfy import NtfyAdapter
from pwf.channels.port import FAILURES_TOLD, STEADY
from pwf.channels.telegram import EARLIEST, TelegramAdapter
from pwf.channels.webhook import SKEW_S, WebhookAdapter, signature
from pwf.config import WebhookChannel
from pwf.errors import ConfigError
from pwf.protocol.channel_port import Begin, Verdict
from tests.channels.fakes import KEY, FakeHook, FakeNtfy, FakePort, FakeTelegram, serving
from tests.channels.messages import SHIP as SHIP_IT
from tests.channels.messages import STOP, TOKEN, decision
from tests.channels.test_conformance import Case

SHIP, FIX = f"{TOKEN}:0", f"{TOKEN}:1"


@pytest.fixture
def telegram(tmp_path: Path) -> Iterator[Case]:
    fake = FakeTelegram()
    with serving(fake) as url:
        yield Case("telegram", tmp_path, url, fake)


def bot(case: Case, **more: Any) -> tuple[TelegramAdapter, FakeTelegram, FakePort]:
    adapter = case.adapter(**more)
    assert isinstance(adapter, TelegramAdapter)
    assert isinstance(case.fake, FakeTelegram)
    return adapter, case.fake, case.port


def test_a_press_is_an_answer_with_its_token_and_is_told_what_was_decided(telegram: Case) -> None:
    adapter, fake, port = bot(telegram)
    adapter.show(decision())
    data = fake.taken[0]["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    fake.press(41, data)
    assert adapter.poll(0)
    (said,) = port.answers
    facts = {"token": TOKEN, "number": 0, "text": None, "with_text": False, "who": "u1"}
    assert said == {**facts, "cursor": said["cursor"]}
    assert port.read == ["42"]
    assert fake.toasts == ["decided: Ship it, by ann"]


def test_an_update_is_read_for_good_only_after_the_commit(telegram: Case) -> None:
    adapter, fake, port = bot(telegram)
    fake.press(41, SHIP)

    def dies(_: Any) -> Verdict:
        raise ConnectionResetError

    fine, port.verdict = port.verdict, dies
    with pytest.raises(ConnectionResetError):
        adapter.poll(0)
    port.verdict = fine
    again, fake, port = bot(telegram, cursor=port.cursor)
    assert again.poll(0)
    assert port.read == ["42"]
    for _ in range(2):
        assert again.poll(0)
    assert port.read == ["42", EARLIEST]


def test_who_is_not_named_and_another_chat_decide_nothing_and_are_read(telegram: Case) -> None:
    adapter, fake, port = bot(telegram)
    fake.press(1, SHIP, user=666)
    fake.press(2, SHIP)
    fake.updates[-1]["callback_query"]["message"]["chat"]["id"] = 8
    fake.updates.append({"update_id": 3, "message": {"chat": {"id": 7}, "from": {"id": 1}, "text": "hello"}})
    fake.press(4, "nonsense")
    adapter.poll(0)
    assert [set(one) for one in port.answers] == [{"cursor"}] * 4
    assert port.read == ["2", "3", "4", "5"]
    assert fake.toasts[0] == "you are not among those who may decide here"


def test_a_choice_with_a_text_is_asked_for_it_and_the_reply_answers_also_after_a_restart(
    telegram: Case,
) -> None:
    adapter, fake, port = bot(telegram)
    asks = Verdict(number=1, said="", taken=False, asks="What must change?")
    fine, port.verdict = port.verdict, lambda said: fine(said) if said.get("text") else asks
    fake.press(1, FIX)
    adapter.poll(0)
    question = fake.taken[-1]
    assert question["reply_markup"]["force_reply"]
    assert question["text"].startswith("What must change?")
    again, fake, port = bot(telegram, cursor=port.cursor)
    fake.reply(2, question["text"], "the tests hang")
    again.poll(0)
    assert (port.answers[-1]["token"], port.answers[-1]["number"]) == (TOKEN, 1)
    assert port.answers[-1]["text"] == "the tests hang"


def test_a_text_that_may_be_left_out_has_a_button_of_its_own_and_a_reply_without_words_asks_again(
    telegram: Case,
) -> None:
    adapter, fake, port = bot(telegram)
    adapter.show(decision(choices=(SHIP_IT, STOP)))
    rows = [row[0] for row in fake.taken[0]["reply_markup"]["inline_keyboard"]]
    assert [one["text"] for one in rows] == ["Ship it", "Stop", "Stop ✎ Why?"]
    asks = Verdict(number=1, said="", taken=False, asks="Why?")
    fine, port.verdict = (
        port.verdict,
        lambda said: asks if said["with_text"] and not said["text"] else fine(said),
    )
    fake.press(1, rows[2]["callback_data"])
    adapter.poll(0)
    question = fake.taken[-1]
    assert question["text"].startswith("Why?")
    fake.reply(2, question["text"], "the tests hang")
    fake.reply(3, question["text"], "")
    del fake.updates[-1]["message"]["text"]  # a picture
    adapter.poll(0)
    said = [(one["number"], one["text"], one["with_text"]) for one in port.answers]
    assert said == [(1, None, True), (1, "the tests hang", True), (1, None, True)]
    fake.press(4, rows[1]["callback_data"])
    adapter.poll(0)
    assert (port.answers[-1]["text"], port.answers[-1]["with_text"]) == (None, False)


def test_another_poller_is_said_once_and_sending_goes_on(telegram: Case) -> None:
    adapter, fake, port = bot(telegram)
    fake.other_poller = True
    assert [adapter.poll(0) for _ in range(3)] == [False] * 3
    assert adapter.show(decision()).outcome == "done"
    assert len(port.troubles) == 1
    assert "another program reads the updates" in str(port.troubles[0])
    for by_turns in (False, True, False, True):
        fake.other_poller = by_turns
        adapter.poll(0)
    assert len(port.troubles) == 1, "and once alone, also where both read by turns"
    fake.other_poller = False
    for _ in range(STEADY):
        assert adapter.poll(0)
    assert port.troubles[1:] == [None]


def test_another_bot_under_the_same_name_reads_its_updates_from_the_first_on(telegram: Case) -> None:
    adapter, fake, port = bot(telegram)
    fake.press(900, SHIP)
    adapter.poll(0)
    (telegram.config.parent / "secrets" / "bot").write_text("777:another-token-of-it")
    fake.token = "777:another-token-of-it"
    other, fake, port = bot(telegram, cursor=port.cursor)
    fake.updates = []
    fake.press(5, SHIP)
    other.poll(0)
    assert port.read == ["901", "6"]


def test_once_nothing_more_comes_a_lower_number_is_read_too_also_after_a_restart(telegram: Case) -> None:
    adapter, fake, port = bot(telegram)
    fake.press(900, SHIP)
    for _ in range(2):
        adapter.poll(0)
    fake.press(5, SHIP)
    again, fake, port = bot(telegram, cursor=port.cursor)
    again.poll(0)
    assert port.read == ["901", EARLIEST, "6"]


@pytest.mark.parametrize("kind", ["telegram", "ntfy"])
def test_a_service_that_can_not_be_read_for_a_while_is_said_once(tmp_path: Path, kind: str) -> None:
    case = Case(kind, tmp_path, "http://127.0.0.1:9", FakeHook())
    adapter: Any = case.adapter()
    if kind == "ntfy":
        adapter.begin_reading()
    ask = adapter.poll if kind == "telegram" else adapter.follow
    assert not any(ask() for _ in range(FAILURES_TOLD - 1))
    assert case.port.troubles == []
    assert not any(ask() for _ in range(3))
    assert len(case.port.troubles) == 1
    assert "can not be read" in str(case.port.troubles[0])


# --- ntfy -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ntfy(tmp_path: Path) -> Iterator[Case]:
    fake = FakeNtfy()
    with serving(fake) as url:
        yield Case("ntfy", tmp_path, url, fake)


def test_an_action_posts_its_token_and_the_stream_brings_it_once(ntfy: Case) -> None:
    adapter, fake = ntfy.adapter(), ntfy.fake
    assert isinstance(adapter, NtfyAdapter)
    assert isinstance(fake, FakeNtfy)
    adapter.show(decision())
    (action,) = fake.taken[0]["actions"]
    assert action["url"] == f"{ntfy.url}/answers"
    fake.post("answers", action["body"])
    fake.post("answers", "spam")
    fake.post("answers", f"{TOKEN} 1 the tests hang")
    adapter.begin_reading()
    assert adapter.follow()
    said = [(one.get("token"), one.get("number"), one.get("text")) for one in ntfy.port.answers[1:]]
    assert said == [(TOKEN, 0, None), (None, None, None), (TOKEN, 1, "the tests hang")]
    assert adapter.follow()
    assert len(ntfy.port.answers) == 4


def test_what_comes_in_a_gap_before_the_first_answer_is_read_after_it(ntfy: Case) -> None:
    adapter = ntfy.adapter()
    assert isinstance(adapter, NtfyAdapter)
    adapter.begin_reading()
    first = ntfy.port.cursor
    assert abs(int(ntfy.port.read[0]) - time.time()) < 60
    again = ntfy.adapter(cursor=first)
    assert isinstance(again, NtfyAdapter)
    again.begin_reading()
    assert ntfy.port.cursor == first, "it reads from when the channel began"


def test_a_stream_that_breaks_off_is_read_on_behind_what_was_read(ntfy: Case) -> None:
    adapter, fake = ntfy.adapter(), ntfy.fake
    assert isinstance(adapter, NtfyAdapter)
    assert isinstance(fake, FakeNtfy)
    adapter.begin_reading()
    fake.post("answers", f"{TOKEN} 0")
    fake.breaks_off = True
    assert adapter.follow(), "it was open: the next one is tried at once"
    fake.breaks_off = False
    fake.post("answers", f"{TOKEN} 1 x")
    adapter.follow()
    assert [one["number"] for one in ntfy.port.answers[1:]] == [0, 1]


def test_with_a_page_the_action_opens_it_and_no_token_is_in_the_notification(ntfy: Case) -> None:
    ntfy.adapter().show(decision(link="https://pwf.example/answer/x"))
    shown = ntfy.fake.taken[0]
    assert shown["actions"] == [{"action": "view", "label": "Decide", "url": "https://pwf.example/answer/x"}]
    assert TOKEN not in json.dumps(shown)


# --- webhook ----------------------------------------------------------------------------------------------------


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[tuple[WebhookAdapter, FakePort, str]]:
    case = Case("webhook", tmp_path, "http://127.0.0.1:9", FakeHook())
    begin = Begin(epoch=1, name="x", kind="webhook", settings=msgspec.Raw(b"{}"), config=str(case.config))
    settings = WebhookChannel(url=case.url, secret="key", listen="127.0.0.1:0")
    adapter = WebhookAdapter(case.port, begin, settings)  # type: ignore[arg-type]
    adapter.start()
    assert adapter.server is not None
    thread = threading.Thread(target=adapter.server.serve_forever, args=(0.01,))
    thread.start()
    yield adapter, case.port, f"http://127.0.0.1:{adapter.server.server_address[1]}"
    adapter.server.shutdown()
    thread.join()
    adapter.stop()


def post(url: str, body: bytes, at: int | None = None, key: str = KEY) -> tuple[int, Any]:
    stamp = str(int(time.time()) if at is None else at)
    headers = {"X-Pwf-Timestamp": stamp, "X-Pwf-Signature": signature(key.encode(), stamp, body)}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body, headers=headers)) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


ANSWER = json.dumps({"token": TOKEN, "choice": "ship", "who": "ann"}).encode()


def test_a_signed_post_decides_and_the_same_post_again_is_refused(hook: Any) -> None:
    _, port, url = hook
    at = int(time.time())
    assert post(url, ANSWER, at) == (200, {"taken": True, "said": "decided: Ship it, by ann"})
    assert post(url, ANSWER, at)[0] == 409
    assert [one["choice"] for one in port.answers] == ["ship"]


def test_what_is_not_signed_too_old_or_wrong_leaves_no_trace(hook: Any) -> None:
    adapter, port, url = hook
    now = int(time.time())
    assert post(url, ANSWER, key="another")[0] == 401
    assert post(url, ANSWER, now - SKEW_S - 1)[0] == 401
    assert post(url, ANSWER, now + SKEW_S + 60)[0] == 401
    assert post(url, ANSWER, adapter._since - 1)[0] == 401, "sent before this process began"
    assert post(url, b"{}")[0] == 400
    for method in ("GET", "HEAD"):
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(urllib.request.Request(url, method=method))
    assert port.answers == []


def test_a_time_of_any_length_is_refused(hook: Any) -> None:
    adapter, _, _ = hook
    assert adapter.take("9" * 5_000, "sha256=x", ANSWER)[0] == 401


def test_the_same_post_at_the_same_time_counts_once(hook: Any) -> None:
    adapter, port, _ = hook
    at = str(int(time.time()))
    signed = signature(KEY.encode(), at, ANSWER)
    came: list[int] = []
    threads = [
        threading.Thread(target=lambda: came.append(adapter.take(at, signed, ANSWER)[0])) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == [200] + [409] * 19
    assert len(port.answers) == 1


def test_a_port_that_is_taken_is_named_with_its_key(tmp_path: Path, hook: Any) -> None:
    _, _, url = hook
    case = Case("webhook", tmp_path, "http://127.0.0.1:9", FakeHook())
    begin = Begin(epoch=1, name="hook", kind="webhook", settings=msgspec.Raw(b"{}"), config=str(case.config))
    taken = url.partition("//")[2]
    settings = WebhookChannel(url=url, secret="key", listen=taken)
    second = WebhookAdapter(case.port, begin, settings)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=f"listen = '{taken}' in \\[channels.hook\\]: Address already in use"
    ):
        second.start()


def test_what_goes_out_is_signed(tmp_path: Path) -> None:
    fake = FakeHook()
    with serving(fake) as url:
        Case("webhook", tmp_path, url, fake).adapter().show(decision())
    _, headers, body = fake.requests[0]
    assert headers["X-Pwf-Signature"] == signature(KEY.encode(), headers["X-Pwf-Timestamp"], body)
    assert "token" not in json.loads(body), "it takes no answers"
