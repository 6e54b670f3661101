"""The process of one channel: `python -m pwf.channels.process`, with the port to the daemon as its stdin.

Promises: it serves the one channel that it is told first, and ends with the daemon. The last line that it prints to
stderr says why it has ended otherwise.
"""

from __future__ import annotations

import signal
import socket
import sys
from typing import Any

import msgspec

from pwf.channels.command import CommandAdapter
from pwf.channels.hosts import HostsAdapter
from pwf.channels.mail import MailAdapter
from pwf.channels.ntfy import NtfyAdapter
from pwf.channels.port import EXIT_FAILED, Adapter, Port, nameless, work_for
from pwf.channels.slack import SlackAdapter
from pwf.channels.telegram import TelegramAdapter
from pwf.channels.webhook import WebhookAdapter
from pwf.config import (
    CommandChannel,
    MailChannel,
    McpChannel,
    NtfyChannel,
    SlackChannel,
    TelegramChannel,
    WebhookChannel,
)
from pwf.errors import PwfError

#: By the `kind` of its section.
KINDS: dict[str, tuple[type[msgspec.Struct], type[Adapter[Any]]]] = {
    "command": (CommandChannel, CommandAdapter),
    "webhook": (WebhookChannel, WebhookAdapter),
    "ntfy": (NtfyChannel, NtfyAdapter),
    "telegram": (TelegramChannel, TelegramAdapter),
    "slack": (SlackChannel, SlackAdapter),
    "email": (MailChannel, MailAdapter),
    "mcp": (McpChannel, HostsAdapter),
}


def main() -> None:
    """Serve until the daemon is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    port = Port(socket.socket(fileno=0))
    begin = port.begin()
    settings, kind = KINDS[begin.kind]
    adapter = kind(port, begin, msgspec.json.decode(begin.settings, type=settings))
    try:
        adapter.start()
    except PwfError as error:
        print(error.message + (f" (try: {error.hint})" if error.hint else ""), file=sys.stderr, flush=True)
        sys.exit(EXIT_FAILED)
    except Exception as error:  # noqa: BLE001 - its words may hold a secret
        print(f"the adapter can not begin: {nameless(error)}", file=sys.stderr, flush=True)
        sys.exit(EXIT_FAILED)
    work_for(port, adapter)


if __name__ == "__main__":
    main()
