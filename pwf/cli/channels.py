"""`pwf channel`: the ways to reach people outside, and what is not known of a message."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.channel_setup import KINDS, setup, until_sent
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out
from pwf.errors import Rejected
from pwf.present import text

if TYPE_CHECKING:
    from pwf.protocol.channels import ChannelList


def add(commands: Commands) -> None:
    channel = commands.group(
        "channel",
        "reach people outside: how channels stand, tests, messages that may have been lost",
        example="pwf channel status\npwf channel test phone\npwf channel recover m7x confirm",
        alone="status",
    )
    parser = channel.add(
        "setup",
        setup,
        "ask what a channel needs, write it down, and test it",
        example="pwf channel setup phone ntfy\npwf channel setup desk command --set command='notify-send pwf'",
        more="It writes a section [channels.CHANNEL], and a secret to a file of its own that only you can read. A\n"
        "secret is typed when it is asked for; --set names one that is there already.",
    )
    parser.add_argument("channel", metavar="CHANNEL", help="its name, which is new")
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=", ".join(KINDS))
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="in place of a question"
    )
    channel.add(
        "status",
        status,
        "show the channels, and the messages that are not settled",
        example="pwf channel status",
        more="A channel is a section [channels.NAME] of the configuration; docs/channels.md says how to write one.",
    )
    parser = channel.add(
        "test", test, "send a message that says that the channel works", example="pwf channel test phone"
    )
    parser.add_argument("channel", metavar="CHANNEL", help="its name in the configuration")
    channel.add(
        "reload",
        reload,
        "read the channels and audiences of the configuration anew",
        example="pwf channel reload",
        more="Each channel begins anew, and shows the open decisions that it has not shown. Nothing else is read anew.",
    )
    parser = channel.add(
        "recover",
        recover,
        "say what became of a message of which nobody knows whether it arrived",
        example="pwf channel recover m7x confirm --ref 4711\npwf channel recover m7x retry",
        more="Look at the service first. retry sends it again: if it had arrived, people get it twice.",
    )
    parser.add_argument("message_id", metavar="MESSAGE", help="its id, or a unique prefix")
    parser.add_argument("word", metavar="confirm|retry", choices=("confirm", "retry"), help="what you found")
    parser.add_argument(
        "--ref", metavar="REF", help="what the service calls it, so that it can be closed later"
    )


def status(options: argparse.Namespace, out: Out) -> int:
    with client() as daemon:
        _show(daemon.call("channel.list"), out)
    return exits.OK


def reload(options: argparse.Namespace, out: Out) -> int:
    with client() as daemon:
        _show(daemon.call("channel.reload"), out)
    return exits.OK


def test(options: argparse.Namespace, out: Out) -> int:
    """Sends, and waits until it is known what came of it."""
    from pwf.protocol.channels import ChannelRef

    with client() as daemon:
        message = daemon.call("channel.test", ChannelRef(channel=options.channel))
        message = until_sent(daemon, message)
    if message.state != "shown":
        raise Rejected(
            f"the test is {message.state}" + (f": {text.line(message.why)}" if message.why else ""),
            hint="mend that, then: pwf channel reload" if message.state == "due" else "pwf channel status",
        )
    if out.as_json:
        out.emit(message)
    else:
        out.print(
            f"sent  {text.line(message.channel)}" + (f"  {text.line(message.ref)}" if message.ref else "")
        )
    return exits.OK


def recover(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.channels import RecoverMessage

    word = RecoverMessage(message_id=options.message_id, word=options.word, ref=options.ref)
    with client() as daemon:
        reply = daemon.call("channel.recover", word)
    if out.as_json:
        out.emit(reply)
    else:
        out.print(f"{text.line(reply.message_id)}  {reply.state}")
    return exits.OK


def _show(listed: ChannelList, out: Out) -> None:
    if out.as_json:
        out.emit(listed)
        return
    if not listed.channels:
        out.note("no channels; add a section [channels.NAME] to the configuration, then: pwf channel reload")
        return
    now_ms = out.now_ms()
    rows = [
        [
            text.line(one.name),
            one.kind,
            one.state,
            text.age(one.since_ms, now_ms),
            " ".join(one.tells) or "-",
            ", ".join(f"{count} {state}" for state, count in sorted(one.messages.items())) or "-",
            text.line(one.trouble or "-", 120),
        ]
        for one in listed.channels
    ]
    out.table(["CHANNEL", "KIND", "STATE", "SINCE", "TELLS", "MESSAGES", "TROUBLE"], rows)
    if listed.messages:
        out.print("")
        rows = [
            [
                one.message_id,
                text.line(one.channel),
                one.event,
                one.state,
                text.age(one.created_ms, now_ms),
                one.run_id or "-",
                text.line(one.why or "-", 120),
            ]
            for one in listed.messages
        ]
        out.table(["MESSAGE", "CHANNEL", "EVENT", "STATE", "AGE", "RUN", "WHY"], rows)
    unclear = next((one for one in listed.messages if one.state == "ambiguous"), None)
    if unclear is not None:
        out.note(
            f"look whether it arrived, then type:  pwf channel recover {unclear.message_id} confirm  (or retry)"
        )
    refused = next((one for one in listed.messages if one.state == "refused"), None)
    if refused is not None:
        out.note(
            f"once its reason is mended, it is sent again:  pwf channel recover {refused.message_id} retry"
        )
