"""`pwf web` and `pwf decide --link`: a token is made at the terminal, and the daemon gets its hash alone."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pwf.cli import exits
from pwf.protocol.web import InvitePayload, LeavePayload, Left, LinkMade, LinkPayload, SignIn, hash_of
from tests.cli.conftest import Pwf
from tests.client.fake_daemon import FakeDaemon


@pytest.fixture
def sent(daemon: FakeDaemon) -> list[Any]:
    """What was sent to a daemon that makes every link."""
    found: list[Any] = []

    def answers(result: Any) -> Any:
        def answer(request: Any, payload: Any) -> Any:
            found.append(payload)
            return result

        return answer

    daemon.on("decision.link", answers(LinkMade(decision_id="q7f", run_id="k3")))
    daemon.on("web.invite", answers(SignIn(expires_ms=1)))
    daemon.on("web.leave", answers(Left(count=2)))
    return found


def token_of(url: str) -> str:
    return url.strip().rpartition("/")[2]


def test_a_link_to_a_decision_begins_with_the_public_name(
    pwf: Pwf, daemon: FakeDaemon, sent: list[Any]
) -> None:
    assert pwf("decide", "q7f", "--link").out.startswith("http://127.0.0.1:7930/answer/")
    daemon.places.config.write_text('[web]\npublic_url = "https://pwf.example.org/"\n')
    done = pwf("decide", "q7f", "--link")
    assert done.out.startswith("https://pwf.example.org/answer/")
    assert sent[-1] == LinkPayload(decision_id="q7f", token_hash=hash_of(token_of(done.out)))
    assert pwf("decide", "q7f", "--link", "--json").json["decision_id"] == "q7f"


def test_a_link_goes_without_a_choice(pwf: Pwf, sent: list[Any]) -> None:
    assert pwf("decide", "q7f", "ship", "--link").code == exits.USAGE
    assert pwf("decide", "--link").code == exits.USAGE
    assert sent == []


def test_a_link_to_sign_in_is_printed_alone_and_told_once(
    pwf: Pwf, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.cli.web._is_served", lambda config: False)
    done = pwf("web", "--link")
    assert "no server answers there:  pwf web" in done.err
    assert done.out.startswith("http://127.0.0.1:7930/sign-in/")
    assert sent == [InvitePayload(token_hash=hash_of(token_of(done.out)))]
    assert "once" in done.err


def test_all_browsers_are_signed_out(pwf: Pwf, sent: list[Any]) -> None:
    assert "signed out" in pwf("web", "--sign-out").out
    assert sent == [LeavePayload()]


def test_without_the_extra_it_is_said_what_to_install(
    pwf: Pwf, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("pwf.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hypercorn", None)
    done = pwf("web")
    assert done.code == exits.UNSOUND
    assert "needs the package hypercorn" in done.err
    assert "pip install 'pwf-workflows[web]'" in done.err
