"""`pwf channel setup` asks, writes what it was told, keeps secrets apart, and leaves what is there."""

from __future__ import annotations

import builtins
import getpass
from pathlib import Path

import msgspec
import pytest

from pwf.cli import exits
from pwf.config import MailChannel, SlackChannel, TelegramChannel, load_config
from pwf.protocol.channels import ChannelList, MessageLine
from tests.cli.conftest import Pwf
from tests.client.fake_daemon import FakeDaemon

SENT = MessageLine(message_id="m7x", channel="chat", event="test", state="shown", created_ms=1)


@pytest.fixture
def config(daemon: FakeDaemon) -> Path:
    daemon.on("channel.reload", lambda request, payload: ChannelList(channels=()))
    daemon.on("channel.test", lambda request, payload: SENT)
    return daemon.places.config


def test_it_asks_writes_the_section_and_the_secret_apart_and_tests(
    pwf: Pwf, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["7", "1 2"])
    monkeypatch.setattr(builtins, "input", lambda _: next(typed))
    monkeypatch.setattr(getpass, "getpass", lambda _: "s3cret-token")
    config.write_text("max_runners = 2\n")
    done = pwf("channel", "setup", "chat", "telegram")
    assert done.code == 0, done.err
    assert "test   shown" in done.out
    read = load_config(config)
    assert read.channels["chat"] == TelegramChannel(token="chat", chat=7, users=(1, 2))
    assert read.max_runners == 2
    secret = config.parent / "secrets" / "chat"
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("s3cret-token", 0o600)
    assert "s3cret" not in config.read_text() + done.out


def test_a_mistake_writes_nothing(pwf: Pwf, config: Path) -> None:
    done = pwf(
        "channel",
        "setup",
        "desk",
        "ntfy",
        "--set",
        "topic=a b",
        *("--set", "server=http://x"),
        "--set",
        "token=t",
        "--set",
        "reply_topic=r",
    )
    assert done.code != 0
    assert "topic in [channels.desk] is 'a b'" in done.err
    assert not config.exists()


def test_a_channel_that_is_there_stays_as_it_is(pwf: Pwf, config: Path) -> None:
    assert pwf("channel", "setup", "desk", "command", "--set", "command=x y").code == 0
    before = config.read_text()
    assert 'command = ["x", "y"]' in before
    done = pwf("channel", "setup", "desk", "command", "--set", "command=z")
    assert "there is a channel desk" in done.err
    assert config.read_text() == before


def test_a_letter_is_set_up_like_the_others(pwf: Pwf, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["smtp.example.org", "pwf@example.org", "ann@example.org bob@example.org", "pwf", "", ""])
    monkeypatch.setattr(builtins, "input", lambda _: next(typed))
    monkeypatch.setattr(getpass, "getpass", lambda _: "s3cret")
    done = pwf("channel", "setup", "post", "email")
    assert done.code == 0, done.err
    to = ("ann@example.org", "bob@example.org")
    wanted = MailChannel(
        host="smtp.example.org", sender="pwf@example.org", to=to, user="pwf", password="post"
    )
    assert load_config(config).channels["post"] == wanted
    assert "it only shows" in done.err


def test_a_test_of_a_channel_that_is_down_says_so_at_once(pwf: Pwf, config: Path, daemon: FakeDaemon) -> None:
    waits = msgspec.structs.replace(SENT, state="due", why="the channel is down: it has no token")
    daemon.on("channel.test", lambda request, payload: waits)
    done = pwf("channel", "test", "chat")
    assert done.code == exits.REFUSED
    assert "the test is due: the channel is down: it has no token" in done.err
    assert "pwf channel reload" in done.err


def test_each_of_several_secrets_has_a_file_of_its_own(
    pwf: Pwf, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed, secret = iter(["C7", "U1 U2"]), iter(["xoxb-s3cret", "xapp-s3cret"])
    monkeypatch.setattr(builtins, "input", lambda _: next(typed))
    monkeypatch.setattr(getpass, "getpass", lambda _: next(secret))
    done = pwf("channel", "setup", "team", "slack")
    assert done.code == 0, done.err
    wanted = SlackChannel(token="team", app_token="team-app_token", channel="C7", users=("U1", "U2"))
    assert load_config(config).channels["team"] == wanted
    kept = {path.name: path.read_text() for path in (config.parent / "secrets").iterdir()}
    assert kept == {"team": "xoxb-s3cret", "team-app_token": "xapp-s3cret"}
