"""The channel `email` against a mail server that fails in each way: it says what is known, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.channels.mail import MailAdapter
from pwf.config import MailChannel
from pwf.errors import ConfigError, SecretMissing
from pwf.protocol.channel_port import Begin, Close
from pwf.protocol.decision_spec import ChoiceSpec
from tests.channels.fake_smtp import FakeSmtp, mail_server
from tests.channels.fakes import FakePort
from tests.channels.messages import decision
from tests.secret_files import keep_secret

PASSWORD = "s3cret-of-the-mail"


@pytest.fixture
def server() -> Iterator[FakeSmtp]:
    with mail_server() as serving:
        yield serving


def adapter(folder: Path, port: int, **more: Any) -> MailAdapter:
    """A process of it begins."""
    keep_secret(folder / "secrets" / "mail", PASSWORD, more.pop("mode", 0o600))
    facts: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": port,
        "sender": "pwf@example.org",
        "to": ("ann@example.org", "bob@example.org"),
        "user": "ann",
        "password": "mail",
        "security": "none",
        "timeout_s": 5,
    }
    begin = Begin(
        epoch=1, name="mail", kind="email", settings=msgspec.Raw(b"{}"), config=str(folder / "config.toml")
    )
    made = MailAdapter(FakePort(), begin, MailChannel(**(facts | more)))  # type: ignore[arg-type]
    made.start()
    return made


def test_a_decision_arrives_with_its_link_and_a_reference_that_finds_it(
    tmp_path: Path, server: FakeSmtp
) -> None:
    link = "https://pwf.example.org/answer/abc"
    came = adapter(tmp_path, server.port).show(decision(link=link))
    (letter,) = server.letters
    assert (came.outcome, came.ref) == ("done", letter["Message-ID"])
    assert letter["To"] == "ann@example.org, bob@example.org"
    assert "release: approve" in letter["Subject"]
    text = letter.get_content()
    assert link in text.splitlines()
    assert "ship: " in text


def test_every_try_of_a_message_has_the_same_reference(tmp_path: Path, server: FakeSmtp) -> None:
    mail = adapter(tmp_path, server.port)
    assert len({mail.show(decision()).ref for _ in range(2)}) == 1


@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA", "DOT"])
@pytest.mark.parametrize(("code", "final"), [(451, False), (554, True)])
def test_what_the_server_does_not_take_is_refused_for_now_or_for_good(
    tmp_path: Path, server: FakeSmtp, verb: str, code: int, final: bool
) -> None:
    server.replies = {verb: f"{code} no"}
    came = adapter(tmp_path, server.port).show(decision())
    assert (came.outcome, came.final, server.letters) == ("refused", final, [])
    assert str(code) in (came.why or "")


def test_a_connection_that_is_lost_before_the_letter_has_sent_nothing(
    tmp_path: Path, server: FakeSmtp
) -> None:
    for verb in ("EHLO", "AUTH", "MAIL", "RCPT", "DATA"):
        server.lose = verb
        came = adapter(tmp_path, server.port).show(decision())
        assert (came.outcome, came.final) == ("refused", False), verb
    assert adapter(tmp_path, 9).show(decision()).outcome == "refused"
    assert server.letters == []


def test_a_connection_that_is_lost_after_the_letter_is_unknown(tmp_path: Path, server: FakeSmtp) -> None:
    server.lose = "DOT"
    assert adapter(tmp_path, server.port).show(decision()).outcome == "unknown"
    assert len(server.letters) == 1


def test_an_address_that_is_refused_keeps_nobody_else_from_it_and_is_told(
    tmp_path: Path, server: FakeSmtp
) -> None:
    server.refuses = {"bob@example.org"}
    mail = adapter(tmp_path, server.port)
    assert mail.show(decision()).outcome == "done"
    assert mail.port.troubles == ["the server does not take letters for bob@example.org"]  # type: ignore[attr-defined]
    server.refuses.add("ann@example.org")
    assert mail.show(decision()).final
    server.refuses.clear()
    for _ in range(2):
        assert mail.show(decision()).outcome == "done"
    assert mail.port.troubles[1:] == [None]  # type: ignore[attr-defined]


def test_a_wrong_password_is_refused_and_nothing_says_it(tmp_path: Path, server: FakeSmtp) -> None:
    server.replies = {"AUTH": "535 wrong"}
    came = adapter(tmp_path, server.port).show(decision())
    assert (came.outcome, came.final) == ("refused", True)
    assert PASSWORD not in repr(came)


def test_what_others_could_read_on_the_way_is_refused_at_the_start(tmp_path: Path, server: FakeSmtp) -> None:
    with pytest.raises(ConfigError, match="in the clear"):
        adapter(tmp_path, server.port, host="mail.example.org")
    came = adapter(tmp_path, server.port, security="starttls").show(decision())
    assert (came.outcome, server.letters) == ("refused", [])
    assert not any(line.startswith("AUTH") for line in server.heard)
    with pytest.raises(SecretMissing, match="others may read"):
        adapter(tmp_path, server.port, mode=0o644)


def test_a_title_makes_no_header_and_a_dot_ends_no_letter(tmp_path: Path, server: FakeSmtp) -> None:
    title = "release: approve\r\nBcc: eve@example.org"
    choices = (ChoiceSpec(id="ship", label=".\r\nQUIT\r\n" + "🚀א" * 1_500),)
    assert adapter(tmp_path, server.port).show(decision(title=title, choices=choices)).outcome == "done"
    (letter,) = server.letters
    assert letter["Bcc"] is None
    assert letter["Subject"] == "release: approve Bcc: eve@example.org"
    assert "🚀" in letter.get_content()


def test_closing_sends_no_second_letter(tmp_path: Path, server: FakeSmtp) -> None:
    mail = adapter(tmp_path, server.port)
    ref = mail.show(decision()).ref or ""
    close = Close(attempt=1, ref=ref, message_id="m", title="release: approve", said="decided: Ship it")
    assert [mail.close(close).outcome for _ in range(2)] == ["done", "done"]
    assert len(server.letters) == 1


def test_a_password_that_can_not_be_sent_is_refused_and_nothing_says_it(
    tmp_path: Path, server: FakeSmtp, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = adapter(tmp_path, server.port)
    monkeypatch.setattr(mail, "_password", f"{PASSWORD}→")
    came = mail.show(decision())
    assert (came.outcome, server.letters) == ("refused", [])
    assert PASSWORD not in repr(came)
