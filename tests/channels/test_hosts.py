"""The channel `mcp`: named hosts with the token are offered what is open, also later, and nobody else is."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pwf.channels import hosts
from pwf.channels.hosts import HostsAdapter
from pwf.config import McpChannel
from pwf.errors import ConfigError
from pwf.host.identity import Identity
from pwf.protocol.channel_port import Begin, Close, Verdict, line_of
from pwf.protocol.host_port import Answer, Heard, Hello, Offer, Withdraw, to_host
from tests.channels.fakes import KEY, FakePort
from tests.channels.messages import FIX, SHIP, decision
from tests.secret_files import keep_secret

HELLO = Hello(token=KEY, host="claude-code")
Q = "q7fq7fq7fq7f"


class Host:
    """A process of `pwf mcp serve`."""

    def __init__(self, path: Path, *said: msgspec.Struct) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(10)
        self._connection.connect(str(path))
        self._lines = self._connection.makefile("rb")
        self.say(*said)

    def say(self, *said: msgspec.Struct) -> None:
        self._connection.sendall(b"".join(map(line_of, said)))

    def hear(self) -> Offer | Withdraw | Heard | None:
        """What comes next; None: it was turned away."""
        line = self._lines.readline()
        return to_host.decode(line) if line else None

    def leave(self) -> None:
        self._lines.close()
        self._connection.close()


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostsAdapter]:
    monkeypatch.setenv("PWF_HOME", str(tmp_path))
    found = begun(tmp_path)
    found.start()
    threading.Thread(target=found.listen, daemon=True).start()
    yield found
    found.stop()


def begun(folder: Path, name: str = "mcp") -> HostsAdapter:
    keep_secret(folder / "secrets" / "key", KEY)
    settings = McpChannel(token="key", hosts=("claude-code",))
    begin = Begin(
        epoch=1, name=name, kind="mcp", settings=msgspec.Raw(b"{}"), config=str(folder / "config.toml")
    )
    return HostsAdapter(FakePort(), begin, settings)  # type: ignore[arg-type]


def answers(adapter: HostsAdapter) -> list[dict[str, object]]:
    return adapter.port.answers  # type: ignore[attr-defined, no-any-return]


def closed(message_id: str = "m7xm7xm7xm7x") -> Close:
    return Close(attempt=1, ref=message_id, message_id=message_id, title="release: approve", said="decided")


def test_what_is_open_is_offered_to_each_host_that_comes_and_an_answer_has_its_token(
    adapter: HostsAdapter,
) -> None:
    assert adapter.show(decision()).outcome == "done"
    first, second = (Host(adapter.path, HELLO) for _ in range(2))
    offer = first.hear()
    assert offer == second.hear()
    assert isinstance(offer, Offer)
    assert (offer.request_id, offer.choices) == (Q, (SHIP, FIX))
    assert "Ship 1.2?" in offer.text
    first.say(Answer(request_id=Q, choice="ship"))
    assert first.hear() == Heard(request_id=Q)
    (said,) = answers(adapter)
    assert (said["token"], said["choice"]) == (decision().token, "ship")
    assert said["who"] == "the person at claude-code"
    assert isinstance(said["peer"], Identity)
    assert said["peer"].pid == os.getpid()
    for host in (first, second):
        host.leave()


@pytest.mark.parametrize(
    "said",
    [
        Hello(token="wrong", host="claude-code"),
        Hello(token="", host="claude-code"),
        Hello(token=KEY, host="another-host"),
        Answer(request_id=Q, choice="ship"),
    ],
)
def test_a_host_that_is_not_named_or_has_not_the_token_gets_nothing_and_decides_nothing(
    adapter: HostsAdapter, said: msgspec.Struct
) -> None:
    adapter.show(decision())
    host = Host(adapter.path, said, Answer(request_id=Q, choice="ship"))
    with contextlib.suppress(ConnectionResetError):  # with what it has said unread
        assert host.hear() is None
    assert answers(adapter) == []
    host.leave()


@pytest.mark.parametrize("why", ["no person", "not seen"])
def test_a_process_that_is_no_persons_gets_nothing_and_decides_nothing(
    adapter: HostsAdapter, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "no person":
        adapter.port.people = False  # type: ignore[attr-defined]
    else:
        monkeypatch.setattr(hosts.host, "peer_process", lambda _: None)
    adapter.show(decision())
    host = Host(adapter.path, HELLO, Answer(request_id=Q, choice="ship"))
    with contextlib.suppress(ConnectionResetError):  # with what it has said unread
        assert host.hear() is None
    assert answers(adapter) == []
    host.leave()


def test_who_connects_and_says_nothing_is_let_go(
    adapter: HostsAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "HELLO_S", 0.01)
    host = Host(adapter.path)
    assert host.hear() is None
    host.leave()


def test_what_is_settled_is_withdrawn_and_offered_to_nobody_more(adapter: HostsAdapter) -> None:
    adapter.show(decision())
    host = Host(adapter.path, HELLO)
    assert isinstance(host.hear(), Offer)
    for _ in range(2):
        assert adapter.close(closed()).outcome == "done"
    assert host.hear() == Withdraw(request_id=Q)
    host.say(Answer(request_id=Q, choice="ship"))
    assert host.hear() == Heard(request_id=Q)
    assert answers(adapter) == []
    adapter.show(decision(request_id="q2"))
    later = Host(adapter.path, HELLO)
    assert later.hear() == host.hear()
    for one in (host, later):
        one.leave()


def test_a_reminder_takes_the_place_of_what_it_reminds_of(adapter: HostsAdapter) -> None:
    adapter.show(decision())
    adapter.show(decision(message_id="m8", event="remind", title="still open: release: approve"))
    adapter.close(closed())
    host = Host(adapter.path, HELLO)
    offer = host.hear()
    assert isinstance(offer, Offer)
    assert offer.text.startswith("still open: ")
    host.leave()


def test_an_answer_that_is_not_taken_comes_back_with_the_reason(adapter: HostsAdapter) -> None:
    asks = Verdict(number=1, said="", taken=False, asks="What must change?")
    late = Verdict(number=1, said="decided: Ship it, by ann (chat)", taken=False)
    verdicts = iter((asks, late))
    adapter.port.verdict = lambda _: next(verdicts)  # type: ignore[attr-defined]
    adapter.show(decision())
    host = Host(adapter.path, HELLO)
    host.hear()
    for again in ("What must change?", "decided: Ship it, by ann (chat)"):
        host.say(Answer(request_id=Q, choice="fix"))
        assert host.hear() == Heard(request_id=Q, again=again)
    host.leave()


def test_a_test_of_the_channel_asks_nobody(adapter: HostsAdapter) -> None:
    message = decision(event="test", request_id=None, run_id=None, choices=(), shown=None, token="")
    assert adapter.show(message).outcome == "done"
    host = Host(adapter.path, HELLO)
    adapter.show(decision())
    assert isinstance(host.hear(), Offer)
    host.leave()


def test_only_its_user_can_connect_and_a_place_where_it_can_not_listen_is_named(
    adapter: HostsAdapter, tmp_path: Path
) -> None:
    assert adapter.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match=r"the channel x+ can not listen at "):
        begun(tmp_path, "x" * 120).start()
