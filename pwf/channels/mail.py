"""The channel `email`: a message over SMTP, which is answered on the page that it links to.

Promises: every try of a message has the same Message-ID, by which a person finds it; what the server did not take is
refused, and unknown only where the connection was lost between the letter's last byte and the server's answer.
What was sent can't be changed: of a decision that is settled, its link says how.
"""

from __future__ import annotations

import contextlib
import re
import smtplib
import ssl
import time
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from pwf.channels.port import Adapter, Outcome, done, early, nameless, refused, unknown
from pwf.channels.words import cut, text_of
from pwf.config import LOOPBACK, MailChannel
from pwf.errors import ConfigError
from pwf.protocol.channel_port import ChannelMessage

SUBJECT_BYTES_MAX = 200
BODY_BYTES_MAX = 64 * 1024
LEFT_S_MIN = 0.1
GO_ON = 354  # the server waits for the letter


class MailAdapter(Adapter[MailChannel]):
    """See the module."""

    _password: str | None = None
    _is_left_out = False  # somebody was, from the last letter

    def start(self) -> None:
        if self.settings.security == "none" and self.settings.host not in LOOPBACK:
            raise ConfigError(
                f'{self.begin.name}: security = "none" would send everything in the clear to {self.settings.host}',
                hint='leave it out, or set security = "tls"',
            )
        if self.settings.password is not None:
            self._password = self.secret(self.settings.password)

    def show(self, message: ChannelMessage) -> Outcome:
        letter = self._letter(message)
        self._until = time.monotonic() + self.settings.timeout_s
        try:
            with contextlib.closing(self._connect()) as server:
                return self._send(server, letter)
        except smtplib.SMTPResponseException as error:
            return _refusal(error.smtp_code, error.smtp_error)
        except (OSError, smtplib.SMTPException) as error:  # before the letter was under way
            return early(f"{self.settings.host} port {self.settings.port}: {error}")
        except (
            ValueError
        ) as error:  # what no server was told: a password that is not ASCII, whose words are not said
            return refused(f"a name, an address or the password can not be sent: {nameless(error)}")

    def _letter(self, message: ChannelMessage) -> EmailMessage:
        letter = EmailMessage(policy=SMTP)
        letter["From"] = self.settings.sender
        letter["To"] = ", ".join(self.settings.to)
        letter["Subject"] = cut(" ".join(message.title.split()), SUBJECT_BYTES_MAX)
        letter["Date"] = formatdate(message.at_ms / 1_000)
        letter["Message-ID"] = f"<pwf.{message.message_id}@{self.settings.sender.rpartition('@')[2]}>"
        letter["Auto-Submitted"] = "auto-generated"  # so that nobody's holiday note answers
        letter.set_content(cut(text_of(message, choices=True), BODY_BYTES_MAX))
        return letter

    def _connect(self) -> smtplib.SMTP:
        at, wait_s = (self.settings.host, self.settings.port), self.settings.timeout_s
        if self.settings.security == "tls":
            context = ssl.create_default_context()
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                *at, local_hostname="localhost", timeout=wait_s, context=context
            )
        else:
            server = smtplib.SMTP(*at, local_hostname="localhost", timeout=wait_s)
        try:
            if self.settings.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            if self.settings.user is not None and self._password is not None:
                self._hurry(server).login(self.settings.user, self._password)
        except BaseException:
            server.close()
            raise
        return server

    def _hurry(self, server: smtplib.SMTP) -> smtplib.SMTP:
        """What is left of the time is for all that follows together, however many answers the server gives."""
        if server.sock is not None:
            server.sock.settimeout(max(LEFT_S_MIN, self._until - time.monotonic()))
        return server

    def _send(self, server: smtplib.SMTP, letter: EmailMessage) -> Outcome:
        self._hurry(server).ehlo_or_helo_if_needed()
        code, said = self._hurry(server).mail(self.settings.sender)
        if code != 250:
            return _refusal(code, said)
        replies = [(address, *self._hurry(server).rcpt(address)) for address in self.settings.to]
        left_out = [reply for reply in replies if reply[1] not in (250, 251)]
        if len(left_out) == len(replies):
            return _refusal(left_out[0][1], left_out[0][2])
        code, said = self._hurry(server).docmd("DATA")
        if code != GO_ON:
            return _refusal(code, said)
        try:
            self._hurry(server).send(re.sub(rb"(?m)^\.", b"..", letter.as_bytes()) + b".\r\n")
            code, said = server.getreply()
        except (OSError, smtplib.SMTPException) as error:
            return unknown(f"the connection was lost while the letter was under way: {error}")
        if code != 250:
            return _refusal(code, said)
        if not left_out and self._is_left_out:
            self.port.trouble(None)
        self._is_left_out = bool(left_out)
        if left_out:
            names = ", ".join(address for address, _, _ in left_out)
            self.port.trouble(f"the server does not take letters for {names}", "look at `to` in its section")
        return done(str(letter["Message-ID"]))


def _refusal(code: int, said: bytes | str) -> Outcome:
    """What the server has said: 4… for now, 5… for good."""
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return refused(f"the server said {code} {words}", final=code >= 500)
