"""Answers through Slack: each once, from those who may, acknowledged when they are stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pwf.channels.slack import SlackAdapter
from pwf.errors import EnvironmentMissing
from pwf.protocol.channel_port import Close, Verdict
from tests.channels.fake_slack import APP_TOKEN, FakeSlack, serving_slack
from tests.channels.fakes import FakePort
from tests.channels.messages import STOP, TOKEN, decision
from tests.channels.test_conformance import Case

SHIP, FIX = f"{TOKEN}:0", f"{TOKEN}:1"


@pytest.fixture
def slack(tmp_path: Path) -> Iterator[tuple[SlackAdapter, FakeSlack, FakePort]]:
    fake = FakeSlack()
    with serving_slack(fake) as url:
        case = Case("slack", tmp_path, url, fake)
        adapter = case.adapter()
        assert isinstance(adapter, SlackAdapter)
        yield adapter, fake, case.port


def test_a_press_is_an_answer_with_its_token_and_is_acknowledged_after_its_commit(slack: Any) -> None:
    adapter, fake, port = slack
    adapter.show(decision())
    button = fake.taken[0]["blocks"][1]["elements"][0]
    acked_before: list[int] = []
    fine = port.verdict
    port.verdict = lambda said: acked_before.append(len(fake.acks)) or fine(said)
    fake.press(button["value"])
    assert adapter.follow(), "it connects again at once"
    (said,) = port.answers
    assert said == {"token": TOKEN, "number": 0, "text": None, "with_text": False, "who": "name-U1"}
    assert (acked_before, fake.acks, fake.whispers) == ([0], [{"envelope_id": "e0"}], [])


def test_an_envelope_whose_answer_was_not_stored_is_not_acknowledged_and_comes_again(slack: Any) -> None:
    adapter, fake, port = slack
    fine = port.verdict

    def dies(_: Any) -> Verdict:
        raise SystemExit

    fake.press(SHIP)
    port.verdict = dies
    with pytest.raises(SystemExit):
        adapter.follow()
    assert fake.acks == []
    port.verdict = fine
    assert adapter.follow()
    assert [one["number"] for one in port.answers] == [0]
    assert fake.acks == [{"envelope_id": "e0"}]


def test_who_is_not_named_another_conversation_and_nonsense_decide_nothing_and_are_acknowledged(
    slack: Any,
) -> None:
    adapter, fake, port = slack
    fake.press(SHIP, user="U666")
    fake.press(SHIP, channel="C8")
    fake.press("nonsense")
    fake.submit({"private_metadata": FIX}, "text", user="U666")
    fake._envelope({"type": "shortcut"})
    adapter.follow()
    assert port.answers == []
    assert fake.whispers == ["you are not among those who may decide here"] * 3
    assert [sorted(one) for one in fake.acks] == [["envelope_id"]] * 3 + [["envelope_id", "payload"]] + [
        ["envelope_id"]
    ]


def test_a_choice_with_a_text_opens_a_form_which_answers_or_says_what_is_wrong(slack: Any) -> None:
    adapter, fake, port = slack
    fine = port.verdict
    asks = Verdict(number=1, said="", taken=False, asks="What must change?")
    long = Verdict(number=1, said="at most 9 characters", taken=False)
    port.verdict = lambda said: {None: asks, "": asks, "much too long": long}.get(said["text"]) or fine(said)
    fake.press(FIX)
    adapter.follow()
    (form,) = fake.forms
    assert form["blocks"][0]["label"]["text"] == "What must change?"
    for text in (None, "much too long", "tests"):
        fake.submit(form, text)
    adapter.follow()
    errors = [one.get("payload", {}).get("errors", {}).get("text") for one in fake.acks]
    assert errors == [None, "a text is needed", "at most 9 characters", None]
    said = {"token": TOKEN, "number": 1, "text": "tests", "with_text": False, "who": "name-U1"}
    assert port.answers[-1] == said


def test_who_comes_second_is_told_alone_what_was_decided(slack: Any) -> None:
    adapter, fake, port = slack
    port.verdict = lambda _: Verdict(number=1, said="it was decided: Ship it, by <bob>", taken=False)
    fake.press(SHIP)
    adapter.follow()
    assert fake.whispers == ["it was decided: Ship it, by &lt;bob&gt;"]


def test_what_keeps_presses_away_is_said_once_and_taken_back(slack: Any) -> None:
    adapter, fake, port = slack
    fake.end = "link_disabled"
    assert [adapter.follow(), adapter.follow()] == [False, False]
    fake.end = "refresh_requested"
    assert adapter.follow()
    assert port.troubles[0] == "Socket Mode of the app is off"
    assert port.troubles[-1] is None
    adapter._app = "xapp-another"
    assert [adapter.follow(), adapter.follow()] == [False, False]
    assert port.troubles[-1] == "presses can not be read: invalid_auth"
    fake.sockets, adapter._app, adapter._in_trouble = "ws://127.0.0.1:9/?ticket=s3cret", APP_TOKEN, False
    assert not adapter.follow()
    assert port.troubles[-1] == "the connection to Slack has ended: ConnectionRefusedError"


@pytest.mark.parametrize(
    ("error", "outcome", "final"),
    [
        ("channel_not_found", "refused", True),
        ("ratelimited", "refused", False),
        ("fatal_error", "unknown", False),
        ("internal_error", "unknown", False),
        ("", "unknown", False),
    ],
)
def test_what_slack_says_with_200_is_told_as_what_it_means(
    slack: Any, error: str, outcome: str, final: bool
) -> None:
    adapter, fake, _ = slack
    if error:
        fake.errors = [error]
    else:
        fake.faults = [(200, b"<html>")]
    came = adapter.show(decision())
    assert (came.outcome, came.final) == (outcome, final)
    assert error in str(came.why)


def test_what_a_run_says_calls_nobody_and_a_settled_message_has_no_buttons(slack: Any) -> None:
    adapter, fake, _ = slack
    ref = adapter.show(decision(title="<!channel> & all")).ref
    shown = fake.messages[ref]
    assert shown["text"] == "&lt;!channel&gt; &amp; all"
    assert {block.get("text", {}).get("type", "plain_text") for block in shown["blocks"]} == {"plain_text"}
    adapter.close(Close(attempt=1, ref=ref, message_id="m", title="release", said="decided: Ship it"))
    assert [block["type"] for block in fake.messages[ref]["blocks"]] == ["section"]


def test_a_text_that_may_be_left_out_has_a_button_of_its_own(slack: Any) -> None:
    adapter, fake, port = slack
    asks = Verdict(number=1, said="", taken=False, asks="Why?")
    fine, port.verdict = (
        port.verdict,
        lambda said: asks if said["with_text"] and not said["text"] else fine(said),
    )
    adapter.show(decision(choices=(STOP,)))
    plain, with_text = fake.taken[0]["blocks"][1]["elements"]
    assert with_text["text"]["text"] == "Stop ✎ Why?"
    fake.press(with_text["value"])
    adapter.follow()
    fake.submit(fake.forms[0], "the tests hang")
    fake.press(plain["value"])
    adapter.follow()
    said = [(one["number"], one["text"], one["with_text"]) for one in port.answers]
    assert said == [(0, None, True), (0, "the tests hang", True), (0, None, False)]


def test_without_its_library_the_channel_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "websockets.sync.client", None)
    with pytest.raises(EnvironmentMissing, match="needs the package websockets") as raised:
        Case("slack", tmp_path, "http://127.0.0.1:9", FakeSlack()).adapter()
    assert raised.value.hint == f"{sys.executable} -m pip install 'pwf-workflows[slack]'"
