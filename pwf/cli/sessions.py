"""`pwf sessions`: the conversations of agents that own interactive runs."""

from __future__ import annotations

import argparse

from pwf.cli import exits
from pwf.cli.commands import Commands, add_cursor, client, page_limit, say_where_a_page_ends
from pwf.cli.out import Out
from pwf.present import text


def add(commands: Commands) -> None:
    parser = commands.add(
        "sessions",
        sessions,
        "list the sessions of agents, and the run that each has",
        example="pwf sessions\npwf sessions --connected",
        more="An agent attaches its session by itself; docs/agents.md says how.",
    )
    parser.add_argument("--connected", action="store_true", help="only those that are connected now")
    parser.add_argument("--limit", metavar="N", type=page_limit, default=100, help="at most so many (100)")
    add_cursor(parser)


def sessions(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.sessions import SessionListPayload

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
