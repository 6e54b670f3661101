"""`SendMail`, with a local SMTP server that may refuse, or go away before it says that it took the mail."""

from __future__ import annotations

import smtplib
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pwf.effects.mail import SendMail
from pwf.workflow.effects import NotApplied
from tests.effects.killed import KEY


@dataclass
class Post:
    """What the server has taken. `refuses`: recipients and senders that it does not take."""

    port: int = 0
    taken: list[str] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    goes_away: bool = False
    after_data: str = "250 taken"


@pytest.fixture
def post() -> Iterator[Post]:
    known = Post()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 here")
            while line := self.rfile.readline().decode().strip():
                word = line.partition(" ")[0].upper()
                if word == "DATA":
                    if not self.take():
                        return
                elif word == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    refused = any(f"<{address}>" in line for address in known.refuses)
                    self.say("550 not here" if refused else "250 ok")

        def take(self) -> bool:
            self.say("354 go on")
            text = ""
            while (line := self.rfile.readline().decode()) != ".\r\n":
                text += line
            if known.after_data.startswith("250"):
                known.taken.append(text)
            if not known.goes_away:
                self.say(known.after_data)
            return not known.goes_away

        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        known.port = server.server_address[1]
        yield known
        server.shutdown()
        thread.join()


def mail(post: Post, *to: str) -> SendMail:
    return SendMail(
        host="127.0.0.1",
        port=post.port,
        sender="Shop <shop@example.org>",
        to=to or ("ada@example.org",),
        subject="Paid",
        text="Thank you.",
    )


def test_a_mail_has_the_same_message_id_in_every_attempt(post: Post) -> None:
    sent = [mail(post).apply(KEY), mail(post).apply(KEY)]
    assert sent[0] == sent[1]
    assert sent[0].message_id.endswith("@example.org>")
    assert all(f"Message-ID: {sent[0].message_id}" in text for text in post.taken)
    assert mail(post).apply("run1:save:2").message_id != sent[0].message_id


def test_nobody_can_ask_a_mail_server_so_a_person_decides() -> None:
    @SendMail.prepared("receipt")
    def receipt(ctx: object) -> SendMail:
        raise AssertionError

    assert (receipt.effect.mode, receipt.effect.observe) == ("manual", None)


def test_recipients_that_the_server_does_not_take_are_named_and_when_it_takes_none_nothing_was_sent(
    post: Post,
) -> None:
    post.refuses = {"eve@example.org"}
    sent = mail(post, "ada@example.org", "eve@example.org").apply(KEY)
    assert sent.refused == {"eve@example.org": "550 not here"}
    with pytest.raises(NotApplied, match="none of the recipients"):
        mail(post, "eve@example.org").apply(KEY)
    assert len(post.taken) == 1


@pytest.mark.parametrize("refuses", ["sender", "text"])
def test_what_the_server_refuses_was_not_sent(post: Post, refuses: str) -> None:
    if refuses == "sender":
        post.refuses = {"shop@example.org"}
    else:
        post.after_data = "554 looks like junk"
    with pytest.raises(NotApplied, match="refused"):
        mail(post).apply(KEY)
    assert post.taken == []


def test_a_server_that_is_not_there_was_sent_nothing() -> None:
    with pytest.raises(NotApplied, match="no mail server"):
        mail(Post(port=1)).apply(KEY)


def test_a_server_that_goes_away_before_its_answer_leaves_it_unknown(post: Post) -> None:
    post.goes_away = True
    with pytest.raises(smtplib.SMTPServerDisconnected):
        mail(post).apply(KEY)
    assert len(post.taken) == 1


@pytest.mark.parametrize(
    "fault",
    [{"subject": "two\nlines"}, {"text": "\ud800"}, {"host": "a" * 64}, {"to": ["ö@example.org"]}],
    ids=["subject", "text", "host", "address"],
)
def test_a_mail_that_can_not_be_sent_was_not_sent(post: Post, fault: dict[str, Any]) -> None:
    with pytest.raises(NotApplied):
        replace(mail(post), **fault).apply(KEY)
    assert post.taken == []
