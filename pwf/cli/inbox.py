"""`pwf inbox`: what the notify nodes of runs have said."""

from __future__ import annotations

import argparse

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, client, page_limit
from pwf.cli.out import Out
from pwf.present import text


def add(commands: Commands) -> None:
    parser = commands.add(
        "inbox",
        inbox,
        "print what the notify nodes of runs have said, newest first",
        example="pwf inbox\npwf inbox @last\npwf inbox --limit 5 --json",
    )
    parser.add_argument("run_id", metavar="RUN", nargs="?", help=f"only of this run: {RUN_HELP}")
    parser.add_argument("--limit", metavar="N", type=page_limit, default=20, help="at most so many (20)")
    parser.add_argument("--cursor", metavar="PLACE", help="go on where a page ended, which has said so")


def inbox(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.notices import NoticeListPayload

    with client() as daemon:
        run_id = options.run_id
        if run_id is not None:
            run_id = daemon.call("run.status", run_id=run_id).summary.run_id
        payload = NoticeListPayload(run=run_id, limit=options.limit, cursor=options.cursor)
        listed = daemon.call("notice.list", payload)
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.notices:
        out.note("nothing was said")
    now_ms = out.now_ms()
    for notice in listed.notices:
        name = text.line(notice.title or notice.workflow, 60)
        head = f"{name}  {text.line(notice.run_id, 24)}  {text.line(notice.node, 40)}  {notice.kind}"
        out.print(f"{out.paint(head, 'bold')}  {text.age(notice.at_ms, now_ms)}")
        out.print("\n".join(f"  {line}" for line in text.block(notice.text).splitlines()))
    if listed.next_cursor is not None:
        out.note(f"there are more; go on with --cursor {listed.next_cursor}")
    return exits.OK
