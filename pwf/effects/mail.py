"""An e-mail with a Message-ID of its own. Nobody can ask a mail server whether it took a mail, so a person decides.

The Message-ID is made of the effect's key: it finds the mail in the server's log and in the mailbox.
"""

from __future__ import annotations

import hashlib
import smtplib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from typing import ClassVar

import msgspec

from pwf.effects.prepared import Request
from pwf.workflow.effects import NotApplied


class MailSent(msgspec.Struct, frozen=True, kw_only=True):
    """The output. `refused`: the recipients that the server did not take, with its words."""

    message_id: str
    refused: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class SendMail(Request[MailSent]):
    """Hand one mail to an SMTP server. `password_file` names a file, so that no secret stands in the workflow."""

    observable: ClassVar[bool] = False

    sender: str
    to: Sequence[str]
    subject: str
    text: str
    host: str = "localhost"
    port: int = 25
    starttls: bool = False
    user: str | None = None
    password_file: str | None = None
    timeout_s: float = 30.0

    def apply(self, key: str) -> MailSent:
        """Send it. `NotApplied` when the server could not be reached or answered no; a lost answer is unknown."""
        try:
            message = self._message(key)
        except ValueError as error:
            raise NotApplied(f"this is no mail that could be sent: {error}") from error
        try:
            server = smtplib.SMTP(self.host, self.port, timeout=self.timeout_s)
        except (OSError, ValueError, smtplib.SMTPException) as error:
            raise NotApplied(f"no mail server at {self.host}:{self.port}: {error}") from error
        try:
            self._log_in(server)
            refused = server.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            raise NotApplied(f"the mail server took none of the recipients: {error}") from error
        except (smtplib.SMTPResponseException, smtplib.SMTPNotSupportedError) as error:
            raise NotApplied(f"the mail server refused: {error}") from error
        finally:
            with suppress(OSError, smtplib.SMTPException):  # what was answered stands
                server.quit()
            server.close()
        words = {address: f"{code} {_text(said)}" for address, (code, said) in refused.items()}
        return MailSent(message_id=message["Message-ID"], refused=words)

    def _log_in(self, server: smtplib.SMTP) -> None:
        try:
            if self.starttls:
                server.starttls()
            if self.user is not None and self.password_file is not None:
                with open(self.password_file, encoding="utf-8") as file:
                    server.login(self.user, file.read().strip())
        except (OSError, ValueError, smtplib.SMTPException) as error:
            raise NotApplied(f"no way into the mail server at {self.host}: {error}") from error

    def _message(self, key: str) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.sender, ", ".join(self.to), self.subject
        message["Date"] = formatdate()
        message["Message-ID"] = message_id_of(key, self.sender)
        message.set_content(self.text)
        message.as_bytes()  # raises here, before anything is sent, what would raise while it is
        return message


def message_id_of(key: str, sender: str) -> str:
    """The same in every attempt: by it the mail is found in logs and mailboxes."""
    domain = parseaddr(sender)[1].rpartition("@")[2] or "localhost"
    return f"<pwf.{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain}>"


def _text(said: object) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
