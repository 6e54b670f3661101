"""`pwf sessions`: the conversations of agents that own interactive runs."""

from __future__ import annotations

import argparse

from pwf.cli import exits
from pwf.cli.commands import Commands, add_cursor, client, page_limit, say_where_a_page_ends
from pwf.cli.out import Out, UsageError
from pwf.present import text


def add(commands: Commands) -> None:
    parser = commands.add(
        "sessions",
        sessions,
        "list the sessions of agents, and the run that each has",
        example="pwf sessions\npwf sessions --connected\npwf sessions --transcript @last",
        more="An agent attaches its session by itself; docs/agents.md says how.",
    )
    parser.add_argument("--connected", action="store_true", help="only those that are connected now")
    parser.add_argument("--limit", metavar="N", type=page_limit, default=100, help="at most so many (100)")
    add_cursor(parser)
    parser.add_argument(
        "--transcript", metavar="RUN", help="what the session of a run has recorded of its conversation"
    )
    parser.add_argument("--segment", metavar="NAME", help="of the transcript only this part")


def sessions(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.sessions import SessionListPayload

    if options.transcript is not None:
        return _transcript(options, out)
    if options.segment is not None:
        raise UsageError("--segment is for a transcript", hint="pwf sessions --transcript RUN --segment NAME")
    with client() as daemon:
        asked = SessionListPayload(connected=options.connected, limit=options.limit, cursor=options.cursor)
        listed = daemon.call("session.list", asked)
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.sessions:
        out.note("no sessions; an agent attaches one by itself (docs/agents.md)")
        return exits.OK
    now_ms = out.now_ms()
    rows = [
        [
            text.line(one.session_id, 40),
            text.line(one.client or "-", 20),
            ("idle" if one.idle else "connected") if one.connected else "gone",
            text.age(one.seen_ms, now_ms),
            one.run_id or "-",
            one.run_status or "-",
        ]
        for one in listed.sessions
    ]
    out.table(["SESSION", "CLIENT", "STATE", "SEEN", "RUN", "STATUS"], rows)
    say_where_a_page_ends(listed.next_cursor, out)
    return exits.OK


def _transcript(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.transcripts import TranscriptPayload

    with client() as daemon:
        asked = TranscriptPayload(segment=options.segment, limit=options.limit, cursor=options.cursor)
        found = daemon.call("session.transcript", asked, run_id=options.transcript)
    if out.as_json:
        out.emit(found)
        return exits.OK
    if not found.entries:
        whose = "has no session" if found.session_id is None else f"is of session {found.session_id}"
        out.note(f"nothing was recorded; run {found.run_id} {whose}")
        return exits.OK
    now_ms = out.now_ms()
    for entry in found.entries:
        head = f"{text.line(entry.segment, 20)}:{entry.number}  {text.clock_time(entry.at_ms, now_ms)}"
        out.print(
            f"{head}  {out.paint(text.line(entry.kind, 20), 'dim')}  {text.json_line(bytes(entry.data))}"
        )
    say_where_a_page_ends(found.next_cursor, out)
    return exits.OK
