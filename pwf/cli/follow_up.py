"""`pwf follow-up`: prompts for the session of a run, for after its success."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, client
from pwf.cli.out import Out
from pwf.present import text

if TYPE_CHECKING:
    from pwf.protocol.follow_ups import FollowUpView

EXAMPLE = """pwf follow-up queue @last 'Now write the release notes.'
pwf follow-up queue 3kq - < prompt.md
pwf follow-up ls 3kq
pwf follow-up remove 3kq 2"""
WORDS = """They are sent in order, each as a turn of its own, when the run has succeeded and the session's turn about
that is over. If the run fails or is cancelled, none is."""


def add(commands: Commands) -> None:
    inner = commands.group(
        "follow-up", "queue prompts for the session of a run, for after its success", example=EXAMPLE
    )
    parser = inner.add("queue", queue, "queue a prompt behind the others", example=EXAMPLE, more=WORDS)
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser.add_argument("text", metavar="TEXT", help="the prompt; `-`: from stdin")
    parser = inner.add("ls", ls, "list the follow-ups of a run, in order", example="pwf follow-up ls @last")
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser = inner.add(
        "remove", remove, "remove one that was not sent", example="pwf follow-up remove @last 2"
    )
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser.add_argument("follow_up", metavar="N", help="its number, or its id")


def queue(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.follow_ups import QueueFollowUp

    words = sys.stdin.read() if options.text == "-" else options.text
    with client() as daemon:
        reply = daemon.exchange("follow_up.queue", QueueFollowUp(text=words), run_id=options.run_id)
    if out.as_json:
        out.emit_reply(reply)
        return exits.OK
    changed = reply.result
    out.print(f"{text.line(changed.follow_up_id)} is queued for session {text.line(changed.session)}")
    return exits.OK


def ls(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.follow_ups import FollowUps

    with client() as daemon:
        view = daemon.call("run.view", run_id=options.run_id)
    if out.as_json:
        out.emit(FollowUps(run_id=view.summary.run_id, follow_ups=view.follow_ups))
        return exits.OK
    if not view.follow_ups:
        out.note(f"no follow-ups of {text.line(view.summary.run_id)}")
        return exits.OK
    out.table(["N", "STATUS", "BY", "TEXT"], [_line(one) for one in view.follow_ups])
    return exits.OK


def _line(one: FollowUpView) -> list[str]:
    why = f" ({one.why})" if one.why else ""
    number = one.follow_up_id.rpartition(".")[2]
    return [number, text.line(one.status + why, 60), text.line(one.queued_by, 30), text.line(one.summary, 80)]


def remove(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.follow_ups import RemoveFollowUp

    payload = RemoveFollowUp(follow_up=options.follow_up)
    with client() as daemon:
        reply = daemon.exchange("follow_up.remove", payload, run_id=options.run_id)
    if out.as_json:
        out.emit_reply(reply)
        return exits.OK
    before = " (it was already)" if reply.outcome == "adopted" else ""
    out.print(f"{text.line(reply.result.follow_up_id)} is not sent{before}")
    return exits.OK
