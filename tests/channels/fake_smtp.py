"""A mail server as RFC 5321 says, on this machine, which fails where a test orders it."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default


class FakeSmtp:
    """`replies`: what it says in place of 250, by verb (`DOT`: to the letter's end). `lose`: where it hangs up."""

    def __init__(self) -> None:
        self.replies: dict[str, str] = {}
        self.lose: str | None = None
        self.refuses: set[str] = set()  # addresses
        self.offers: tuple[str, ...] = ("AUTH PLAIN", "8BITMIME")
        self.letters: list[EmailMessage] = []
        self.heard: list[str] = []
        self.port = 0

    def serve(self, handler: socketserver.StreamRequestHandler) -> None:
        """One conversation."""

        def say(words: str) -> None:
            handler.wfile.write(words.encode() + b"\r\n")

        say("220 fake")
        while line := handler.rfile.readline().decode().strip():
            verb = line.split()[0].upper().partition(":")[0]
            self.heard.append(line)
            if self.lose == verb:
                return
            if verb in self.replies:
                say(self.replies[verb])
            elif verb == "EHLO":
                for offer in ("fake", *self.offers):
                    say(f"250-{offer}")
                say("250 ok")
            elif verb == "AUTH":
                say("235 ok")
            elif verb == "RCPT" and any(f"<{address}>" in line for address in self.refuses):
                say("550 no such mailbox")
            elif verb == "DATA":
                say("354 go on")
                if not self._take(handler):
                    return
                say(self.replies.get("DOT", "250 taken"))
            elif verb == "QUIT":
                return
            else:
                say("250 ok")

    def _take(self, handler: socketserver.StreamRequestHandler) -> bool:
        lines: list[bytes] = []
        while (line := handler.rfile.readline()) != b".\r\n":
            if not line:
                return False
            lines.append(line[1:] if line.startswith(b"..") else line)
        if "DOT" not in self.replies:
            letter = message_from_bytes(b"".join(lines), policy=default)
            assert isinstance(letter, EmailMessage)
            self.letters.append(letter)
        return self.lose != "DOT"


@contextmanager
def mail_server() -> Iterator[FakeSmtp]:
    """Serve it, on a port of its own."""
    fake = FakeSmtp()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            fake.serve(self)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
