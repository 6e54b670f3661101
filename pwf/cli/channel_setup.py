"""`pwf channel setup`: asks what a channel needs, writes its section and its secret, and tests it.

Promises: what is written is checked first; a secret goes to a file of its own with mode 0600, never into the
configuration or onto a command line; a channel that is there is left as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pwf.cli import exits
from pwf.cli.commands import client
from pwf.cli.out import Out, UsageError
from pwf.errors import Rejected
from pwf.present import text

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient
    from pwf.config import Config
    from pwf.protocol.channels import MessageLine


TEST_S = 60.0  # for a test to be sent
LOOK_S = 0.1


class Asked(NamedTuple):
    """A key of the section. `kind`: of its value; a `secret` is the name of one, whose value is asked for."""

    key: str
    question: str
    kind: str = "text"  # text, number, numbers, ids, words, secret
    needed: bool = True


KINDS: dict[str, tuple[Asked, ...]] = {
    "command": (Asked("command", "which program, with its words", "words"),),
    "telegram": (
        Asked("token", "the bot's token, from @BotFather", "secret"),
        Asked("chat", "the number of the chat", "number"),
        Asked("users", "the numbers of those who may decide, with spaces between", "numbers"),
    ),
    "slack": (
        Asked("token", "the bot's token (xoxb-…)", "secret"),
        Asked("app_token", "the app's token for Socket Mode (xapp-…)", "secret"),
        Asked("channel", "the id of the conversation (C…)"),
        Asked("users", "the ids of those who may decide (U…), with spaces between", "ids"),
    ),
    "ntfy": (
        Asked("topic", "the topic"),
        Asked("server", "the server (https://ntfy.sh)", needed=False),
        Asked("token", "its access token (none)", "secret", needed=False),
        Asked("reply_topic", "the topic that answers come back through (none)", needed=False),
    ),
    "webhook": (
        Asked("url", "the address that gets what is told"),
        Asked("secret", "the secret that signs", "secret"),
        Asked("listen", "where answers come back, HOST:PORT (none)", needed=False),
    ),
    "mcp": (
        Asked("hosts", "the hosts, as they name themselves, with spaces between", "ids"),
        Asked("token", "a word that only you know, by which pwf mcp is known", "secret"),
    ),
    "email": (
        Asked("host", "the mail server"),
        Asked("sender", "the address that it comes from"),
        Asked("to", "the addresses that it goes to, with spaces between", "ids"),
        Asked("user", "who signs in at the mail server (nobody)", needed=False),
        Asked("password", "the password (none)", "secret", needed=False),
        Asked("port", "the port (587)", "number", needed=False),
        Asked("security", "starttls, tls or none (starttls)", needed=False),
    ),
}


def setup(options: argparse.Namespace, out: Out) -> int:
    from pwf.cli.json_output import ChannelSetUp
    from pwf.config import load_config, parse_config
    from pwf.places import places
    from pwf.protocol.channels import ChannelRef

    name, at = options.channel, places().config
    if name in load_config(at).channels:
        raise Rejected(f"there is a channel {name} in {at}", hint=f"pwf channel test {text.line(name)}")
    given = dict(_pair(one) for one in options.set)
    section, secrets = _section(name, options.kind, given)
    before = at.read_text("utf-8") if at.exists() else ""
    after = (before.rstrip("\n") + "\n\n" if before.strip() else "") + section
    config = parse_config(after.encode(), str(at))
    wrote = [_write(at.parent / "secrets" / secret, value) for secret, value in secrets.items()]
    wrote.append(_write(at, after))
    with client() as daemon:
        daemon.call("channel.reload")
        message = until_sent(daemon, daemon.call("channel.test", ChannelRef(channel=name)))
    if out.as_json:
        out.emit(ChannelSetUp(wrote=tuple(map(str, wrote)), test=message))
    else:
        for path in wrote:
            out.print(f"wrote  {path}")
        out.print(f"test   {message.state}" + (f": {text.line(message.why)}" if message.why else ""))
        if _only_shows(config, name):
            out.note(
                "it only shows: answers need [web] public_url (docs/web.md), or what docs/channels.md says"
            )
    return exits.OK if message.state == "shown" else exits.NO


def _section(name: str, kind: str, given: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The text of the section, and the secrets that were typed, by their names."""
    unknown = given.keys() - {one.key for one in KINDS[kind]}
    if unknown:
        known = ", ".join(one.key for one in KINDS[kind])
        raise UsageError(f"{kind} has no {sorted(unknown)[0]}", hint=f"it has {known}")
    lines = [f"[channels.{name}]", f'kind = "{kind}"']
    secrets: dict[str, str] = {}
    for asked in KINDS[kind]:
        typed = given.get(asked.key)
        if typed is None:
            typed = _ask(asked)
            if asked.kind == "secret" and typed:
                secret = f"{name}-{asked.key}" if secrets else name
                secrets[secret] = typed
                typed = secret
        if typed:
            lines.append(f"{asked.key} = {_toml(asked, typed)}")
    return "\n".join(lines) + "\n", secrets


def _ask(asked: Asked) -> str:
    import getpass

    try:
        read = getpass.getpass if asked.kind == "secret" else input
        typed = read(f"{asked.question}: ").strip()
    except EOFError:
        typed = ""
    if asked.needed and not typed:
        raise UsageError(f"{asked.key} was not said", hint=f"--set {asked.key}=…")
    return typed


def _toml(asked: Asked, typed: str) -> str:
    if asked.kind == "number":
        return typed
    if asked.kind == "numbers":
        return "[" + ", ".join(typed.split()) + "]"
    if asked.kind == "ids":
        return json.dumps(typed.split())
    if asked.kind == "words":
        import shlex

        return json.dumps(shlex.split(typed), ensure_ascii=False)
    return json.dumps(typed, ensure_ascii=False)


def _write(path: Path, content: str) -> Path:
    """Whole or not at all, for the user alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
    os.replace(beside, path)
    return path


def _only_shows(config: Config, name: str) -> bool:
    channel = config.channels[name]
    answers = getattr(channel, "reply_topic", None) or getattr(channel, "listen", None)
    named = hasattr(channel, "users") or hasattr(channel, "hosts")
    return config.web.public_url is None and not answers and not named


def _pair(typed: str) -> tuple[str, str]:
    key, found, value = typed.partition("=")
    if not found:
        raise UsageError(f"--set {typed!r} has no =", hint="--set KEY=VALUE")
    return key, value


def until_sent(daemon: SyncClient, message: MessageLine) -> MessageLine:
    """The message, once it is known what came of it, or the time is over."""
    from pwf.protocol.channels import MessageRef

    until = time.monotonic() + TEST_S
    while message.state in ("due", "sending") and message.why is None and time.monotonic() < until:
        time.sleep(LOOK_S)
        message = daemon.call("channel.message", MessageRef(message_id=message.message_id))
    return message
